"""The nonces of all rounds of secure sums that a site was ever in: one is used once, for ever."""

from __future__ import annotations

from typing import Final

from sfumato.storage.records_database import Records

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS sum_nonces (nonce TEXT NOT NULL PRIMARY KEY){table_end}",
)


class SqlNonces:
    """A NonceStore over the vault's records."""

    def __init__(self, records: Records) -> None:
        self._records = records
        records.make(_TABLES)

    def take(self, nonce: bytes) -> bool:
        """Put the nonce down; say whether it was new."""
        with self._records.change() as link:
            sql = "INSERT INTO sum_nonces (nonce) VALUES (?) ON CONFLICT DO NOTHING"
            return link.change(sql, (nonce.hex(),)) == 1
