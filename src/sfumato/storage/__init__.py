"""Ledgers on disk.

Take one from `sfumato.storage.sqlite_ledger` or `sfumato.storage.postgres_ledger`, and its anchor
from `sfumato.storage.anchor`. Nothing is imported here, so that SQLite needs no PostgreSQL.
"""
