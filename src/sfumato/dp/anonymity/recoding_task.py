"""What a recoding works on: the different rows of a table by their places in the hierarchies."""

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
_ROOM = 16  # so many times the rows may a key span before it is sorted


@dataclass(frozen=True)
class Tuples:
    """Different rows, by quasi-identifiers and sensitive columns, and how many of each."""

    places: tuple[Codes, ...]  # per quasi-identifier, the place in its hierarchy's domain
    sensitive: tuple[Column, ...]
    weights: Codes

    @property
    def rows(self) -> int:
        """Return how many different rows there are."""
        return len(self.weights)

    def at(self, rows: Codes, weights: Codes) -> Tuples:
        """Return these rows with other weights."""
        places = tuple(codes[rows] for codes in self.places)
        return Tuples(places, tuple(column.at(rows) for column in self.sensitive), weights)


@dataclass(frozen=True)
class Task:
    """A table to be recoded: its hierarchies, its different rows, and which of them each row is."""

    hierarchies: tuple[Hierarchy, ...]
    tuples: Tuples
    of_row: Codes  # for every row of the table, its place among the different rows
    goal: Goal

    @property
    def people(self) -> int:
        """Return how many rows the table has."""
        return int(self.tuples.weights.sum())

    @property
    def heights(self) -> Node:
        """Return how many levels each hierarchy has."""
        return tuple(hierarchy.height for hierarchy in self.hierarchies)

    @property
    def top(self) -> Node:
        """Return the node that generalises most."""
        return tuple(height - 1 for height in self.heights)

    def contents(self, tuples: Tuples, ids: Codes, sizes: Codes) -> list[Contents]:
        """Return what the classes hold that is sensitive, if more than k is asked."""
        if not self.goal.needs_sensitive:
            return []
        return [contents_of(ids, sizes, one, tuples.weights) for one in tuples.sensitive]

    def loss_of(self, tuples: Tuples, node: Node) -> Floats:
        """Return how uncertain each of the rows becomes at the node: the mean over the columns."""
        pairs = zip(self.hierarchies, node, tuples.places, strict=True)
        return sum((h.losses[level][codes] for h, level, codes in pairs), np.zeros(tuples.rows)) / (
            len(node) or 1
        )

    def classes(self, tuples: Tuples, node: Node) -> tuple[Codes, Codes]:
        """Return the class of each of the rows at the node, and the sizes; none is empty."""
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
    """Return the task of recoding these columns, so that the table reaches the goal."""
    if goal.needs_sensitive and not sensitive:
        raise Refused(
            "bad-request",
            f"The goal ({goal.in_words}) is about sensitive columns, and none is named.",
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
    """Return small numbers for keys below `span`, and their sizes; by sorting only if need be."""
    if span > _ROOM * len(key) + 1024:
        found = classes_of_keys(key, weights)
        return found.of_row, found.sizes
    sizes = counted(key, max(1, span), weights)
    taken = sizes > 0
    number = np.cumsum(taken) - 1
    return number[key], sizes[taken]
