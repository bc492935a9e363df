"""Query engines (DuckDB, PostgreSQL, Spark): they hold rows, and answer with sealed integers.

An engine never returns the text of an error, because that text may quote a value.
"""
