"""The names and likely types of a source's columns, for a proposed card; never a value or bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import duckdb

from sfumato.core.card import Limits
from sfumato.core.refusal import Refused
from sfumato.engines.frames import Header
from sfumato.engines.locked import Room, open_locked
from sfumato.engines.orders import TableOrder
from sfumato.engines.sources import open_source, paths_of

_SAMPLE: Final = 1000
_NO_VALUE: Final = "'', 'n/a', 'na', 'null', 'none', 'nan', '-'"
_PATTERNS: Final = (  # the first that every value fits
    ("boolean", "true|false|t|f|yes|no|y|n"),
    ("integer", "[+-]?(0|[1-9][0-9]{0,17})"),  # 02100 is a text: its zero means something
    ("number", "[+-]?((0|[1-9][0-9]*)[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]{1,3})?"),
    ("date", "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("timestamp", "[0-9]{4}-[0-9]{2}-[0-9]{2}[ t][0-9]{2}:[0-9]{2}(:[0-9.]+)?"),
)


def described(room: Room, message: Header) -> Header:
    """Return each column's name and type, guessed from a thousand rows; or the refusal."""
    source, table = str(message["source"]), message.get("inner_table")
    inner = None if table is None else str(table)
    order = TableOrder(0, source, inner, None, None, (), (), Limits())
    connection = open_locked(":memory:", replace(room, paths=paths_of(source)), read_only=False)
    try:
        return {"columns": _columns(connection, order)}
    except Refused as refused:
        return {"refused": [refused.code, refused.cause, refused.next_step]}
    finally:
        connection.close()


def _columns(connection: duckdb.DuckDBPyConnection, order: TableOrder) -> list[list[str]]:
    source = open_source(connection, order)
    connection.execute(f"CREATE TEMP TABLE sample AS SELECT * FROM ({source.sql}) LIMIT {_SAMPLE}")
    return [[name, _type(connection, f"c{i}")] for i, name in enumerate(source.names)]


def _type(connection: duckdb.DuckDBPyConnection, column: str) -> str:
    for kind, pattern in _PATTERNS:
        found = connection.execute(
            f"SELECT count(*), count(*) FILTER (regexp_full_match(lower({column}), '{pattern}'))"
            f" FROM sample WHERE lower({column}) NOT IN ({_NO_VALUE})"
        ).fetchone()
        if found is not None and 0 < found[0] == found[1]:
            return kind
    return "text"
