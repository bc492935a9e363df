"""The usual question, answered from stored places instead of sorting: one public key, no filter.

`g3` is the place of a row's cell among the cells of its person when all rows are grouped by `k3`
alone, `n3` the place of the row among its person's in that cell; both in the secret order that
plan/lower.py prints. Ranks of a key serve only the grouping by exactly that key (rules.md, 10).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sfumato.core.expression import Expr, Ref
from sfumato.core.measure import Measure, Tally
from sfumato.plan.lower import WIDE, Statement, wide_sum
from sfumato.plan.print_values import Dialect, Text, filled, joined, print_expr

_SERVED: Final = ("rows", "people", "values", "sum")


def ranked_key(measure: Measure, ranked: Collection[int]) -> int | None:
    """Return the key whose ranks answer the measure, or None."""
    if measure.source is not None or not measure.by_person or measure.where is not None:
        return None
    if measure.joins:
        return None
    if len(measure.keys) != 1 or any(not _is_served(tally) for tally in measure.tallies):
        return None
    (key,) = measure.keys
    if key.size is None or not isinstance(key.value, Ref) or key.value.column[0] != "k":
        return None
    place = int(key.value.column[1:])
    return place if place in ranked else None


def _is_served(tally: Tally) -> bool:
    return tally.kind in _SERVED and tally.clamp is None


def by_ranks(measure: Measure, place: int, dialect: Dialect, table: str) -> Statement:
    """Return the statement that answers the measure from the stored places."""
    values = tuple(dict.fromkeys(t.value for t in measure.tallies if t.value is not None))
    columns = [Text(f"k{place} AS cell"), Text(f"n{place} AS nth")]
    columns += [
        filled(f"{{}} AS w{i}", print_expr(value, dialect)) for i, value in enumerate(values)
    ]
    inner = filled(
        f"SELECT {{}} FROM {table}"
        f" WHERE g{place} <= {measure.max_groups} AND n{place} <= {measure.max_rows}",
        joined(", ", columns),
    )
    totals = "".join(
        f", CAST({_total(tally, values, dialect)} AS BIGINT) AS t{i}"
        for i, tally in enumerate(measure.tallies)
    )
    sql = f"SELECT cell{totals} FROM ({inner.sql}) AS kept GROUP BY cell"
    return Statement(sql, inner.bound, tuple(range(len(measure.tallies))))


def _total(tally: Tally, values: tuple[Expr, ...], dialect: Dialect) -> str:
    if tally.kind == "rows":
        return "count(*)"
    if tally.value is None:  # whoever counts in a cell has one first row there
        return "count(CASE WHEN nth = 1 THEN 1 END)"
    column = f"w{values.index(tally.value)}"
    if tally.kind == "values":
        return f"count({column})"
    wide = WIDE[dialect]
    summed = wide_sum(column, dialect)
    scaled = f"CAST({tally.scale} AS {wide}) * coalesce({summed}, 0)"
    return f"{scaled} + CAST({tally.offset} AS {wide}) * count({column})"
