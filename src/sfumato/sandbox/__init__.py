"""Sandbox for untrusted programs: no network, no secrets, and one output pipe with a size limit."""
