"""Ingest: read an owner's source files, and write prepared tables."""
