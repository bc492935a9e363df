"""Read one table or view of an SQLite file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.source_errors import table_not_found, unreadable
from sfumato.engines.shared.locked_connection import named
from sfumato.system.typed_rows import TypedRows

_MAGIC: Final = b"SQLite format 3\0"
_UNDONE: Final = bytes.fromhex("d9d505f920a163d7")  # how a journal begins that is in use


def is_sqlite(source: str) -> bool:
    """Return True if a file is an SQLite database, by its first bytes."""
    with Path(source).open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def sqlite_table(source: str, table: str | None) -> TypedRows:
    """Return the rows of a table; without `table`, the file must have exactly one."""
    if not is_sqlite(source):
        raise unreadable("The file is no SQLite database.", "Give the file with your rows.")
    # a mode of its own: no journal is written beside the owner's file, and none is read
    connection = sqlite3.connect(f"file:{_quoted(source)}?mode=ro&immutable=1", uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    if Path(f"{source}-wal").is_file() and Path(f"{source}-wal").stat().st_size:
        raise unreadable(
            "The SQLite database has changes in a -wal file beside it.",
            "Close the program that writes it, or run: sqlite3 FILE 'PRAGMA "
            "wal_checkpoint(TRUNCATE)'.",
        )
    if _has_journal(source):
        raise unreadable(
            "A change of the SQLite database was not finished: its -journal file is beside it.",
            "Close the program that writes it, and open it once with: sqlite3 FILE .tables",
        )
    try:
        one = _one_table(connection, table)
        cursor = connection.execute(f"SELECT * FROM {named(one)}")
    except sqlite3.Error:
        raise _damaged() from None
    return TypedRows(tuple(column[0] for column in cursor.description), _rows(cursor))


def _has_journal(source: str) -> bool:
    """Return True if a file beside the database undoes a change of which it has a part."""
    with contextlib.suppress(FileNotFoundError), Path(f"{source}-journal").open("rb") as file:
        return file.read(len(_UNDONE)) == _UNDONE
    return False


def _rows(cursor: sqlite3.Cursor) -> Iterator[Sequence[object]]:
    try:
        yield from cursor
    except sqlite3.Error:
        raise _damaged() from None


def _one_table(connection: sqlite3.Connection, wanted: str | None) -> str:
    found = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
        " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    names = [str(name) for (name,) in found]
    fitting = [name for name in names if wanted in (None, name)]
    if len(fitting) == 1:
        return fitting[0]
    raise table_not_found("table", names, wanted)


def _quoted(path: str) -> str:
    """Return a path as part of a URI."""
    from urllib.parse import quote  # late, because few sources need it

    return quote(str(Path(path).absolute()))


def _damaged() -> Refused:
    return unreadable(
        "The SQLite database is damaged or locked.",
        "Make a copy with: sqlite3 FILE '.backup COPY'.",
    )
