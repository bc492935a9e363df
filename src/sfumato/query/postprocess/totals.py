"""Totals over the answer's rows, such as SUM(COUNT(*)) OVER (): free post-processing.

A total sums all rows of the answer, before LIMIT and in any order. It can't be combined with
HAVING. SQL would sum the rows that HAVING keeps, and their own noise selects these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import Floats
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.expression import Expr, Predicate, Ref, Total, walk
from sfumato.query.model import Aggregate, Formula, Query

Columns = Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class Rows:
    """The answer rows that a total sums; `group` holds the number of each row's group.

    Rows of one group have the same values of the total's keys.
    """

    group: NDArray[np.int64]
    each_stands_for: int = 1  # in a prediction, each row represents this many equal rows

    def added(self, values: Floats) -> Floats:
        """Return, for each answer row, the sum of the values over all rows of its group."""
        sums = np.bincount(self.group, weights=values) * self.each_stands_for
        return np.asarray(sums[self.group])

    def each(self, made: Callable[[int], float]) -> Floats:
        """Apply `made` to the number of rows in a group, and return the result for each row."""
        sizes = np.bincount(self.group) * self.each_stands_for
        known = {size: made(size) for size in np.unique(sizes).tolist() if size}
        return np.array([known[size] for size in sizes[self.group].tolist()])


def totals_in(expr: Expr | Predicate) -> tuple[Total, ...]:
    """Return the distinct totals (sums over the answer's rows) in the expression."""
    return tuple(dict.fromkeys(part for part in walk(expr) if isinstance(part, Total)))


def rows_of_totals(expr: Expr, columns: Columns) -> dict[Total, Rows]:
    """Return, for each total in the formula, which answer rows it sums, grouped by its keys."""
    return {total: _rows(total, columns) for total in totals_in(expr)}


def _rows(total: Total, columns: Columns) -> Rows:
    keys = [columns[name] for name in total.by]
    count = len(columns[total.of.column]) if isinstance(total.of, Ref) else 0
    cells = list(zip(*keys, strict=True)) if keys else [()] * count
    places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
    return Rows(np.array([places[cell] for cell in cells], dtype=np.int64))


def with_totals(columns: Columns, rows: Mapping[Total, Rows]) -> dict[str, Sequence[object]]:
    """Return the answer's columns, with one more column for each total."""
    made = dict(columns)
    for total, of in rows.items():
        if isinstance(total.of, Ref):
            made[total.called] = _added(columns[total.of.column], of.group.tolist())
    return made


def _added(values: Sequence[object], group: Sequence[int]) -> list[object]:
    sums: dict[int, int | float] = {}
    for value, place in zip(values, group, strict=True):
        sums[place] = sums.get(place, 0) + (value if isinstance(value, int | float) else 0)
    return [sums[place] for place in group]


def check_totals(question: Query) -> None:
    """Refuse totals without known noise, totals by something that is no key, totals with HAVING."""
    formulas = [o.of.expr for o in question.outputs if isinstance(o.of, Formula)]
    having = () if question.having is None else (question.having,)
    totals = [total for expr in (*formulas, *having) for total in totals_in(expr)]
    if totals and question.having is not None:
        raise Refused(
            "not-in-language",
            "A total over the answer's rows cannot be combined with HAVING, because HAVING drops "
            "rows by their noisy values.",
            "Ask without HAVING, and drop rows yourself. The totals then cover all rows.",
        )
    for total in totals:
        _check(question, total)


def _check(question: Query, total: Total) -> None:
    by_name = {output.name: output.of for output in question.outputs}
    of = by_name.get(total.of.column) if isinstance(total.of, Ref) else None
    if not isinstance(of, Aggregate) or aggregate_of(of.verb).unit is None:
        raise Refused(
            "not-in-language",
            "A total over the answer's rows takes a count or a sum, and nothing else.",
            "Write SUM(COUNT(*)) OVER (), or SUM(SUM(x)) OVER (PARTITION BY a key).",
        )
    for name in total.by:
        if by_name.get(name) not in question.group_by:
            raise Refused(
                "unknown-column",
                f"A total (SUM ... OVER) can be split only by columns of GROUP BY, and {name!r} "
                "is not one.",
                "Name a column of GROUP BY in PARTITION BY, or add this column to GROUP BY.",
                column=name,
            )
