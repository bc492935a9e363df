"""Read PostgreSQL tables as a source of rows; a child process with limits reads each table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.engine_address import PostgresAddress, read_address
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.source_process import ask_source
from sfumato.system.optional_packages import need_package
from sfumato.vault.database_connection import TableThere


@dataclass(frozen=True)
class PostgresTables:
    """Reader of PostgreSQL source tables; a refusal never quotes an address or a value."""

    look_s: float = 15.0
    fetch_s: float = 900.0
    # limit of the child's address space; the child streams the rows piece by piece
    memory_mb: int = 2048

    def check(self, address: str) -> None:
        """Refuse an address that is not PostgreSQL's, or that is remote and sets no `sslmode`."""
        need_package("psycopg", "postgres")
        from sfumato.engines.postgres.address import check_network

        if not isinstance(read_address(address), PostgresAddress):
            raise Refused(
                "engine-unavailable",
                "The connection's address is not a PostgreSQL address.",
                "Give postgresql://READER@HOST/DATABASE.",
            )
        check_network(address)

    def columns(self, wanted: TableThere) -> list[tuple[str, str]]:
        """Return the names and types of the table's columns without reading a row; or refuse."""
        said = self._asked(wanted, {"do": "columns"}, self.look_s)
        return [(str(name), str(kind)) for name, kind in said["columns"]]

    def fetch(self, wanted: TableThere, target: Path, max_bytes: int) -> None:
        """Write the rows, at most `max_bytes` bytes, into the existing file `target`; or refuse."""
        order: Header = {"do": "fetch", "target": str(target.absolute()), "most": max_bytes}
        self._asked(wanted, order, self.fetch_s)

    # Any: values of the child's JSON answer
    def _asked(self, wanted: TableThere, order: Header, limit_s: float) -> Mapping[str, Any]:
        self.check(wanted.address)
        there: Header = {
            "address": wanted.address,
            "schema": wanted.schema,
            "table": wanted.table,
            "timeout_ms": int(limit_s * 1000),
        }
        return ask_source("postgres.source_worker", {**order, **there}, self.memory_mb, limit_s)
