"""The ledger and records on SQLite and PostgreSQL, the anchor, key files."""
