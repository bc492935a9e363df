"""The usual question, answered from stored places instead of sorting: one key, no filter.

`g3` is the place of a row's cell among the cells of its person when all rows are grouped by `k3`
alone, or by the private texts `v3`; `n3` the place of the row among its person's in that cell; both
in the secret order that query/printing/statements.py prints. Ranks of a key serve only the grouping
by exactly that key (soundness rule 10). A filter, or clamped sums, are another way's
(driver_cold_path.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sfumato.query.expression import Expr, Ref
from sfumato.query.measure import Measure, Tally
from sfumato.query.printing.expressions import Dialect, Text, filled, joined, print_expr
from sfumato.query.printing.statements import Statement, linear, wide_sum

_SERVED: Final = ("rows", "people", "values", "sum")


@dataclass(frozen=True)
class Stored:
    """Which columns of a copied table have stored places, and whether rows have theirs too."""

    ranked: tuple[int, ...]  # of declared keys
    texts: tuple[int, ...]  # of private texts
    is_packed: bool  # whether rows can be handed out as few numbers

    @staticmethod
    def read(shape: Any, is_ours: bool) -> Stored:  # of a file of our own
        """Return what the file says of a table; ranks serve only under the secret they have."""
        packed = bool(shape.get("packed", False))
        if not is_ours:
            return Stored((), (), packed)
        return Stored(tuple(shape["ranked"]), tuple(shape.get("texts", ())), packed)


def stored_place(measure: Measure, stored: Stored) -> int | None:
    """Return the column whose stored places are those of the measure's grouping, or None."""
    if measure.source is not None or not measure.by_person or measure.joins:
        return None
    if len(measure.keys) != 1:
        return None
    (key,) = measure.keys
    if not isinstance(key.value, Ref):
        return None
    letter, place = key.value.column[0], int(key.value.column[1:])
    if key.size is None:
        return place if letter == "v" and place in stored.texts else None
    return place if letter == "k" and place in stored.ranked else None


def ranked_place(measure: Measure, stored: Stored) -> int | None:
    """Return the column whose places answer the measure by themselves, or None."""
    if measure.wanted is not None:
        return None
    if measure.where is not None or any(not _is_served(tally) for tally in measure.tallies):
        return None
    return stored_place(measure, stored)


def _is_served(tally: Tally) -> bool:
    return tally.kind in _SERVED and tally.clamp is None


def by_ranks(measure: Measure, place: int, dialect: Dialect, table: str) -> Statement:
    """Return the statement that answers the measure from the stored places."""
    values = tuple(dict.fromkeys(t.value for t in measure.tallies if t.value is not None))
    name, key = ("cell", f"k{place}") if measure.is_public else ("g0", f"v{place}")
    columns = [Text(f"{key} AS {name}"), Text(f"n{place} AS nth")]
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
    sql = f"SELECT {name}{totals} FROM ({inner.sql}) AS kept GROUP BY {name}"
    return Statement(sql, inner.bound, tuple(range(len(measure.tallies))))


def _total(tally: Tally, values: tuple[Expr, ...], dialect: Dialect) -> str:
    if tally.kind == "rows":
        return "count(*)"
    if tally.value is None:  # whoever counts in a cell has one first row there
        return "count(CASE WHEN nth = 1 THEN 1 END)"
    column = f"w{values.index(tally.value)}"
    if tally.kind == "values":
        return f"count({column})"
    summed = f"coalesce({wide_sum(column, dialect)}, 0)"
    return linear(tally, summed, f"count({column})", dialect)
