"""Tables of columns by name, how far rows are apart, and conditions that rows fulfil."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]  # numbers, texts or booleans
Table = Mapping[str, Column]
Bits = NDArray[np.bool_]
NUMBERS: Final = "iuf"  # kinds of numpy that are compared by size


@dataclass(frozen=True)
class Condition:
    """A column is equal to a value, or at least or at most it."""

    column: str
    sign: str  # "=", ">=" or "<="
    value: Any  # a number, a text or a boolean, as in the column

    def holds(self, table: Table) -> Bits:
        """Say of each row whether it fulfils the condition."""
        column = table[self.column]
        if self.sign == "=":
            return np.asarray(column == self.value)
        return np.asarray(column >= self.value if self.sign == ">=" else column <= self.value)


Predicate = tuple[Condition, ...]  # all of them


def fulfils(predicate: Predicate, table: Table) -> Bits:
    """Say of each row whether it fulfils all the conditions."""
    rows: Bits = np.logical_and.reduce([one.holds(table) for one in predicate])
    return rows


def is_number(column: Column) -> bool:
    """Say whether a column's values have a size."""
    return column.dtype.kind in NUMBERS


def rows_of(table: Table) -> int:
    """Return how many rows there are."""
    return len(next(iter(table.values())))


def taken(table: Table, places: NDArray[Any]) -> Table:
    """Return the rows at these places."""
    return {name: column[places] for name, column in table.items()}


def joined(one: Table, other: Table) -> Table:
    """Return the rows of both, one after the other."""
    return {name: np.concatenate([column, other[name]]) for name, column in one.items()}


def nearest(rows: Table, among: Table, columns: Sequence[str], count: int) -> NDArray[np.int64]:
    """Return the places of the nearest rows, nearest first, by Gower's distance (1971).

    Numbers differ by their distance over the column's range in both tables, all else by 0 or 1.
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
