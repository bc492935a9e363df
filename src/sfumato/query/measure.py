"""What an engine is asked to add up: integers only, over a prepared table; no text of the asker's.

Columns are physical (`v3`, `k3`, `u0`), numbers are whole steps, dates and texts go in as bound
parameters. Each row carries at most one cell. Where all keys are public, cells are numbered by them
alone; where one is private, the cells that exist come back with their keys, sealed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.query.expression import Constant, Expr, Predicate

Integers = NDArray[np.int64]
TallyKind = Literal["rows", "values", "people", "sum", "histogram", "distinct"]


@dataclass(frozen=True)
class Tally:
    """One integer per cell, or for a histogram one per cell and code.

    rows and people are counted; values are rows in which `value` is not null; sum adds up
    scale*value + offset over those, each person's sum of a cell clamped if `clamp` says so;
    histogram counts rows by the code that `value` is (0 to size-1, else nobody's);
    distinct counts different values, at most `most` of a person and cell.
    """

    kind: TallyKind
    value: Expr | None = None
    scale: int = 1
    offset: int = 0
    clamp: tuple[int, int] | None = None
    size: int = 0
    most: int = 0


@dataclass(frozen=True)
class Key:
    """What rows are grouped by: a public code from 0 to size-1, or a private value (no size).

    A row whose code is null or outside, or whose private value is null, is in no cell.
    """

    value: Expr
    size: int | None


@dataclass(frozen=True)
class PerPerson:
    """One row for each person with a row that fits: u0, u1, ... are the tallies of their rows."""

    where: Predicate | None
    columns: tuple[Reduced, ...]
    max_rows: int

    @property
    def values(self) -> tuple[Expr | Predicate | None, ...]:
        """Return its condition and what its columns are of; nothing for what is of nothing."""
        return (self.where, *(column.value for column in self.columns))


@dataclass(frozen=True)
class Reduced:
    """A column of a per-person table: a count, sum, least or largest of the person's rows."""

    kind: Literal["rows", "values", "sum", "min", "max"]
    value: Expr | None = None


@dataclass(frozen=True)
class Join:
    """A prepared table beside those before it; its column 2 is the measure's `v` and `k` start+2.

    Rows of one person meet (`looked_up` is None), or a row meets the one public row whose column
    `key` equals its own column `looked_up`; and of each pair of `also`, the column before equals
    the table's own. Rows without a partner go, unless `keeps_all`.
    """

    table: int
    start: int
    width: int
    looked_up: int | None = None
    key: int = 0
    keeps_all: bool = False
    also: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class JoinPeople:
    """A further table with one row for each person, beside the measure's source.

    The person is equal; its columns are numbered on from those before. People without a row in it
    go, unless `keeps_all`.
    """

    source: PerPerson
    table: int
    joins: tuple[Join, ...] = ()
    keeps_all: bool = False


@dataclass(frozen=True)
class Measure:
    """Integers to be added up, with every person's part bounded before."""

    where: Predicate | None
    keys: tuple[Key, ...]
    tallies: tuple[Tally, ...]
    by_person: bool
    max_groups: int
    max_rows: int
    source: PerPerson | None = None
    table: int = 0  # which of the card's tables rows come from
    joins: tuple[Join, ...] = ()
    most_rows: int = 0  # that these tables may have by the card; what it may take follows from it
    wanted: tuple[tuple[Constant, ...], ...] | None = None  # of all private keys these alone
    beside: tuple[JoinPeople, ...] = ()  # only where there is a source
    lookups: tuple[Join, ...] = ()  # public tables beside it; their columns go on after the last u

    @property
    def is_public(self) -> bool:
        """Say whether every key is public, so that every cell is answered, empty ones too."""
        return all(key.size is not None for key in self.keys)

    @property
    def cells(self) -> int:
        """Return how many cells the answer has if every key is public."""
        count = 1
        for key in self.keys:
            count *= key.size or 0
        return count

    @property
    def counted(self) -> Measure:
        """Return all of it but the histograms: what private keys are chosen by, and their sums."""
        kept = tuple(tally for tally in self.tallies if tally.kind != "histogram")
        return replace(self, tallies=kept)

    def listed(self, keys: tuple[tuple[Constant, ...], ...]) -> Measure:
        """Return its histograms for these private keys alone, as cells in that order.

        A person's groups are chosen among all of theirs first, so that nobody is in more of them
        because their other groups are not wanted (soundness rule 16).
        """
        kept = tuple(tally for tally in self.tallies if tally.kind == "histogram")
        return replace(self, tallies=kept, wanted=keys)


@dataclass(frozen=True)
class Cells:
    """What was added up, always sealed: per tally one integer per cell (a histogram has rows)."""

    parts: tuple[Integers, ...]
    keys: tuple[tuple[object, ...], ...] | None = None  # per cell, if a key is private
