"""Count one period of a stream, within each person's remaining rows; in a worker.

A limit says how many rows of each person may count in the whole stream. What a person adds depends
only on the person's rows in the period, and on how many of the person's rows were counted before.
It does not depend on other persons (continual_counting.proof.md).

The rows are in a table that this process can open. Otherwise another engine counts them, one range
of persons at a time, and this module maps its persons to their stable pseudonyms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.engines.ingest.source_files import paths_of
from sfumato.engines.shared.cell_assembly import Columns
from sfumato.engines.shared.locked_connection import Room, checkpoint, open_locked, quoted
from sfumato.engines.shared.message_frames import Header
from sfumato.engines.shared.segments import attach_prepared, files_of
from sfumato.query.measure import Cells
from sfumato.query.printing.from_clause import table_name

# `who` identifies a person in every version of the data. It is a keyed digest, so sorting the file
# by it reveals nothing about the rows.
_NOTHING_USED: Final = (
    "CREATE TEMP VIEW used_before AS SELECT CAST('' AS BLOB) AS who, 0 AS rows WHERE false",
    'CREATE TEMP VIEW days_before AS SELECT 0 AS "end", 0 AS rows WHERE false',
)
_KEPT: Final = (
    "CREATE TEMP VIEW used_before AS SELECT who, rows FROM kept.used",
    'CREATE TEMP VIEW days_before AS SELECT "end", rows FROM kept.days',
)
_TAKEN: Final = (
    "CREATE TEMP TABLE taken AS"
    " SELECT who, least(here.rows, greatest(? - coalesce(used_before.rows, 0), 0)) AS rows"
    " FROM here LEFT JOIN used_before USING (who)"
)
_USED: Final = (
    "CREATE TABLE used AS SELECT who, CAST(sum(rows) AS BIGINT) AS rows FROM"
    " (SELECT * FROM used_before UNION ALL SELECT * FROM taken)"
    " WHERE rows > 0 GROUP BY who ORDER BY who"
)
_DAYS: Final = (
    'CREATE TABLE days AS SELECT CAST("end" AS INTEGER) AS "end", CAST(rows AS BIGINT) AS rows FROM'
    " (SELECT * FROM days_before UNION ALL SELECT ?, coalesce(sum(rows), 0) FROM taken)"
    ' ORDER BY "end"'
)
_BLOCK: Final = 'SELECT CAST(sum(rows) AS BIGINT) FROM days WHERE "end" BETWEEN ? AND ?'

_COUNTED: Final = "CREATE TEMP TABLE counted (person BIGINT, rows BIGINT)"
_MORE: Final = "INSERT INTO counted SELECT unnest(CAST(? AS BIGINT[])), unnest(CAST(? AS BIGINT[]))"
_AT_ONCE: Final = 1 << 16  # counted persons per INSERT, which binds lists
PERSONS: Final = 1 << 20  # persons per range that another engine counts
_BEYOND: Final = 1 << 62  # larger than every person number

# A range of persons [low, high) -> columns `person` and `n`, the row counts above zero.
Ask = Callable[[int, int], Columns]
_Count = Callable[[duckdb.DuckDBPyConnection], None]  # creates the table `here` (who, rows)


def count_period(room: Room, request: Header) -> Cells:
    """Count one period of a stream on a local table, and write the stream's new state.

    Return the exact number of rows that count in the block: the request's first period up to this
    one.
    """
    body: dict[str, Any] = request  # Any: a message of the parent process

    def count(connection: duckdb.DuckDBPyConnection) -> None:
        attach_prepared(connection, body["table"], "prepared")
        connection.execute(
            "CREATE TEMP TABLE here AS SELECT who, count(*) AS rows FROM"
            f" (SELECT person FROM prepared.{table_name('duckdb', 0)} WHERE {body['where']})"
            " JOIN prepared.people USING (person) GROUP BY who",
            body["parameters"],
        )

    return _written(room, body, files_of(body["table"]), count)


def count_remote_period(room: Room, request: Header, ask: Ask) -> Cells:
    """Count a period as `count_period` does, if another engine counts the rows per person."""
    body: dict[str, Any] = request  # Any: a message of the parent process
    names = f"read_parquet({quoted(body['people'])})"

    def count(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(_COUNTED)
        known = _number(connection, f"SELECT count(*) FROM {names}")
        for low in range(0, max(known, 1), PERSONS):  # the last range is open-ended
            _add(connection, ask(low, low + PERSONS if low + PERSONS < known else _BEYOND))
        connection.execute(
            f"CREATE TEMP TABLE here AS SELECT who, rows FROM counted JOIN {names} USING (person)"
        )
        if _number(connection, "SELECT (SELECT count(*) FROM counted) - count(*) FROM here"):
            raise ValueError("somebody has rows and no name, or two")

    return _written(room, body, (body["people"],), count)


def _add(connection: duckdb.DuckDBPyConnection, some: Columns) -> None:
    persons: NDArray[np.int64] = some["person"]
    for at in range(0, len(persons), _AT_ONCE):
        few = [some[name][at : at + _AT_ONCE].tolist() for name in ("person", "n")]
        connection.execute(_MORE, few)


def _written(room: Room, body: dict[str, Any], paths: tuple[str, ...], count: _Count) -> Cells:
    """Write a stream's new state: how many rows each person has used; return the block's count.

    `count` counts each person's rows. The result is the exact number of rows that count in the
    block: the request's first period up to this one.
    """
    before = body["before"]
    kept = () if before is None else paths_of(before)
    room = replace(room, spill=body["spill"], paths=(*paths, *kept))
    connection = open_locked(body["target"], room, read_only=False)
    try:
        if before is not None:
            connection.execute(f"ATTACH {quoted(before)} AS kept (READ_ONLY)")
        for statement in _NOTHING_USED if before is None else _KEPT:
            connection.execute(statement)
        count(connection)
        cells = _block(connection, body)
        checkpoint(connection)
        return cells
    finally:
        connection.close()


def _block(connection: duckdb.DuckDBPyConnection, body: dict[str, Any]) -> Cells:
    connection.execute(_TAKEN, [body["rows"]])
    connection.execute(_USED)
    connection.execute(_DAYS, [body["end"]])
    block = _number(connection, _BLOCK, [body["first"], body["end"]])
    return Cells((np.array([block], dtype=np.int64),))


def _number(connection: duckdb.DuckDBPyConnection, sql: str, bound: object = None) -> int:
    found = connection.execute(sql, bound).fetchone()
    if found is None:
        raise ValueError("no number")
    return int(found[0])
