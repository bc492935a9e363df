"""DuckDB in a worker process that can be killed at any moment."""
