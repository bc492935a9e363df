"""Read tables of any database as a source of rows; a child process with limits reads each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.engines.databases.database_address import (
    check_installed,
    password_of_environment,
    read_database_address,
)
from sfumato.engines.postgres.source_tables import PostgresTables
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.source_process import ask_source
from sfumato.vault.database_connection import TableReader, TableThere, is_postgres


@dataclass(frozen=True)
class SqlAlchemyTables:
    """Reader of tables through SQLAlchemy; a refusal never quotes an address or a value."""

    look_s: float = 30.0
    fetch_s: float = 900.0
    memory_mb: int = 2048

    def check(self, address: str) -> None:
        """Refuse an address that is invalid, or that is remote and does not ask for TLS."""
        check_installed(read_database_address(address))

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
        read = read_database_address(wanted.address)
        check_installed(read)
        there: Header = {
            "address": wanted.address,
            "password": password_of_environment(read),
            "is_here": read.is_here,
            "schema": wanted.schema,
            "table": wanted.table,
            "limit_s": limit_s,
        }
        return ask_source("databases.source_worker", {**order, **there}, self.memory_mb, limit_s)


@dataclass(frozen=True)
class DatabaseTables:
    """Reader of tables of PostgreSQL by its own protocol, and of others through SQLAlchemy."""

    postgres: TableReader = field(default_factory=PostgresTables)
    others: TableReader = field(default_factory=SqlAlchemyTables)

    def check(self, address: str) -> None:
        """Refuse a database address that is invalid, or that would send rows unencrypted."""
        self._of(address).check(address)

    def columns(self, wanted: TableThere) -> Sequence[tuple[str, str]]:
        """Return the names and types of the table's columns without reading a row; or refuse."""
        return self._of(wanted.address).columns(wanted)

    def fetch(self, wanted: TableThere, target: Path, max_bytes: int) -> None:
        """Write the rows, at most `max_bytes` bytes, into the existing file `target`; or refuse."""
        self._of(wanted.address).fetch(wanted, target, max_bytes)

    def _of(self, address: str) -> TableReader:
        return self.postgres if is_postgres(address) else self.others
