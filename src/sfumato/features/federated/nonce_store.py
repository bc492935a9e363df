"""Table of used nonces: a site takes part in a secure-aggregation round with a nonce only once."""

from __future__ import annotations

from typing import Final

from sfumato.storage.records_database import Records

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS sum_nonces (nonce TEXT NOT NULL PRIMARY KEY){table_end}",
)


class SqlNonces:
    """A table, in the vault's SQL database, of the nonces of all rounds that a site has joined."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def take(self, nonce: bytes) -> bool:
        """Store a round's nonce; return False if this site has joined a round with it before."""
        with self._records.change() as link:
            sql = "INSERT INTO sum_nonces (nonce) VALUES (?) ON CONFLICT DO NOTHING"
            return link.change(sql, (nonce.hex(),)) == 1
