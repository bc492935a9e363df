"""Stored parts: each person's part of each cell, added up at preparation (ranks.proof.md).

`parts3` has a row for each person and group of column 3 that the card's own bounds let count:
`code`, `place` (the group's place among the person's), `n` (how many of the rows count), and of
each bounded number column 1 how many values those rows have (`n1`) and their sum in steps (`s1`).
`parts_all` is the same for no grouping. They serve a question that keeps the card's own `max_rows`,
has no filter, and is grouped by exactly that column: nothing that a person has is bounded then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.core.columns import Column
from sfumato.core.expression import Ref
from sfumato.core.measure import Measure, Tally
from sfumato.core.refusal import Bug
from sfumato.plan.lower import ADDED, Statement
from sfumato.plan.lower_from import stored_name, table_name

_MOST: Final = 2**62  # no stored sum passes it, whatever the rows are


@dataclass(frozen=True)
class Parts:
    """What the card says of a table's stored parts: how they were bounded, and what they sum."""

    max_groups: int
    max_rows: int
    summed: tuple[int, ...]  # places of the columns with totals


def parts_of(columns: Sequence[Column], max_groups: int, max_rows: int) -> Parts:
    """Return what is stored for a table of these columns; a function of the card alone."""
    summed = (i for i, column in enumerate(columns) if _fits(column, max_rows))
    return Parts(max_groups, max_rows, tuple(summed))


def _fits(column: Column, max_rows: int) -> bool:
    if not (column.is_numeric and column.is_bounded):
        return False
    return max_rows * max(map(abs, column.bounds())) <= _MOST


def parts_name(place: int | None, table: int) -> str:
    """Return the name of the parts of a grouping by the column, or by nothing."""
    return stored_name("parts_all" if place is None else f"parts{place}", table)


# --- written at preparation ----------------------------------------------------------------------


def write_parts(columns: Sequence[Column], parts: Parts, table: int, kind: str) -> Iterator[str]:
    """Yield the statements that write a prepared table's parts; `kind` is the type of a place."""
    totals = "".join(
        f", CAST(count(v{i}) AS {kind}) AS n{i}, CAST(sum(v{i}) AS BIGINT) AS s{i}"
        for i in parts.summed
    )
    source = f"CAST(count(*) AS {kind}) AS n{totals} FROM {table_name('duckdb', table)}"
    yield (
        f"CREATE TABLE {parts_name(None, table)} AS SELECT {source}"
        f" WHERE rr <= {parts.max_rows} GROUP BY person ORDER BY person"
    )
    for i, column in enumerate(columns):
        if column.keys is not None:
            yield (
                f"CREATE TABLE {parts_name(i, table)} AS SELECT k{i} AS code, gr{i} AS place,"
                f" {source} WHERE rr{i} <= {parts.max_rows} AND gr{i} <= {parts.max_groups}"
                f" GROUP BY person, gr{i}, k{i} ORDER BY person, gr{i}"
            )


# --- read by a question --------------------------------------------------------------------------


def lower_parts(measure: Measure, parts: Parts, place: int | None) -> Statement | None:
    """Return the statement that adds stored parts up, or None where they do not serve.

    The measure is one that stored ranks serve, grouped by the column `place` or by nothing.
    """
    few = min(measure.max_groups, measure.cells)
    if measure.max_rows != parts.max_rows or few > parts.max_groups:
        return None
    texts = [_tally(tally, parts) for tally in measure.tallies]
    printed = [text for text in texts if text is not None]
    if len(printed) < len(texts):
        return None
    tallies = ", ".join(f"CAST({text} AS BIGINT) AS t{i}" for i, text in enumerate(printed))
    cell = "0" if place is None else "code"
    is_cut = few < min(parts.max_groups, measure.cells)
    where = f" WHERE place <= {few}" if is_cut else ""
    grouping = "" if place is None else f"{where} GROUP BY code"
    sql = (
        f"SELECT CAST({cell} AS BIGINT) AS cell, {tallies}"
        f" FROM {parts_name(place, measure.table)}{grouping}"
    )
    return Statement(sql, (), tuple(range(len(texts))))


def _tally(tally: Tally, parts: Parts) -> str | None:
    """Print the tally over parts; None if they do not hold what it needs."""
    if tally.kind not in ADDED:
        return None
    if tally.kind == "people":
        return "count(*)"
    if tally.kind == "rows":
        return "coalesce(sum(n), 0)"
    column = _column(tally)
    if column not in parts.summed:
        return None
    if tally.kind == "values":
        return f"coalesce(sum(n{column}), 0)"
    return _sum(tally, column)


def _column(tally: Tally) -> int | None:
    """Return which column the tally's value is exactly."""
    match tally.value:
        case Ref(column=name) if name.startswith("v"):
            return int(name[1:])
        case None:
            raise Bug("a tally lacks its value")
        case _:
            return None


def _sum(tally: Tally, column: int) -> str:
    """Print the sum in 128 bits, each part clamped; a part without values is null and stays so."""
    scale, offset = (f"CAST({number} AS HUGEINT)" for number in (tally.scale, tally.offset))
    if tally.clamp is None:
        return f"{scale} * coalesce(sum(s{column}), 0) + {offset} * coalesce(sum(n{column}), 0)"
    part = f"s{column}"
    if (tally.scale, tally.offset) != (1, 0):
        part = f"{scale} * s{column} + {offset} * n{column}"
    low, high = tally.clamp  # LEAST and GREATEST skip nulls, hence the guard (stack.md, 1.4)
    kept = f"CASE WHEN s{column} IS NOT NULL THEN least(greatest({part}, {low}), {high}) END"
    return f"coalesce(sum({kept}), 0)"
