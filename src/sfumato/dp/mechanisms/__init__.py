"""Mechanisms, one a file, each with its proof beside it."""
