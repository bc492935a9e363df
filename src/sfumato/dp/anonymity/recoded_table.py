"""Recode a table to meet privacy criteria: global recoding, local recoding or Mondrian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Column, Table, Value
from sfumato.dp.anonymity.equivalence_classes import classes_of
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.global_recoding import search
from sfumato.dp.anonymity.local_recoding import Cells, loss_of, recode_locally
from sfumato.dp.anonymity.mondrian import divide
from sfumato.dp.anonymity.privacy_criteria import Goal, kept_by
from sfumato.dp.anonymity.recoding_task import Node, Task, task_of

GUARANTEE = "k-anonymous (not DP)"


@dataclass(frozen=True)
class Recoded:
    """A recoded table, with generalised cells and without the suppressed rows.

    No row is added.
    """

    table: Table  # with every column, the quasi-identifiers generalised
    kept: Codes  # indices of its rows in the original table, in order
    method: str  # "global", "local" or "mondrian"
    goal: Goal
    loss: float  # normalised certainty penalty over all rows; a suppressed row counts as 1
    levels: Node | None = None  # of a global recoding
    nodes: int = 0  # nodes in the lattice of a global recoding
    looked: int = 0  # nodes that the search evaluated
    guarantee: str = GUARANTEE


@dataclass(frozen=True)
class RecodingSettings:
    """How a table is to be recoded: its quasi-identifiers' hierarchies, and the privacy criteria.

    It also names the sensitive columns.
    """

    hierarchies: Mapping[str, Hierarchy]
    goal: Goal
    sensitive: Sequence[str] = ()


def recode_globally(table: Table, way: RecodingSettings, suppress: float = 0.0) -> Recoded:
    """Recode a table globally: generalise whole columns, with the smallest possible loss.

    `suppress` is the largest share of rows that may be suppressed.
    """
    task = task_of(table, way.hierarchies, way.sensitive, way.goal)
    found = search(task, suppress)
    ids, sizes = task.classes(task.tuples, found.best.node)
    kept = kept_by(task.goal, sizes, task.contents(task.tuples, ids, sizes))
    rows = np.flatnonzero(kept[ids][task.of_row])
    levels = np.broadcast_to(np.array(found.best.node, np.int64), (len(sizes), len(task.heights)))
    return Recoded(
        _generalised(table, task, Cells(ids, levels), rows), rows, "global", way.goal,
        found.best.loss, found.best.node, found.nodes, found.looked,
    )  # fmt: skip


def recode_by_class(table: Table, way: RecodingSettings) -> Recoded:
    """Recode a table locally: generalise each class separately, as little as the search finds."""
    task = task_of(table, way.hierarchies, way.sensitive, way.goal)
    cells = recode_locally(task)
    rows = np.arange(table.rows)
    return Recoded(
        _generalised(table, task, cells, rows), rows, "local", way.goal, loss_of(task, cells)
    )


def recode_mondrian(table: Table, way: RecodingSettings) -> Recoded:
    """Recode a table by Mondrian: split classes at medians, and show ranges of values."""
    task = task_of(table, way.hierarchies, way.sensitive, way.goal)
    halves = divide(task)
    columns = dict(table.columns)
    for axis, hierarchy in enumerate(task.hierarchies):
        codes = halves.ranges_of(axis)[task.of_row]
        values, texts = zip(*halves.labels(axis), strict=True) if table.rows else ((), ())
        columns[hierarchy.name] = Column(hierarchy.name, codes, values, texts)
    made = Table(columns, table.rows, table.weights)
    return Recoded(made, np.arange(table.rows), "mondrian", way.goal, halves.loss)


def class_sizes(table: Table, quasi: Sequence[str]) -> Codes:
    """Return the number of rows in each equivalence class by the quasi-identifiers."""
    if not table.rows:
        return np.zeros(0, np.int64)
    return classes_of(table.of(quasi), table.rows, table.weights).sizes


def _generalised(table: Table, task: Task, cells: Cells, rows: Codes) -> Table:
    """Return the table of the rows that are not suppressed, with generalised cells.

    Each cell gets the label of its value at the level of its class.
    """
    columns = {name: column.at(rows) for name, column in table.columns.items()}
    of_row = task.of_row[rows]
    for axis, hierarchy in enumerate(task.hierarchies):
        level = cells.levels[cells.ids[of_row], axis]
        place = task.tuples.places[axis][of_row]
        columns[hierarchy.name] = _labelled(hierarchy, level, place)
    return Table(columns, len(rows), None if table.weights is None else table.weights[rows])


def _labelled(hierarchy: Hierarchy, level: Codes, place: Codes) -> Column:
    labels: dict[object, int] = {}
    values: list[Value] = []
    texts: list[str] = []
    made = np.zeros((hierarchy.height, max(1, len(hierarchy.domain))), np.int64)
    for number, step in enumerate(hierarchy.levels):
        whole = hierarchy.domain if number == 0 else step.labels
        codes = []
        for label, text in zip(whole, step.labels, strict=True):
            key = (isinstance(label, bool), label)
            if key not in labels:
                labels[key] = len(values)
                values.append(label)
                texts.append(text)
            codes.append(labels[key])
        made[number, : len(hierarchy.domain)] = np.array(codes, np.int64)[step.of_value]
    return Column(hierarchy.name, made[level, place], tuple(values), tuple(texts))
