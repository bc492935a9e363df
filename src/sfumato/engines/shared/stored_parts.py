"""Stored parts: sums per person and group, precomputed at preparation under the card's bounds.

Proof: engines/kernel/ranks.proof.md.

For a grouping column, say column 3, `parts3` has one row for each person and group that the card's
bounds let count. Its columns are `code`, `place` (the rank of the group among the person's groups)
and `n` (the number of rows that count). For each bounded number column, say column 1, it also has
`n1`, the number of non-null values, and `s1`, their sum in steps. `parts_all` is the same without a
grouping.

`firsts3` has the prefix sums of each part: the same numbers for the first 1, 2, ... rows, up to all
rows but the last. A query with a smaller `max_rows` uses the part itself if the part has no more
rows than that. Otherwise it uses the part's prefix of `max_rows` rows.

Stored parts serve a query without a filter that is grouped by exactly that column, or by nothing.
The query's contribution bounds must not exceed the card's.
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

_MAX_SUM: Final = 2**62  # bound of every stored sum, whatever the rows are
MAX_PREFIX_SUMS: Final = (
    24  # most prefix sums that are stored; each can have as many rows as the table
)


@dataclass(frozen=True)
class StoredPartsSpec:
    """Which sums are precomputed per person and group: contribution bounds and columns."""

    max_groups: int
    max_rows: int
    summed: tuple[int, ...]  # indexes of the columns with stored sums
    has_firsts: bool = False

    @property
    def least_rows(self) -> int:
        """Return the smallest `max_rows` of a query that precomputed sums can answer."""
        return 1 if self.has_firsts else self.max_rows


def parts_of(columns: Sequence[Column], max_groups: int, max_rows: int) -> StoredPartsSpec:
    """Return which sums to precompute per person and group of a table.

    Only the card decides it, never the rows.
    """
    summed = tuple(i for i, column in enumerate(columns) if _fits(column, max_rows))
    groupings = 1 + sum(column.keys is not None for column in columns)
    has_firsts = groupings * max(1, len(summed)) <= MAX_PREFIX_SUMS
    return StoredPartsSpec(max_groups, max_rows, summed, has_firsts)


def _fits(column: Column, max_rows: int) -> bool:
    if not (column.is_numeric and column.is_bounded):
        return False
    return max_rows * max(map(abs, column.bounds())) <= _MAX_SUM


def parts_name(column: int | None, table: int) -> str:
    """Return the name of the table of precomputed sums, grouped by a column or ungrouped."""
    return stored_name("parts_all" if column is None else f"parts{column}", table)


def prefix_sums_name(column: int | None, table: int) -> str:
    """Return the name of the table of prefix sums, grouped by a column or ungrouped."""
    return stored_name("firsts_all" if column is None else f"firsts{column}", table)


# --- written at preparation ----------------------------------------------------------------------


def write_parts(
    columns: Sequence[Column], parts: StoredPartsSpec, table: int, kind: str
) -> Iterator[str]:
    """Yield the CREATE TABLE statements of all precomputed sums; `kind` is a count's SQL type."""
    yield from _write(None, parts, table, kind)
    for i, column in enumerate(columns):
        if column.keys is not None:
            yield from _write(i, parts, table, kind)


def _write(column: int | None, parts: StoredPartsSpec, table: int, kind: str) -> Iterator[str]:
    yield _written_parts(column, parts, table, kind)
    if parts.has_firsts:
        yield _written_prefix_sums(column, parts, table, kind)


def _written_parts(column: int | None, parts: StoredPartsSpec, table: int, kind: str) -> str:
    totals = "".join(f", {text}" for text in _totals(parts, kind, ""))
    group = "" if column is None else f", gr{column}"
    code = "" if column is None else f", k{column}"
    return (
        f"CREATE TABLE {parts_name(column, table)} AS SELECT {_named(column)}"
        f"CAST(count(*) AS {kind}) AS n{totals} FROM {_counting(column, parts, table)}"
        f" GROUP BY person{group}{code} ORDER BY person{group}"
    )


def _written_prefix_sums(column: int | None, parts: StoredPartsSpec, table: int, kind: str) -> str:
    """Return the CREATE TABLE statement of a table of prefix sums, sorted by prefix length.

    A query reads one prefix length, so its rows are next to each other. The order changes no
    result, because integer sums do not depend on the order.
    """
    row = "rr" if column is None else f"rr{column}"
    group = "" if column is None else f", gr{column}"
    order = f"(PARTITION BY person{group} ORDER BY {row}"
    so_far = f" OVER {order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    totals = "".join(f", {text}" for text in _totals(parts, kind, so_far))
    return (
        f"CREATE TABLE {prefix_sums_name(column, table)} AS SELECT {_named(column)}{row}"
        f" AS n{totals}"
        f" FROM {_counting(column, parts, table)}"
        f" QUALIFY lead({row}) OVER {order}) IS NOT NULL ORDER BY {row}, person{group}"
    )


def _named(place: int | None) -> str:
    return "" if place is None else f"k{place} AS code, gr{place} AS place, "


def _totals(parts: StoredPartsSpec, kind: str, over: str) -> Iterator[str]:
    for i in parts.summed:
        yield f"CAST(count(v{i}){over} AS {kind}) AS n{i}"
        yield f"CAST(sum(v{i}){over} AS BIGINT) AS s{i}"


def _counting(place: int | None, parts: StoredPartsSpec, table: int) -> str:
    """Return the SQL FROM and WHERE that select the rows within the card's contribution bounds."""
    rows = table_name("duckdb", table)
    if place is None:
        return f"{rows} WHERE rr <= {parts.max_rows}"
    return f"{rows} WHERE rr{place} <= {parts.max_rows} AND gr{place} <= {parts.max_groups}"


# --- read by a query -----------------------------------------------------------------------------


def lower_parts(measure: Measure, parts: StoredPartsSpec, column: int | None) -> Statement | None:
    """Return the SQL that answers a measure by precomputed sums; None if they can't answer it.

    The caller passes only a measure that stored ranks can answer, grouped by the column `column` or
    by nothing.
    """
    few = min(measure.max_groups, measure.cells)
    if not parts.least_rows <= measure.max_rows <= parts.max_rows or few > parts.max_groups:
        return None
    texts = [_tally(tally, parts) for tally in measure.tallies]
    printed = [text for text in texts if text is not None]
    if len(printed) < len(texts):
        return None
    tallies = ", ".join(f"CAST({text} AS BIGINT) AS t{i}" for i, text in enumerate(printed))
    cell = "0" if column is None else "code"
    is_cut = few < min(parts.max_groups, measure.cells)
    where = f" WHERE place <= {few}" if is_cut else ""
    grouping = "" if column is None else f"{where} GROUP BY code"
    sql = (
        f"SELECT CAST({cell} AS BIGINT) AS cell, {tallies}"
        f" FROM {_source(measure, parts, column)}{grouping}"
    )
    return Statement(sql, (), tuple(range(len(texts))))


def _source(measure: Measure, parts: StoredPartsSpec, column: int | None) -> str:
    """Return the SQL table or subquery of a person's sums per group: full sums or prefix sums.

    It has one row per person and group.
    """
    whole, max_rows = parts_name(column, measure.table), measure.max_rows
    if max_rows == parts.max_rows:
        return whole
    return (
        f"(SELECT * FROM {whole} WHERE n <= {max_rows} UNION ALL"
        f" SELECT * FROM {prefix_sums_name(column, measure.table)} WHERE n = {max_rows}) AS p"
    )


def _tally(tally: Tally, parts: StoredPartsSpec) -> str | None:
    """Return SQL of a tally (sum or count) over precomputed sums; None if its column has none."""
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
    """Return the index of the column that is the tally's value; None for a computed value."""
    match tally.value:
        case Ref(column=name) if name.startswith("v"):
            return int(name[1:])
        case None:
            raise Bug("a tally lacks its value")
        case _:
            return None


def _sum(tally: Tally, column: int) -> str:
    """Return SQL of a sum over precomputed sums; clamp each person's sum if the tally says so.

    The sum of a person without values stays NULL.
    """
    if tally.clamp is None:
        total, count = f"coalesce(sum(s{column}), 0)", f"coalesce(sum(n{column}), 0)"
        return linear(tally, total, count, "duckdb")
    part = f"s{column}"
    if (tally.scale, tally.offset) != (1, 0):
        part = linear(tally, part, f"n{column}", "duckdb")
    low, high = tally.clamp  # LEAST and GREATEST ignore NULL, so CASE keeps a NULL part NULL
    kept = f"CASE WHEN s{column} IS NOT NULL THEN least(greatest({part}, {low}), {high}) END"
    return f"coalesce(sum({kept}), 0)"
