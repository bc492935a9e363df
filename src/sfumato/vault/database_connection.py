"""An external database table as the source of rows, and the port that reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from sfumato.dp.refusal import Refused

LONGEST: Final = 63  # longest name in PostgreSQL, in bytes
_OURS_NOT: Final = re.compile(r"pg_.*|information_schema", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class TableThere:
    """A table of an external database; the address (URL) contains the password."""

    address: str = field(repr=False)
    schema: str
    table: str


class TableReader(Protocol):
    """Reads tables of external databases, in separate processes that can be killed."""

    def check(self, address: str) -> None:
        """Refuse an address that is invalid, or that would send rows unencrypted."""
        ...

    def columns(self, wanted: TableThere) -> Sequence[tuple[str, str]]:
        """Return the names and types of the table's columns without reading rows; or refuse."""
        ...

    def fetch(self, wanted: TableThere, target: Path, max_bytes: int) -> None:
        """Write the rows, at most `max_bytes` bytes, into an existing file; or refuse."""
        ...


def read_table(address: str, name: str) -> TableThere:
    """Parse a table's name: SCHEMA.TABLE, or TABLE alone for the schema `public`."""
    first, dot, rest = name.partition(".")
    schema, table = (first, rest) if dot else ("public", name)
    for word in (schema, table):
        if not (word.isprintable() and 1 <= len(word.encode()) <= LONGEST):
            raise _no_table()
    if _OURS_NOT.fullmatch(schema):
        raise _no_table()
    return TableThere(address, schema, table)


def _no_table() -> Refused:
    return Refused(
        "source-unreadable",
        "A table must be named SCHEMA.TABLE or TABLE, and must not be one of the server's own.",
        "Name a table of the connection.",
    )
