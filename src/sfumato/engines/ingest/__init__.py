"""Ingest: read an owner's files into prepared tables."""
