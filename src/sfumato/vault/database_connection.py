"""An external database table as the source of rows, and the port that reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from sfumato.dp.refusal import Refused

LONGEST: Final = 63  # longest name in PostgreSQL, in bytes
LONGEST_OF_OTHERS: Final = 256  # of 64 characters in MySQL and MariaDB
_POSTGRES: Final = re.compile(r"postgres(ql)?://|\s*[a-z_]+\s*=", re.ASCII)
_OURS_NOT: Final = re.compile(r"pg_.*|information_schema", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class TableThere:
    """A named table of an external database; the address (URL) contains the password."""

    address: str = field(repr=False)
    schema: str
    table: str


class TableReader(Protocol):
    """The port that reads tables of external databases, in processes that can be killed."""

    def check(self, address: str) -> None:
        """Refuse a database address that is invalid, or that would send rows unencrypted."""
        ...

    def columns(self, wanted: TableThere) -> Sequence[tuple[str, str]]:
        """Return the names and types of the table's columns without reading rows.

        Refuse a table that cannot be read.
        """
        ...

    def fetch(self, wanted: TableThere, target: Path, max_bytes: int) -> None:
        """Write the table's rows into an existing file.

        Refuse if they need more than `max_bytes` bytes.
        """
        ...


def is_postgres(address: str) -> bool:
    """Return True if an address is PostgreSQL's, as a URL or as settings of libpq."""
    return _POSTGRES.match(address) is not None


def read_table(address: str, name: str) -> TableThere:
    """Parse the name of a database table: SCHEMA.TABLE, or TABLE alone.

    TABLE alone is in the schema `public` of PostgreSQL. In other databases, it is in the database
    or schema that the address names; `schema` is empty then.
    """
    default, longest = ("public", LONGEST) if is_postgres(address) else ("", LONGEST_OF_OTHERS)
    first, dot, rest = name.partition(".")
    schema, table = (first, rest) if dot else (default, name)
    for word in (schema, table) if dot or schema else (table,):
        if not (word.isprintable() and 1 <= len(word.encode()) <= longest):
            raise _no_table()
    if _OURS_NOT.fullmatch(schema):
        raise _no_table()
    return TableThere(address, schema, table)


def _no_table() -> Refused:
    return Refused(
        "source-unreadable",
        "A table must be named SCHEMA.TABLE or TABLE, and must not be a system table of the "
        "database.",
        "Name another table of the database connection.",
    )
