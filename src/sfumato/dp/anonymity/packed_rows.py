"""The different rows of a table as few numbers each: what a search looks at again and again.

Several columns with few values are packed into one number, and at a node a small table says which
group each number is in. So a look takes one pass over the rows for each pack, not for each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from sfumato.dp.anonymity.class_contents import Contents
from sfumato.dp.anonymity.coded_table import Bits, Codes, Column, Floats
from sfumato.dp.anonymity.equivalence_classes import counted, key_of
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.recoding_task import Node, Task

_WIDE: Final = 4096  # numbers that a pack of several columns may have
_ROOM: Final = 16  # so many times the rows may a key span before it is sorted
_LARGEST: Final = 2**62


@dataclass(frozen=True)
class Pack:
    """Columns that are one number together."""

    axes: tuple[int, ...]
    hierarchies: tuple[Hierarchy, ...]

    def groups(self, node: Node) -> tuple[Codes, int]:
        """Return which group each number is in at the node, and how many groups there are."""
        groups, count = np.zeros(1, np.int64), 1
        for axis, hierarchy in zip(self.axes, self.hierarchies, strict=True):
            level = hierarchy.levels[node[axis]]
            groups = np.add.outer(groups * len(level.labels), level.of_value).ravel()
            count *= len(level.labels)
        return groups, count

    def losses(self, node: Node) -> Floats:
        """Return how uncertain each number becomes at the node, summed over the columns."""
        losses = np.zeros(1)
        for axis, hierarchy in zip(self.axes, self.hierarchies, strict=True):
            losses = np.add.outer(losses, hierarchy.losses[node[axis]]).ravel()
        return losses


@dataclass(frozen=True)
class PackedRows:
    """Different rows, and how many of each; rows of one task have the same packs."""

    packs: tuple[Pack, ...]
    numbers: tuple[Codes, ...]  # per pack
    secrets: tuple[Codes, ...]  # per sensitive column that the goal is about
    columns: tuple[Column, ...]  # those columns
    weights: Codes

    @property
    def rows(self) -> int:
        """Return how many different rows there are."""
        return len(self.weights)

    def loss_of(self, rows: Codes, node: Node) -> float:
        """Return what these rows lose by being left out at the node, summed over all columns."""
        columns = sum(len(pack.axes) for pack in self.packs)
        spared = np.zeros(len(rows))
        for pack, numbers in zip(self.packs, self.numbers, strict=True):
            spared += pack.losses(node)[numbers[rows]]
        return float((columns - spared) @ self.weights[rows]) / (columns or 1)

    def at(self, rows: Codes, weights: Codes) -> PackedRows:
        """Return these rows with other weights."""
        numbers = tuple(one[rows] for one in self.numbers)
        secrets = tuple(one[rows] for one in self.secrets)
        return PackedRows(self.packs, numbers, secrets, self.columns, weights)


@dataclass(frozen=True)
class Kinds:
    """Rows put together by a key: the key of every row, and of every kind, in order."""

    key: Codes
    span: int  # keys are below
    keys: Codes
    sizes: Codes
    names: Codes  # of every kind, the key that was given


@dataclass(frozen=True)
class Look:
    """Rows at a node: their classes, what these hold, and rows alike in that as well."""

    rows: PackedRows
    classes: Kinds
    contents: tuple[Contents, ...]  # of the sensitive columns
    alike: Kinds

    def outside(self, kept: Bits) -> Codes:
        """Return the rows of the classes that are not kept."""
        is_kept = np.zeros(self.classes.span, bool)
        is_kept[self.classes.keys] = kept
        return np.flatnonzero(~is_kept[self.classes.key])

    @property
    def merged(self) -> PackedRows:
        """Return one row for all of a class that are alike in what is sensitive."""
        anyone = np.zeros(self.alike.span, np.int64)
        anyone[self.alike.key] = np.arange(self.rows.rows)
        return self.rows.at(anyone[self.alike.keys], self.alike.sizes)


def packed_rows(task: Task) -> PackedRows:
    """Return the task's different rows, packed."""
    tuples = task.tuples
    packs, numbers = [], []
    for axes in _together([len(h.domain) for h in task.hierarchies], min(_WIDE, tuples.rows)):
        pack = Pack(axes, tuple(task.hierarchies[axis] for axis in axes))
        columns = [(tuples.places[axis], len(task.hierarchies[axis].domain)) for axis in axes]
        packs.append(pack)
        numbers.append(key_of(columns, tuples.rows))
    secret = tuples.sensitive if task.goal.needs_sensitive else ()
    codes = tuple(column.codes for column in secret)
    return PackedRows(tuple(packs), tuple(numbers), codes, secret, tuples.weights)


def look_at(rows: PackedRows, node: Node) -> Look:
    """Return the classes of the rows at the node."""
    classes = alike = _kinds(*_key(rows, node), rows.weights)
    contents = []
    for column, codes in zip(rows.columns, rows.secrets, strict=True):
        pairs = _beside(classes, column, codes, rows.weights)
        contents.append(_contents(classes, pairs, column))
        more = len(contents) > 1
        alike = _beside(alike, column, codes, rows.weights) if more else pairs
    return Look(rows, classes, tuple(contents), alike)


def _together(domains: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Return the columns in packs of at most so many numbers, or of one column."""
    packs: list[tuple[int, ...]] = []
    size = 0
    for axis, values in enumerate(domains):
        if packs and size * values <= most:
            packs[-1], size = (*packs[-1], axis), size * values
        else:
            packs, size = [*packs, (axis,)], values
    return packs


def _key(rows: PackedRows, node: Node) -> tuple[Codes, int]:
    """Return a key for the class of each row, and what keys are below."""
    grouped = [pack.groups(node) for pack in rows.packs]
    span = prod(count for _, count in grouped)
    if span > _LARGEST:
        columns = [(groups[n], c) for (groups, c), n in zip(grouped, rows.numbers, strict=True)]
        return key_of(columns, rows.rows), _LARGEST
    key, stride = np.zeros(rows.rows, np.int64), 1
    for (groups, count), numbers in zip(grouped, rows.numbers, strict=True):
        if count > 1:
            key += (groups * stride).take(numbers)
            stride *= count
    return key, span


def _beside(kinds: Kinds, column: Column, codes: Codes, weights: Codes) -> Kinds:
    """Return the kinds divided by what is sensitive."""
    values = max(1, len(column.values))
    return _kinds(kinds.key * values + codes, kinds.span * values, weights)


def _contents(classes: Kinds, pairs: Kinds, column: Column) -> Contents:
    values = max(1, len(column.values))
    of_key = pairs.names // values
    of_class = np.cumsum(np.diff(of_key, prepend=of_key[:1]) != 0)
    return Contents(
        classes.sizes, of_class, pairs.names % values, pairs.sizes, values, column.is_ordered
    )


def _kinds(key: Codes, span: int, weights: Codes) -> Kinds:
    """Return the kinds of rows by a key; by sorting only if need be."""
    if span > _ROOM * len(key) + 1024:
        names, small = np.unique(key, return_inverse=True)
        small, places = small.ravel(), np.arange(len(names))
        return Kinds(small, len(names), places, counted(small, len(names), weights), names)
    every = np.bincount(key, weights, minlength=span)
    keys: Codes = np.flatnonzero(every > 0)
    return Kinds(key, span, keys, every[keys].astype(np.int64), keys)
