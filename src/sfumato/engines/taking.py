"""Counting one period of a stream against the rows that each person has left; in a worker.

Two numbers of a person matter, both of theirs alone: how many of their rows the period has, and how
many they have used. So nobody's rows count more or less for what others do (stream.proof.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import duckdb
import numpy as np

from sfumato.core.measure import Cells
from sfumato.engines.frames import Header
from sfumato.engines.locked import Room, made_whole, open_locked, quoted
from sfumato.engines.sources import paths_of
from sfumato.plan.lower_from import table_name

# `who` follows a person from version to version, and orders the file as a keyed digest does: by
# nothing that is in the rows.
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


def taken(room: Room, request: Header) -> Cells:
    """Return the exact rows of the block; write what is to be kept to the target."""
    body: dict[str, Any] = request  # Any: a message of our own parent
    before = body["before"]
    paths = [path for path in (body["table"], before) if path is not None]
    opened = tuple(touched for path in paths for touched in paths_of(path))
    room = replace(room, spill=body["spill"], paths=opened)
    connection = open_locked(body["target"], room, read_only=False)
    try:
        connection.execute(f"ATTACH {quoted(body['table'])} AS prepared (READ_ONLY)")
        if before is not None:
            connection.execute(f"ATTACH {quoted(before)} AS kept (READ_ONLY)")
        for statement in _NOTHING_USED if before is None else _KEPT:
            connection.execute(statement)
        cells = _counted(connection, body)
        made_whole(connection)
        return cells
    finally:
        connection.close()


def _counted(connection: duckdb.DuckDBPyConnection, body: dict[str, Any]) -> Cells:
    connection.execute(
        "CREATE TEMP TABLE here AS SELECT who, count(*) AS rows FROM"
        f" (SELECT person FROM prepared.{table_name('duckdb', 0)} WHERE {body['where']})"
        " JOIN prepared.people USING (person) GROUP BY who",
        body["parameters"],
    )
    connection.execute(_TAKEN, [body["rows"]])
    connection.execute(_USED)
    connection.execute(_DAYS, [body["end"]])
    found = connection.execute(_BLOCK, [body["first"], body["end"]]).fetchone()
    if found is None:
        raise ValueError("no block")
    return Cells((np.array([found[0]], dtype=np.int64),))
