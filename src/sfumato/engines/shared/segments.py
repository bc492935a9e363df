"""Open a prepared table of several files: the first rows, and the rows that were appended later.

Each file (segment) is written once and never changed. A segment of appended rows has only what is
new: rows with their ranks, persons that no earlier segment has, and texts that no earlier segment
has. So the table is the union of its segments. Proof: engines/kernel/ranks.proof.md.

The tables of an appended segment are in a schema of their own. A reader that opens such a file
alone finds no table, instead of a part of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sfumato.engines.shared.locked_connection import Room, named, open_locked, quoted
from sfumato.engines.shared.prepared_table import appended_segments, segments_of

if TYPE_CHECKING:
    import duckdb

SCHEMA: Final = "appended"
_FIRST: Final = "main"
# Sums per person change when the person gets more rows, so a table of segments has none.
_PARTS: Final = ("parts", "firsts")


@dataclass(frozen=True)
class Segment:
    """An attached file of a prepared table: the names of its tables, and their numbers of rows."""

    database: str
    schema: str
    rows: dict[str, int]

    def table(self, name: str) -> str:
        """Return the SQL name of a table of this segment."""
        return f"{self.database}.{self.schema}.{named(name)}"

    @property
    def size(self) -> int:
        """Return the number of data rows in all tables."""
        return sum(n for name, n in self.rows.items() if is_rows(name))


def is_rows(name: str) -> bool:
    """Say whether a stored table holds data rows (`rows`, `rows_1`, ...)."""
    return name.partition("_")[0] == "rows"


def files_of(table: str) -> tuple[str, ...]:
    """Return all files that DuckDB opens to read a prepared table."""
    return tuple(f"{file}{log}" for file in segments_of(Path(table)) for log in ("", ".wal"))


def open_prepared(table: str, room: Room) -> duckdb.DuckDBPyConnection:
    """Return a locked connection that reads a prepared table, of one file or of several."""
    if not appended_segments(Path(table)):
        return open_locked(table, room, read_only=True)
    room = replace(room, paths=(*room.paths, *files_of(table)))
    connection = open_locked(":memory:", room, read_only=False)
    attach_prepared(connection, table, _FIRST)
    return connection


def attach_prepared(connection: duckdb.DuckDBPyConnection, table: str, place: str) -> list[Segment]:
    """Make a prepared table's data readable under a schema or an attached database.

    Args:
        connection: A connection that may open the files.
        table: The path of the prepared table.
        place: `main` for the connection's own schema, or the name of a database to attach.

    Returns:
        The segments, oldest first.
    """
    files = segments_of(Path(table))
    segments = [_attached(connection, n, file) for n, file in enumerate(files)]
    if place != _FIRST:
        connection.execute(f"ATTACH ':memory:' AS {place}")
    names = {name: None for segment in segments for name in segment.rows}
    for name in names:
        union = union_of(segments, name, with_row_ids=True)
        connection.execute(f"CREATE VIEW {place}.{named(name)} AS {union}")
    return segments


def _attached(connection: duckdb.DuckDBPyConnection, place: int, file: Path) -> Segment:
    database = f"segment{place}"
    connection.execute(f"ATTACH {quoted(str(file))} AS {database} (READ_ONLY)")
    found = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ?"
        " ORDER BY table_name",
        [database],
    ).fetchall()
    schemas = {schema for schema, _ in found}
    schema = SCHEMA if SCHEMA in schemas else _FIRST
    kept = [name for _, name in found if not name.startswith(_PARTS)]
    counts = Segment(database, schema, dict.fromkeys(kept, 0))
    return replace(counts, rows={name: _count(connection, counts.table(name)) for name in kept})


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return 0 if found is None else int(found[0])


def union_of(segments: Sequence[Segment], name: str, *, with_row_ids: bool = False) -> str:
    """Return the SELECT of a stored table over all segments that have it.

    With row ids, data rows have a column `rowid` that numbers them over all segments, because
    training goes through rows by it.
    """
    selects, before = [], 0
    for segment in segments:
        if name not in segment.rows:
            continue
        row_id = f", rowid + {before} AS rowid" if with_row_ids and is_rows(name) else ""
        selects.append(f"SELECT *{row_id} FROM {segment.table(name)}")
        before += segment.rows[name]
    union = " UNION ALL BY NAME ".join(selects)
    return crowds_sum(union) if name.startswith("crowds") else union


def crowds_sum(union: str) -> str:
    """Return the SELECT that adds up the row counts of several tables of crowds."""
    return f"SELECT few, CAST(sum(n) AS BIGINT) AS n FROM ({union}) GROUP BY few"
