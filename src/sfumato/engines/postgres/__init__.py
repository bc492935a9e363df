"""PostgreSQL as a query engine, and as a source of rows."""
