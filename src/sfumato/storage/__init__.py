"""Storage: the ledger and the records in SQLite or PostgreSQL, the anchor, and key files."""
