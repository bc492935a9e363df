"""Taking the sketch of a source: whole rows, and the columns whose values could name a person.

A row is the sorted multiset of its cells, so that neither names nor order of columns matter; its
mark says how often it occurs, so that two tables of few answers (yes, no) are not the same people
unless they agree in the counts. A column counts if at least 20 of its values differ and 90 % of
them; but not if it is exactly a run of whole numbers (a row number says nothing of people), unless
it is the column that names the person. Two hospitals that number their patients from 1 look alike,
then, and a second person has to say that they are not: better than the other error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import duckdb

from sfumato.engines.orders import Order
from sfumato.engines.prepare_sql import secret_number, without_nulls
from sfumato.engines.sketch import KEPT, Fingerprint, Sketch

_NEAR_UNIQUE: Final = 0.9
_DISTINCT: Final = 20


def take_sketch(
    connection: duckdb.DuckDBPyConnection, order: Order, width: int, unit: int | None, salt: str
) -> Sketch:
    """Return the sketch of the texts c0, c1, ... of the view `texts`."""
    cells = ", ".join(
        f"{_plain_spelling(without_nulls(f'c{i}', order.nulls))} AS n{i}" for i in range(width)
    )
    connection.execute(f"CREATE TEMP VIEW plain AS SELECT {cells} FROM texts")
    columns = [i for i in range(width) if i == unit or _may_name(connection, i)]
    return Sketch(
        _rows(connection, width, salt), tuple(_column(connection, i, salt) for i in columns)
    )


def _plain_spelling(text: str) -> str:
    """Print the text as another tool would have written it: 1.50 is 1.5, True is true."""
    number = f"regexp_full_match({text}, '[+-]?[0-9]+[.][0-9]*')"
    return f"lower(CASE WHEN {number} THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END)"


def _may_name(connection: duckdb.DuckDBPyConnection, place: int) -> bool:
    cell = f"n{place}"
    guess = _one(connection, f"SELECT approx_count_distinct({cell}), count({cell}) FROM plain")
    if guess[0] < (_NEAR_UNIQUE - 0.2) * guess[1]:
        return False
    whole = (
        f"TRY_CAST(CASE WHEN regexp_full_match({cell}, '[0-9]{{1,18}}') THEN {cell} END AS BIGINT)"
    )
    distinct, filled, numbers, low, high = _one(
        connection,
        f"SELECT count(DISTINCT {cell}), count({cell}), count({whole}),"
        f" coalesce(min({whole}), 0), coalesce(max({whole}), 0) FROM plain",
    )
    is_run = numbers == filled and high - low + 1 == distinct
    return distinct >= _DISTINCT and distinct >= _NEAR_UNIQUE * filled and not is_run


@dataclass(frozen=True)
class _Marked:
    """A set of texts to be hashed: which, with what number beside each, under what tag."""

    text: str
    number: str
    where: str
    tag: str


def _rows(connection: duckdb.DuckDBPyConnection, width: int, salt: str) -> Fingerprint:
    cells = ", ".join(f"coalesce(strlen(n{i}) || '=' || n{i}, '-')" for i in range(width))
    row = f"array_to_string(list_sort([{cells}]), ',')"
    return _smallest(connection, _Marked(row, "count(*)", "true", "sketch-row"), salt)


def _column(connection: duckdb.DuckDBPyConnection, place: int, salt: str) -> Fingerprint:
    cell = f"n{place}"
    return _smallest(connection, _Marked(cell, "0", f"{cell} <> ''", "sketch-cell"), salt)


def _smallest(connection: duckdb.DuckDBPyConnection, marked: _Marked, salt: str) -> Fingerprint:
    marks = connection.execute(
        f"SELECT mark, {marked.number} FROM ("
        f"SELECT {secret_number(marked.tag, marked.text)} AS mark FROM plain"
        f" WHERE {marked.where}) GROUP BY mark ORDER BY mark LIMIT {KEPT}",
        [salt],
    ).fetchall()
    return Fingerprint(tuple((int(mark), int(count)) for mark, count in marks))


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    found = connection.execute(sql).fetchone()
    return tuple(int(number) for number in found or ())
