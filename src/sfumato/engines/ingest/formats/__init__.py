"""Read the file formats that DuckDB does not read: rows with types, or a file that it reads."""
