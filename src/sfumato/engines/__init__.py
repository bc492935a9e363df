"""Query engines (DuckDB, PostgreSQL, Spark): they hold rows and answer with sealed integers.

An engine never returns an error text, because an error text may quote a value.
"""
