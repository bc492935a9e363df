"""Stored parts: each person's part of each cell, added up at preparation.

Proof: engines/kernel/ranks.proof.md.

`parts3` has a row for each person and group of column 3 that the card's own bounds let count:
`code`, `place` (the group's place among the person's), `n` (how many of the rows count), and of
each bounded number column 1 how many values those rows have (`n1`) and their sum in steps (`s1`).
`parts_all` is the same for no grouping. `firsts3` has what each part was on its way: a row for each
of its rows but the last, with the same numbers of the first 1, 2, ... rows. So the part of a
question that lets fewer rows count is a part, if it is no larger, or else one of its firsts.

They serve a question that lets no more count than the card, has no filter, and is grouped by
exactly that column: nothing that a person has is bounded then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Bug
from sfumato.query.expression import Ref
from sfumato.query.measure import Measure, Tally
from sfumato.query.printing.from_clause import stored_name, table_name
from sfumato.query.printing.statements import ADDED, Statement, linear
from sfumato.vault.card.columns import Column

_MOST: Final = 2**62  # no stored sum passes it, whatever the rows are
MOST_FIRSTS: Final = 24  # sums of firsts that are stored; they may be as many as there are rows


@dataclass(frozen=True)
class Parts:
    """What the card says of a table's stored parts: how they were bounded, and what they sum."""

    max_groups: int
    max_rows: int
    summed: tuple[int, ...]  # places of the columns with totals
    has_firsts: bool = False

    @property
    def least_rows(self) -> int:
        """Return the fewest rows of a person and group that they serve."""
        return 1 if self.has_firsts else self.max_rows


def parts_of(columns: Sequence[Column], max_groups: int, max_rows: int) -> Parts:
    """Return what is stored for a table of these columns; a function of the card alone."""
    summed = tuple(i for i, column in enumerate(columns) if _fits(column, max_rows))
    groupings = 1 + sum(column.keys is not None for column in columns)
    has_firsts = groupings * max(1, len(summed)) <= MOST_FIRSTS
    return Parts(max_groups, max_rows, summed, has_firsts)


def _fits(column: Column, max_rows: int) -> bool:
    if not (column.is_numeric and column.is_bounded):
        return False
    return max_rows * max(map(abs, column.bounds())) <= _MOST


def parts_name(place: int | None, table: int) -> str:
    """Return the name of the parts of a grouping by the column, or by nothing."""
    return stored_name("parts_all" if place is None else f"parts{place}", table)


def firsts_name(place: int | None, table: int) -> str:
    """Return the name of the firsts of a grouping by the column, or by nothing."""
    return stored_name("firsts_all" if place is None else f"firsts{place}", table)


# --- written at preparation ----------------------------------------------------------------------


def write_parts(columns: Sequence[Column], parts: Parts, table: int, kind: str) -> Iterator[str]:
    """Yield the statements that write a prepared table's parts; `kind` is the type of a place."""
    yield from _write(None, parts, table, kind)
    for i, column in enumerate(columns):
        if column.keys is not None:
            yield from _write(i, parts, table, kind)


def _write(place: int | None, parts: Parts, table: int, kind: str) -> Iterator[str]:
    yield _written_parts(place, parts, table, kind)
    if parts.has_firsts:
        yield _written_firsts(place, parts, table, kind)


def _written_parts(place: int | None, parts: Parts, table: int, kind: str) -> str:
    totals = "".join(f", {text}" for text in _totals(parts, kind, ""))
    group = "" if place is None else f", gr{place}"
    code = "" if place is None else f", k{place}"
    return (
        f"CREATE TABLE {parts_name(place, table)} AS SELECT {_named(place)}"
        f"CAST(count(*) AS {kind}) AS n{totals} FROM {_counting(place, parts, table)}"
        f" GROUP BY person{group}{code} ORDER BY person{group}"
    )


def _written_firsts(place: int | None, parts: Parts, table: int, kind: str) -> str:
    """Print how the firsts are written: those of one size side by side, for a question reads one.

    What lies beside what is nobody's part: whole numbers are added up in any order.
    """
    row = "rr" if place is None else f"rr{place}"
    group = "" if place is None else f", gr{place}"
    order = f"(PARTITION BY person{group} ORDER BY {row}"
    so_far = f" OVER {order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    totals = "".join(f", {text}" for text in _totals(parts, kind, so_far))
    return (
        f"CREATE TABLE {firsts_name(place, table)} AS SELECT {_named(place)}{row} AS n{totals}"
        f" FROM {_counting(place, parts, table)}"
        f" QUALIFY lead({row}) OVER {order}) IS NOT NULL ORDER BY {row}, person{group}"
    )


def _named(place: int | None) -> str:
    return "" if place is None else f"k{place} AS code, gr{place} AS place, "


def _totals(parts: Parts, kind: str, over: str) -> Iterator[str]:
    for i in parts.summed:
        yield f"CAST(count(v{i}){over} AS {kind}) AS n{i}"
        yield f"CAST(sum(v{i}){over} AS BIGINT) AS s{i}"


def _counting(place: int | None, parts: Parts, table: int) -> str:
    """Print the table and which of its rows the card lets count."""
    rows = table_name("duckdb", table)
    if place is None:
        return f"{rows} WHERE rr <= {parts.max_rows}"
    return f"{rows} WHERE rr{place} <= {parts.max_rows} AND gr{place} <= {parts.max_groups}"


# --- read by a question --------------------------------------------------------------------------


def lower_parts(measure: Measure, parts: Parts, place: int | None) -> Statement | None:
    """Return the statement that adds stored parts up, or None where they do not serve.

    The measure is one that stored ranks serve, grouped by the column `place` or by nothing.
    """
    few = min(measure.max_groups, measure.cells)
    if not parts.least_rows <= measure.max_rows <= parts.max_rows or few > parts.max_groups:
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
        f" FROM {_source(measure, parts, place)}{grouping}"
    )
    return Statement(sql, (), tuple(range(len(texts))))


def _source(measure: Measure, parts: Parts, place: int | None) -> str:
    """Print what has one row for each person and group: whole parts, or the first of their rows."""
    whole, few = parts_name(place, measure.table), measure.max_rows
    if few == parts.max_rows:
        return whole
    return (
        f"(SELECT * FROM {whole} WHERE n <= {few} UNION ALL"
        f" SELECT * FROM {firsts_name(place, measure.table)} WHERE n = {few}) AS p"
    )


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
    if tally.clamp is None:
        total, count = f"coalesce(sum(s{column}), 0)", f"coalesce(sum(n{column}), 0)"
        return linear(tally, total, count, "duckdb")
    part = f"s{column}"
    if (tally.scale, tally.offset) != (1, 0):
        part = linear(tally, part, f"n{column}", "duckdb")
    low, high = tally.clamp  # LEAST and GREATEST skip nulls, hence the guard
    kept = f"CASE WHEN s{column} IS NOT NULL THEN least(greatest({part}, {low}), {high}) END"
    return f"coalesce(sum({kept}), 0)"
