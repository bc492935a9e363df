"""What the kernel's parts hand to each other: words, places, rows and sums of some persons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.shared.cold_path import Cold

Words = NDArray[np.uint64]
Whole = NDArray[np.int64]
Places = NDArray[np.intp]
Columns = dict[str, NDArray[Any]]

PLACE_BITS: Final = 20  # a row's place in its range; a person has at most 10**6 rows
ORDER_BITS: Final = 24  # a cell's place in its person's order: fixed, or widths would couple people
PERSON_BITS: Final = 64 - ORDER_BITS - PLACE_BITS  # a person's number in their range
MOST: Final = 2**63 - 1


@dataclass(frozen=True)
class Rows:
    """The rows of some persons, in order of person and place; persons are counted from zero."""

    person: Words
    cell: Whole | None  # tells cells apart, in value order; None if there is one
    order: Words | None  # of the row's cell among the person's; None if nothing is chosen
    keys: tuple[NDArray[Any], ...]
    values: tuple[NDArray[Any], ...]

    def __len__(self) -> int:
        return len(self.person)

    def cut(self, begin: int, end: int) -> Rows:
        """Return some of the rows; the first of them is of person zero again."""

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
    """What some persons add to each cell: the cells' keys, then one number for each tally."""

    keys: tuple[NDArray[Any], ...]
    tallies: tuple[Whole, ...]
    most: tuple[int, ...]  # per tally, what no sum of any of the numbers passes


@dataclass(frozen=True)
class Summed:
    """A value's sum and count in each of some cells, and its least and largest."""

    total: Whole
    count: Whole
    least: int
    largest: int


def chooses(cold: Cold) -> bool:
    """Say whether a person may have more cells than count."""
    return cold.cells is None or cold.max_groups < cold.cells
