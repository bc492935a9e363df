"""Parsers of array files that untrusted programs write."""
