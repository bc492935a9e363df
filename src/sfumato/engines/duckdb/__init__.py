"""The DuckDB engine, embedded in a worker process that can be killed at any moment."""
