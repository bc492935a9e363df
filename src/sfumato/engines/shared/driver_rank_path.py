"""The rank path on PostgreSQL and Spark: bound contributions by stored ranks instead of sorting.

It serves the most common query: one grouping key and no filter. Let the key be column 3. Rows are
grouped by its codes `k3`, or by its private texts `v3`. Then `g3` is the rank of a row's cell among
the person's cells. `n3` is the rank of the row among the person's rows in that cell. Both ranks use
the secret order of query/printing/statements.py.

The ranks of a key serve only the grouping by exactly that key (soundness rule 10). Queries with a
filter or clamped sums use driver_cold_path.py.
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
    """What a copied table stores for the rank path: ranked columns, and if rows are packed."""

    ranked: tuple[int, ...]  # indexes of columns with declared keys
    texts: tuple[int, ...]  # indexes of columns of private texts
    is_packed: bool  # whether the engine can return rows as packed integers

    @staticmethod
    def read(shape: Any, is_ours: bool) -> Stored:  # from our own marker file
        """Return a table's ranked columns from its entry in the marker file.

        `is_ours` says whether the ranks were made with our salt. Ranks of another salt are not
        used.
        """
        packed = bool(shape.get("packed", False))
        if not is_ours:
            return Stored((), (), packed)
        return Stored(tuple(shape["ranked"]), tuple(shape.get("texts", ())), packed)


def stored_place(measure: Measure, stored: Stored) -> int | None:
    """Return the index of the column whose stored ranks fit a measure's GROUP BY, or None.

    There is none if the measure has joins or several keys, or if the copy has no such ranks.
    """
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
    """Return the index of the column whose ranks alone answer a measure; None if there is none.

    A filter or a clamped sum needs more than ranks.
    """
    if measure.selected_keys is not None:
        return None
    if measure.where is not None or any(not _is_served(tally) for tally in measure.tallies):
        return None
    return stored_place(measure, stored)


def _is_served(tally: Tally) -> bool:
    return tally.kind in _SERVED and tally.clamp is None


def by_ranks(measure: Measure, place: int, dialect: Dialect, table: str) -> Statement:
    """Return the SQL statement that answers a measure by stored ranks, without sorting."""
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
    if tally.value is None:  # a person who counts in a cell has exactly one row of rank 1 there
        return "count(CASE WHEN nth = 1 THEN 1 END)"
    column = f"w{values.index(tally.value)}"
    if tally.kind == "values":
        return f"count({column})"
    summed = f"coalesce({wide_sum(column, dialect)}, 0)"
    return linear(tally, summed, f"count({column})", dialect)
