"""Encode a source by dictionary: every column's distinct texts, and each row as codes.

Anonymity checks of an owner's own file use it. The result goes sealed to the door, and only the
owner sees it. If grouped, equal rows appear once with their count, so that a table of any length
fits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.engines.ingest.file_conversion import converted
from sfumato.engines.ingest.prepare_order import TableOrder
from sfumato.engines.ingest.source_errors import reported
from sfumato.engines.ingest.source_files import Source, open_source, paths_of
from sfumato.engines.shared.locked_connection import Room, named, open_locked
from sfumato.engines.shared.message_frames import Header
from sfumato.vault.card.data_card import Limits


def value_census(room: Room, message: Header) -> tuple[Header, bytes]:
    """Encode a source by dictionary: return its distinct texts per column, and each row's codes.

    The header has names, texts and row count; the body has the codes by column. A refusal is
    returned in the header.
    """
    source, table = str(message["source"]), message.get("inner_table")
    order = TableOrder(
        0, source, None if table is None else str(table), None, None, (), (), Limits()
    )
    try:
        order = converted(order, Path(room.spill))
        room = replace(room, paths=paths_of(order.source))
        connection = open_locked(":memory:", room, read_only=False)
        try:
            return _counted(connection, open_source(connection, order), message)
        finally:
            connection.close()
    except Refused as refused:
        return {"refused": reported(refused)}, b""


def _counted(
    connection: duckdb.DuckDBPyConnection, source: Source, message: Header
) -> tuple[Header, bytes]:
    places = _places(source, message.get("columns"))
    wanted = ", ".join(f"coalesce(c{place}, '') AS c{place}" for place in places)
    is_grouped = message.get("grouped") is True
    number = ", count(*)::BIGINT AS n" if is_grouped else ""
    connection.execute(
        f"CREATE TEMP TABLE rows AS SELECT {wanted or '1 AS one'}{number} FROM ({source.sql})"
        + (" GROUP BY ALL" if is_grouped else "")
    )
    texts = [_texts(connection, place) for place in places]
    codes = [f"enum_code(CAST(c{place} AS e{place}))::BIGINT AS c{place}" for place in places]
    sql = f"SELECT {', '.join([*codes, *(['n'] if is_grouped else [])]) or '1'} FROM rows"
    found: dict[str, NDArray[Any]] = connection.execute(sql).fetchnumpy()
    columns = [*(f"c{place}" for place in places), *(["n"] if is_grouped else [])]
    arrays = [np.ascontiguousarray(np.asarray(found[name]), np.int64) for name in columns]
    rows = len(next(iter(found.values()))) if found else 0
    header: Header = {
        "names": [source.names[place] for place in places],
        "texts": texts,
        "rows": rows,
    }
    return header, b"".join(array.tobytes() for array in arrays)


def _places(source: Source, columns: object) -> list[int]:
    """Return the indexes of the named columns of a source; if none are named, of all columns."""
    if not isinstance(columns, list):
        return list(range(len(source.names)))
    return [_place(source, str(name)) for name in columns]


def _place(source: Source, name: str) -> int:
    fitting = [i for i, one in enumerate(source.names) if one.strip() == name]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(one.strip() for one in source.names)
    raise Refused(
        "unknown-column",
        f"The table has no column {name!r}, or several of that name.",
        f"Use one or more of the columns {known}.",
    )


def _texts(connection: duckdb.DuckDBPyConnection, place: int) -> list[str]:
    """Create an ENUM type of a column's distinct texts; return the texts in the order of codes."""
    column, kind = named(f"c{place}"), named(f"e{place}")
    connection.execute(
        f"CREATE TYPE {kind} AS ENUM (SELECT DISTINCT {column} FROM rows ORDER BY {column})"
    )
    sql = f"SELECT unnest(enum_range(NULL::{kind}))::VARCHAR"
    return [str(row[0]) for row in connection.execute(sql).fetchall()]
