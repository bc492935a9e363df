"""PostgreSQL as an engine, and as a source of rows."""
