"""Measures: the integers that an engine sums over prepared tables, without text from the asker.

Columns are physical (`v3`, `k3`, `u0`), numbers are whole steps, and dates and texts are bound
parameters. A cell is a group of the answer, and each row is in at most one cell. If all keys are
public, the keys number the cells. If a key is private, the engine returns the cells that exist,
with their keys, sealed until noise is added.
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
    """A count or sum that the engine computes for each cell (group of the answer).

    `rows` and `people` are counts. `values` counts the rows in which `value` is not NULL. `sum`
    adds up scale*value + offset over those rows; `clamp` clamps each person's sum per cell.
    `histogram` counts rows by their code in `value`, from 0 to size-1, and ignores other codes.
    `distinct` counts distinct values, at most `max_distinct` per person and cell.
    """

    kind: TallyKind
    value: Expr | None = None
    scale: int = 1
    offset: int = 0
    clamp: tuple[int, int] | None = None
    size: int = 0
    max_distinct: int = 0


@dataclass(frozen=True)
class Key:
    """A grouping key: a public code from 0 to size-1, or a private value (no size).

    A row is in no group if its code is NULL or out of range, or if its private value is NULL.
    """

    value: Expr
    size: int | None


@dataclass(frozen=True)
class PhysicalPersonTable:
    """A per-person table for the engine, with columns u0, u1, ... of a person's aggregates.

    It has one row for each person with at least one matching row.
    """

    where: Predicate | None
    columns: tuple[PhysicalPersonColumn, ...]
    max_rows: int

    @property
    def values(self) -> tuple[Expr | Predicate | None, ...]:
        """Return the table's condition, then each column's operand; None where there is none."""
        return (self.where, *(column.value for column in self.columns))


@dataclass(frozen=True)
class PhysicalPersonColumn:
    """A column of a per-person table: a count, sum, minimum or maximum of the person's rows."""

    kind: Literal["rows", "values", "sum", "min", "max"]
    value: Expr | None = None


@dataclass(frozen=True)
class Join:
    """A prepared table joined to the tables before it; its columns are numbered from `start`.

    For example, its column 2 has the number start+2 in the measure's `v` and `k`. The join is by
    the person if `looked_up` is None. Otherwise the value of a row's column `looked_up` equals
    column `key` of one public row. For each pair in `also`, the earlier column equals the table's
    own. Rows without a partner are dropped, unless `keeps_all`.
    """

    table: int
    start: int
    width: int
    looked_up: int | None = None
    key: int = 0
    keeps_all: bool = False
    also: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class PhysicalPersonJoin:
    """A further per-person table, joined by the person to the measure's source.

    The numbers of its columns continue those of the tables before it. People without a row in it
    are dropped, unless `keeps_all`.
    """

    source: PhysicalPersonTable
    table: int
    joins: tuple[Join, ...] = ()
    keeps_all: bool = False


@dataclass(frozen=True)
class Measure:
    """The counts and sums that an engine computes, after bounding each person's contribution."""

    where: Predicate | None
    keys: tuple[Key, ...]
    tallies: tuple[Tally, ...]
    by_person: bool
    max_groups: int
    max_rows: int
    source: PhysicalPersonTable | None = None
    table: int = 0  # index on the card of the table from which rows come
    joins: tuple[Join, ...] = ()
    # most rows of these tables, by the card; resource limits follow from it
    max_table_rows: int = 0
    selected_keys: tuple[tuple[Constant, ...], ...] | None = None  # only these private keys
    joined_person_tables: tuple[
        PhysicalPersonJoin, ...
    ] = ()  # further per-person tables; only with a source
    lookups: tuple[Join, ...] = ()  # public tables joined to it; columns numbered after the last u

    @property
    def is_public(self) -> bool:
        """Check whether every key is public; then the answer has every group, even an empty one."""
        return all(key.size is not None for key in self.keys)

    @property
    def cells(self) -> int:
        """Return the number of groups in the answer if every key is public, else 0."""
        count = 1
        for key in self.keys:
            count *= key.size or 0
        return count

    @property
    def without_histograms(self) -> Measure:
        """Return the measure without histograms: sums, and counts for partition selection."""
        kept = tuple(tally for tally in self.tallies if tally.kind != "histogram")
        return replace(self, tallies=kept)

    def histograms_of(self, keys: tuple[tuple[Constant, ...], ...]) -> Measure:
        """Return a measure of only the histograms, for these private keys in that order.

        The groups of a person are first bounded among all groups of the person. Otherwise a person
        could count in more of these groups because their other groups are not wanted (soundness
        rule 16).
        """
        kept = tuple(tally for tally in self.tallies if tally.kind == "histogram")
        return replace(self, tallies=kept, selected_keys=keys)


@dataclass(frozen=True)
class Cells:
    """The exact results of a measure: an array of integers for each tally, one entry per group.

    A histogram has one row of integers per group. Engines return this result sealed.
    """

    parts: tuple[Integers, ...]
    keys: tuple[tuple[object, ...], ...] | None = None  # the keys of each cell, if a key is private
