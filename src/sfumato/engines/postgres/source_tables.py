"""Read PostgreSQL tables as a source of rows; a child process with limits reads each table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sfumato.dp.refusal import Refused
from sfumato.engines.shared.driver_process import START_S, DriverChild
from sfumato.engines.shared.engine_address import PostgresAddress, read_address
from sfumato.engines.shared.message_frames import Header
from sfumato.system.optional_packages import need_package
from sfumato.vault.database_connection import TableThere

_WHY: Final[Mapping[str, tuple[str, str, str]]] = {
    "unreachable": (
        "engine-unavailable",
        "The database of the connection cannot be reached.",
        "Try again later, or tell the operator.",
    ),
    "unsafe": (
        "engine-unsafe",
        "The role of the connection has more rights than reading tables, so the vault does not "
        "use it.",
        "The operator must give it a role that has SELECT and nothing else.",
    ),
    "no-table": (
        "source-unreadable",
        "The database connection has no table of that name that it may read.",
        "Name another table, or ask the operator for it.",
    ),
    "too-large": (
        "too-large",
        "The table is larger than the upload space that you have left.",
        (
            "Add or remove your uploaded files, take fewer rows, or ask the operator for "
            "--max-upload."
        ),
    ),
    "late": (
        "source-unreadable",
        "Reading the table took too much time or memory.",
        "Read a part of the table through a database view, or try again later.",
    ),
}


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
        child = DriverChild("postgres.source_worker")
        try:
            child.begin({"memory_mb": self.memory_mb}, START_S)
            answer = child.ask({**order, **there}, limit_s)
        finally:
            child.kill()
        said = {"why": "late"} if answer is None or not answer[0].get("ok") else _read(answer[1])
        if said["why"] is not None:
            raise Refused(*_WHY.get(str(said["why"]), _WHY["late"]))
        return said


def _read(body: bytes) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(body)
    return read
