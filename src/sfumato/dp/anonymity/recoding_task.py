"""The input of a recoding: the distinct rows of a table, encoded by their hierarchies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from sfumato.dp.anonymity.class_contents import Contents, contents_of
from sfumato.dp.anonymity.coded_table import Codes, Column, Floats, Table
from sfumato.dp.anonymity.equivalence_classes import classes_of_keys, counted, key_of
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.refusal import Refused

Node = tuple[int, ...]  # a level for each quasi-identifier
_ROOM = 16  # keys are sorted if their range exceeds this many times the rows


@dataclass(frozen=True)
class Tuples:
    """The distinct rows of a table, by quasi-identifiers and sensitive columns, with weights."""

    places: tuple[Codes, ...]  # per quasi-identifier, the index in its hierarchy's domain
    sensitive: tuple[Column, ...]
    weights: Codes

    @property
    def rows(self) -> int:
        """Return the number of distinct rows of the table."""
        return len(self.weights)

    def at(self, rows: Codes, weights: Codes) -> Tuples:
        """Return the selected distinct rows; `weights` are their new weights."""
        places = tuple(codes[rows] for codes in self.places)
        return Tuples(places, tuple(column.at(rows) for column in self.sensitive), weights)


@dataclass(frozen=True)
class Task:
    """The input of a recoding: the hierarchies, the distinct rows of a table, and the criteria."""

    hierarchies: tuple[Hierarchy, ...]
    tuples: Tuples
    of_row: Codes  # for every row of the table, its index among the distinct rows
    goal: Goal

    @property
    def people(self) -> int:
        """Return the number of rows of the original table, weights included."""
        return int(self.tuples.weights.sum())

    @property
    def heights(self) -> Node:
        """Return the number of levels of each column's hierarchy."""
        return tuple(hierarchy.height for hierarchy in self.hierarchies)

    @property
    def top(self) -> Node:
        """Return the most general node: the highest level of every hierarchy."""
        return tuple(height - 1 for height in self.heights)

    def contents(self, tuples: Tuples, ids: Codes, sizes: Codes) -> list[Contents]:
        """Count the sensitive values in each class, to check criteria such as l-diversity.

        `ids` has the class of each distinct row. The list has an item per sensitive column; it is
        empty if k is the only criterion.
        """
        if not self.goal.needs_sensitive:
            return []
        return [contents_of(ids, sizes, one, tuples.weights) for one in tuples.sensitive]

    def loss_of(self, tuples: Tuples, node: Node) -> Floats:
        """Return the information loss of each row at a node: the mean penalty of its cells.

        The penalty of a cell is from 0 (unchanged) to 1 (the most general label). A node is a level
        for each column.
        """
        pairs = zip(self.hierarchies, node, tuples.places, strict=True)
        return sum((h.losses[level][codes] for h, level, codes in pairs), np.zeros(tuples.rows)) / (
            len(node) or 1
        )

    def classes(self, tuples: Tuples, node: Node) -> tuple[Codes, Codes]:
        """Return the class number of each row at a node, and the class sizes; no class is empty.

        A node is a level for each column.
        """
        columns = []
        for hierarchy, level, codes in zip(self.hierarchies, node, tuples.places, strict=True):
            step = hierarchy.levels[level]
            columns.append((codes if level == 0 else step.of_value[codes], len(step.labels)))
        columns = [column for column in columns if column[1] > 1]
        key = key_of(columns, tuples.rows)
        return grouped_by(key, prod(count for _, count in columns), tuples.weights)


def task_of(
    table: Table, hierarchies: Mapping[str, Hierarchy], sensitive: Sequence[str], goal: Goal
) -> Task:
    """Build the recoding task of a table, which must come to meet the privacy criteria `goal`.

    The columns with hierarchies are recoded.
    """
    if goal.needs_sensitive and not sensitive:
        raise Refused(
            "bad-request",
            f"The goal ({goal.in_words}) needs sensitive columns, and none is named.",
            "Name the sensitive columns, or ask for k alone.",
        )
    hidden = table.of(sensitive)
    columns = table.of(hierarchies)
    places = [h.codes_of(column) for h, column in zip(hierarchies.values(), columns, strict=True)]
    spans = [(codes, len(h.domain)) for codes, h in zip(places, hierarchies.values(), strict=True)]
    spans += [(column.codes, len(column.values)) for column in hidden]
    classes = classes_of_keys(key_of(spans, table.rows), table.weights)
    tuples = Tuples(
        tuple(codes[classes.first] for codes in places),
        tuple(column.at(classes.first) for column in hidden),
        classes.sizes,
    )
    return Task(tuple(hierarchies.values()), tuples, classes.of_row, goal)


def grouped_by(key: Codes, span: int, weights: Codes) -> tuple[Codes, Codes]:
    """Number the groups of rows with equal keys from 0, without gaps.

    Return the number of each row's group, and the group sizes. Keys are sorted only if they span a
    large range.
    """
    if span > _ROOM * len(key) + 1024:
        found = classes_of_keys(key, weights)
        return found.of_row, found.sizes
    sizes = counted(key, max(1, span), weights)
    taken = sizes > 0
    number = np.cumsum(taken) - 1
    return number[key], sizes[taken]
