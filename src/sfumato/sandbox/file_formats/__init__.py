"""Readers of array files that strangers' programs write."""
