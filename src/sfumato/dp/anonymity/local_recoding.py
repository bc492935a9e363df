"""Local recoding: generalise each equivalence class separately, top down, as little as possible.

All rows start in one class at the highest levels. Each round splits every class by one column, into
the groups of the next lower level. Groups that fail the criteria stay together at the old level.
Numpy splits all classes in one operation, so the number of rounds depends on the depth of the
hierarchies, not on the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sfumato.dp.anonymity.class_contents import Contents, contents_of
from sfumato.dp.anonymity.coded_table import Bits, Codes, Floats
from sfumato.dp.anonymity.equivalence_classes import counted
from sfumato.dp.anonymity.global_recoding import judge, unreachable
from sfumato.dp.anonymity.recoding_task import Task, Tuples


@dataclass(frozen=True)
class Cells:
    """The equivalence classes of a local recoding, with the level of each class per column.

    `ids` has the class of each distinct row.
    """

    ids: Codes
    levels: Codes  # classes x columns

    @property
    def count(self) -> int:
        """Return the number of equivalence classes."""
        return len(self.levels)


@dataclass(frozen=True)
class _Division:
    """A possible split of all equivalence classes by one column: the new groups and their gain."""

    group: Codes  # the group of each row; no two classes share a group
    is_rest: Bits  # rows that stay at the old level
    gain: Floats  # per class; minus infinity where the column cannot split it
    parts: Codes  # number of groups per class


def recode_locally(task: Task) -> Cells:
    """Generalise each equivalence class separately, as little as the search finds.

    All resulting classes meet the privacy criteria.
    """
    if not task.people:
        return Cells(np.zeros(0, np.int64), np.zeros((0, len(task.hierarchies)), np.int64))
    whole = judge(task, task.top, 0)
    if not whole.is_reached:
        raise unreachable(task, whole)
    cells = Cells(np.zeros(task.tuples.rows, np.int64), np.array([task.top], np.int64))
    totals = _totals(task)
    open_rows = np.arange(task.tuples.rows)
    while len(open_rows):
        cells, open_rows = _divided(task, cells, open_rows, totals)
    return tightened(task, cells)


def tightened(task: Task, cells: Cells) -> Cells:
    """Lower the levels of each class to the lowest at which its rows are still equal.

    The cells become more exact, and the classes stay the same.
    """
    return Cells(cells.ids, _lowest_levels(task, task.tuples, cells.ids, cells.count))


def _lowest_levels(task: Task, tuples: Tuples, ids: Codes, count: int) -> Codes:
    """Return for each class and column the lowest level at which all its rows are equal."""
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], np.arange(count))
    found = np.zeros((count, len(task.hierarchies)), np.int64)
    for axis, hierarchy in enumerate(task.hierarchies):
        places = tuples.places[axis][order]
        for level in range(hierarchy.height - 1):
            groups = hierarchy.levels[level].of_value[places]
            differ = np.minimum.reduceat(groups, starts) != np.maximum.reduceat(groups, starts)
            found[differ, axis] = level + 1
    return found


def losses(task: Task, cells: Cells) -> Floats:
    """Return the information loss of each distinct row: the mean penalty of its generalised cells.

    The penalty of a cell is 0 if the value is unchanged, and 1 at the most general label.
    """
    found = np.zeros(task.tuples.rows)
    for axis, hierarchy in enumerate(task.hierarchies):
        table = np.stack(hierarchy.losses)
        found += table[cells.levels[cells.ids, axis], task.tuples.places[axis]]
    return found / (len(task.hierarchies) or 1)


def loss_of(task: Task, cells: Cells) -> float:
    """Return the mean information loss of all rows of a local recoding."""
    return float(losses(task, cells) @ task.tuples.weights) / max(1, task.people)


def _totals(task: Task) -> list[Codes]:
    return [
        counted(column.codes, max(1, len(column.values)), task.tuples.weights)
        for column in task.tuples.sensitive
    ]


def _divided(
    task: Task, cells: Cells, open_rows: Codes, totals: list[Codes]
) -> tuple[Cells, Codes]:
    """Run one round of local recoding: split every open class once, if any split is allowed.

    An open class is one that can still be split. Return all classes, and the rows of the classes
    that are still open.
    """
    tuples = task.tuples.at(open_rows, task.tuples.weights[open_rows])
    classes, ids = np.unique(cells.ids[open_rows], return_inverse=True)
    levels = _lowest_levels(task, tuples, ids, len(classes))
    scores = np.full((len(task.hierarchies), len(classes)), -np.inf)
    made = []
    for axis in range(len(task.hierarchies)):
        one = _division(task, tuples, (ids, levels, axis), totals)
        made.append(one)
        scores[axis] = _score(one)
    chosen = scores.argmax(axis=0)
    goes_on = scores.max(axis=0) > 0
    return _applied(cells, open_rows, (ids, chosen, goes_on), (levels, made))


def _score(one: _Division) -> Floats:
    score: Floats = one.gain / np.log2(one.parts + 1.0)
    return score


def _division(
    task: Task, tuples: Tuples, at: tuple[Codes, Codes, int], totals: list[Codes]
) -> _Division:
    ids, levels, axis = at
    hierarchy, places = task.hierarchies[axis], tuples.places[axis]
    groups = np.stack([level.of_value for level in hierarchy.levels])
    level = levels[ids, axis]
    below = np.maximum(level - 1, 0)
    count = len(levels)
    key = ids * len(hierarchy.domain) + groups[below, places]
    _, child = np.unique(key, return_inverse=True)
    parent = np.zeros(child.max() + 1, np.int64)
    parent[child] = ids
    wrong = _fails(task, tuples, child, len(parent), totals)
    group, is_rest, wrong_rest = _with_rest(task, tuples, (ids, child, parent, wrong), totals)
    table = np.stack(hierarchy.losses)
    saved = (table[level, places] - table[below, places]) * tuples.weights * ~is_rest
    gain: Floats = np.bincount(ids, saved, minlength=count).astype(np.float64)
    parts = np.bincount(parent[~wrong], minlength=count) + 1
    gain[wrong_rest | (levels[:, axis] == 0)] = -np.inf
    return _Division(group, is_rest, gain, parts)


def _with_rest(
    task: Task, tuples: Tuples, at: tuple[Codes, Codes, Codes, Bits], totals: list[Codes]
) -> tuple[Codes, Bits, Bits]:
    """Merge the groups of each class that fail the criteria into one group: the rest of the class.

    If the rest fails too, the smallest group that meets the criteria joins it. Return the group of
    each row, a mask of rows in the rest, and a mask of classes that cannot be split.
    """
    ids, child, parent, wrong = at
    count = int(ids.max()) + 1
    groups = len(parent)
    is_rest = wrong[child]
    sizes = counted(child, groups, tuples.weights)
    group = np.where(is_rest, groups + ids, child)
    bad = _fails(task, tuples, group, groups + count, totals)[groups:]
    bad &= np.bincount(ids[is_rest], minlength=count) > 0
    if bad.any():
        smallest = _smallest_of(parent, sizes, ~wrong, count)
        taken = smallest[bad & (smallest >= 0)]
        joins = np.zeros(groups, bool)
        joins[taken] = True
        is_rest = is_rest | joins[child]
        wrong |= joins
        group = np.where(is_rest, groups + ids, child)
        bad = _fails(task, tuples, group, groups + count, totals)[groups:]
        bad &= np.bincount(ids[is_rest], minlength=count) > 0
    bad |= np.bincount(parent[~wrong], minlength=count) == 0
    return group, is_rest, bad


def _smallest_of(parent: Codes, sizes: Codes, allowed: Bits, count: int) -> Codes:
    """Return for each class its smallest group among those in the mask `allowed`, or -1 if none.

    `parent` has the class of each group.
    """
    places = np.flatnonzero(allowed)
    order = places[np.lexsort((sizes[places], parent[places]))]
    found = np.full(count, -1, np.int64)
    found[parent[order][::-1]] = order[::-1]
    return found


def _fails(task: Task, tuples: Tuples, ids: Codes, count: int, totals: list[Codes]) -> Bits:
    """Return which groups of rows fail the privacy criteria; empty groups do not fail.

    `totals` has the counts of sensitive values in the whole table, with which the criteria compare
    a group.
    """
    sizes = counted(ids, count, tuples.weights)
    wrong = sizes < task.goal.k
    if task.goal.needs_sensitive:
        there = sizes > 0
        number = np.cumsum(there) - 1
        held = [
            _against(contents_of(number[ids], sizes[there], column, tuples.weights), whole)
            for column, whole in zip(tuples.sensitive, totals, strict=True)
        ]
        wrong[there] |= task.goal.fails(sizes[there], held)
    return wrong & (sizes > 0)


def _against(of: Contents, whole: Codes) -> Contents:
    return replace(of, whole=whole)


def _applied(
    cells: Cells,
    open_rows: Codes,
    at: tuple[Codes, Codes, Bits],
    divided: tuple[Codes, list[_Division]],
) -> tuple[Cells, Codes]:
    """Split each class by the column that is best for it; return all classes and the open rows.

    Open rows are those whose class was just split, so that it may be split again.
    """
    ids, chosen, goes_on = at
    before, made = divided
    moves = goes_on[ids]
    rows, column = open_rows[moves], chosen[ids][moves]
    if not len(rows):
        return cells, rows
    picks = np.flatnonzero(moves)
    group = np.stack([one.group for one in made])[column, picks]
    is_rest = np.stack([one.is_rest for one in made])[column, picks]
    key = ids[moves] * (int(group.max()) + 1) + group
    _, first, new = np.unique(key, return_index=True, return_inverse=True)
    levels = before[ids[moves][first]]
    levels[np.arange(len(first)), column[first]] -= ~is_rest[first]
    numbers = cells.ids.copy()
    numbers[rows] = cells.count + new
    every = np.concatenate([cells.levels, levels])
    used, numbers = np.unique(numbers, return_inverse=True)
    return Cells(numbers, every[used]), rows
