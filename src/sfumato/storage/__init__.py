"""Ledgers on disk. Take one from `sfumato.stores.sqlite` or `sfumato.stores.postgres`, and its
anchor from `sfumato.stores.anchor`; nothing is imported here, so that SQLite needs no PostgreSQL.
"""
