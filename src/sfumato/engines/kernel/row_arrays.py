"""Array types of the kernel: rows of a range of persons, and sums per cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.shared.cold_path import KernelPlan

SortKeys = NDArray[np.uint64]
Int64Array = NDArray[np.int64]
RowIndexes = NDArray[np.intp]
Columns = dict[str, NDArray[Any]]

INDEX_BITS: Final = 20  # bits of a row's index in its slice; a person has at most 10**6 rows
ORDER_BITS: Final = (
    24  # bits of the cell order; fixed, because a width that depends on data would link people
)
PERSON_BITS: Final = 64 - ORDER_BITS - INDEX_BITS  # bits of a person's number in a range
MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True)
class Rows:
    """Rows of a range of persons, sorted by person and row rank; persons are numbered from zero."""

    person: SortKeys
    # number of the row's cell, in value order; None if there is only one cell
    cell: Int64Array | None
    order: SortKeys | None  # order of the row's cell for its person; None if all cells are kept
    keys: tuple[NDArray[Any], ...]
    values: tuple[NDArray[Any], ...]

    def __len__(self) -> int:
        return len(self.person)

    def cut(self, begin: int, end: int) -> Rows:
        """Return a slice of the rows, with the persons numbered from zero again."""

        def some(column: NDArray[Any]) -> NDArray[Any]:
            return column[begin:end]

        return Rows(
            self.person[begin:end] - self.person[begin],
            None if self.cell is None else some(self.cell),
            None if self.order is None else some(self.order),
            tuple(map(some, self.keys)),
            tuple(map(some, self.values)),
        )


@dataclass(frozen=True)
class Part:
    """Partial sums over some persons: the keys of the groups, and one array of sums per tally."""

    keys: tuple[NDArray[Any], ...]
    tallies: tuple[Int64Array, ...]
    bounds: tuple[int, ...]  # per tally: an upper bound of any sum of its numbers


@dataclass(frozen=True)
class Summed:
    """Sum and count of a value column per person and group, and its overall minimum and maximum."""

    total: Int64Array
    count: Int64Array
    least: int
    largest: int


def must_choose_cells(cold: KernelPlan) -> bool:
    """Say whether a person may have more groups than `max_groups` lets count."""
    return cold.cells is None or cold.max_groups < cold.cells
