"""Pipelines: untrusted programs are submitted, approved, and run on blocks of people."""
