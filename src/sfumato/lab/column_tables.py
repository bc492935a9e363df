"""Store a table as columns by name, filter its rows, and find nearest rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]  # numbers, texts or booleans
Table = Mapping[str, Column]
Bits = NDArray[np.bool_]
NUMBERS: Final = "iuf"  # numpy kinds with an order: integers and floats


@dataclass(frozen=True)
class Condition:
    """A condition on the rows of a table: a column is equal to, at least, or at most a value."""

    column: str
    sign: str  # "=", ">=" or "<="
    value: Any  # a number, a text or a boolean, as in the column

    def holds(self, table: Table) -> Bits:
        """Return, for each row of a table, whether it fulfils the condition."""
        column = table[self.column]
        if self.sign == "=":
            return np.asarray(column == self.value)
        return np.asarray(column >= self.value if self.sign == ">=" else column <= self.value)


Predicate = tuple[Condition, ...]  # a predicate is a set of conditions, all of which must hold


def fulfils(predicate: Predicate, table: Table) -> Bits:
    """Return, for each row of a table, whether it fulfils all conditions of the predicate."""
    rows: Bits = np.logical_and.reduce([one.holds(table) for one in predicate])
    return rows


def is_number(column: Column) -> bool:
    """Return True if a column is numeric."""
    return column.dtype.kind in NUMBERS


def rows_of(table: Table) -> int:
    """Return the number of rows of a table."""
    return len(next(iter(table.values())))


def taken(table: Table, places: NDArray[Any]) -> Table:
    """Return the rows at these indices as a new table."""
    return {name: column[places] for name, column in table.items()}


def joined(one: Table, other: Table) -> Table:
    """Concatenate the rows of two tables."""
    return {name: np.concatenate([column, other[name]]) for name, column in one.items()}


def nearest(rows: Table, among: Table, columns: Sequence[str], count: int) -> NDArray[np.int64]:
    """Return, for each row, the indices of its `count` nearest rows in another table.

    The nearest row is first, by Gower's distance (1971). Numbers differ by their distance divided
    by the column's range in both tables. Other values differ by 0 or 1.
    """
    apart = np.zeros((rows_of(rows), rows_of(among)))
    for name in columns:
        apart += _apart(rows[name], among[name])
    places: NDArray[np.int64] = apart.argsort(axis=1, kind="stable")[:, :count]
    return places


def _apart(ours: Column, theirs: Column) -> NDArray[np.float64]:
    if not is_number(ours):
        return np.asarray(ours[:, None] != theirs[None, :], np.float64)
    low, high = min(ours.min(), theirs.min()), max(ours.max(), theirs.max())
    return np.asarray(np.abs(ours[:, None] - theirs[None, :]) / ((high - low) or 1), np.float64)
