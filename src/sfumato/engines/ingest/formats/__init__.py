"""Readers of file formats that DuckDB alone does not read: each makes a file that it does."""
