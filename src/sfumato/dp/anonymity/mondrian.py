"""Mondrian recoding (LeFevre 2006): split classes at the median of their widest column.

Values are ordered as in the domain of the column's hierarchy. A cell becomes the range from the
smallest to the largest value of its class. Each round splits all classes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.dp.anonymity.class_contents import contents_of
from sfumato.dp.anonymity.coded_table import Bits, Codes, Floats, Value, is_number
from sfumato.dp.anonymity.equivalence_classes import counted
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.global_recoding import judge, unreachable
from sfumato.dp.anonymity.recoding_task import Task

_NAMED: Final = 8  # most values that a cell lists; a longer range shows its first and last value


@dataclass(frozen=True)
class Halves:
    """The result of Mondrian recoding: the class of each distinct row, and each class's ranges.

    A range is the smallest and the largest index in the domain, for each class and column.
    """

    task: Task
    ids: Codes
    low: Codes  # classes x columns
    high: Codes

    @property
    def loss(self) -> float:
        """Return the information loss: the mean relative width of the range in all cells.

        It is the width of the range over that of the whole domain.
        """
        weights, wide = self.task.tuples.weights, np.zeros(self.task.tuples.rows)
        for axis, hierarchy in enumerate(self.task.hierarchies):
            wide += _width(hierarchy, self.low[:, axis], self.high[:, axis])[self.ids]
        columns = len(self.task.hierarchies) or 1
        return float(wide @ weights) / columns / max(1, self.task.people)

    def ranges_of(self, axis: int) -> Codes:
        """Return for each distinct row the code of its class's range in a column.

        `labels` gives the text of a code.
        """
        return np.unique(self._pairs(axis), axis=0, return_inverse=True)[1].ravel()[self.ids]

    def labels(self, axis: int) -> list[tuple[Value, str]]:
        """Return the value and the text for each code of a class range in a column.

        `ranges_of` gives the codes.
        """
        hierarchy = self.task.hierarchies[axis]
        pairs = np.unique(self._pairs(axis), axis=0).tolist()
        return [_label(hierarchy, low, high) for low, high in pairs]

    def _pairs(self, axis: int) -> Codes:
        return np.stack([self.low[:, axis], self.high[:, axis]], axis=1)


def divide(task: Task) -> Halves:
    """Split the rows by Mondrian (at medians) into classes that meet the privacy criteria.

    The splitting ends when every further split would give a class that fails the criteria.
    """
    rows = task.tuples.rows
    if not rows:
        nothing = np.zeros((0, len(task.hierarchies)), np.int64)
        return Halves(task, np.zeros(0, np.int64), nothing, nothing)
    whole = judge(task, task.top, 0)
    if not whole.is_reached:
        raise unreachable(task, whole)
    ids, open_classes = np.zeros(rows, np.int64), np.ones(1, bool)
    while open_classes.any():
        ids, open_classes = _halved(task, ids, open_classes)
    low, high = _ends(task, ids)
    return Halves(task, ids, low, high)


def _halved(task: Task, ids: Codes, open_classes: Bits) -> tuple[Codes, Bits]:
    """Split every open class (one that may still be split) by a column into two halves.

    The column is the widest one for which both halves meet the criteria.
    """
    count = len(open_classes)
    low, high = _ends(task, ids)
    widths = np.stack(
        [_width(h, low[:, a], high[:, a]) for a, h in enumerate(task.hierarchies)], axis=1
    )
    widths[~open_classes] = 0.0
    order = np.argsort(-widths, axis=1, kind="stable")
    upper, done = np.zeros(len(ids), bool), np.zeros(count, bool)
    for rank in range(len(task.hierarchies)):
        axis_of = order[:, rank]
        tried = ~done & (np.take_along_axis(widths, axis_of[:, None], 1)[:, 0] > 0)
        if not tried.any():
            continue
        half = _upper_half(task, ids, axis_of, tried)
        good = tried & _both_satisfy(task, ids, half, count)
        upper |= half & good[ids]
        done |= good
    _, numbers = np.unique(ids * 2 + upper, return_inverse=True)
    goes_on = np.zeros(int(numbers.max()) + 1, bool)
    goes_on[numbers] = done[ids]
    return numbers, goes_on


def _upper_half(task: Task, ids: Codes, axis_of: Codes, tried: Bits) -> Bits:
    """Return a mask of the rows in the upper half of their class, for the classes in `tried`.

    A class is cut at the median of the column that is chosen for it.
    """
    places = np.stack(task.tuples.places)[axis_of[ids], np.arange(len(ids))]
    order = np.lexsort((places, ids))
    weights = task.tuples.weights[order]
    running = np.cumsum(weights)
    starts = np.searchsorted(ids[order], np.arange(len(tried)))
    before = running[starts] - weights[starts]
    total = counted(ids, len(tried), task.tuples.weights)
    is_past = (running - before[ids[order]]) * 2 > total[ids[order]]
    median = np.full(len(tried), np.iinfo(np.int64).max)
    np.minimum.at(median, ids[order][is_past], places[order][is_past])
    least = np.full(len(tried), np.iinfo(np.int64).max)
    np.minimum.at(least, ids, places)
    upper: Bits = (places >= np.maximum(median, least + 1)[ids]) & tried[ids]
    return upper


def _both_satisfy(task: Task, ids: Codes, upper: Bits, count: int) -> Bits:
    halves = ids * 2 + upper
    sizes = counted(halves, 2 * count, task.tuples.weights)
    there = sizes > 0
    number = np.cumsum(there) - 1
    held = []
    if task.goal.needs_sensitive:
        held = [
            contents_of(number[halves], sizes[there], column, task.tuples.weights)
            for column in task.tuples.sensitive
        ]
    good = np.zeros(2 * count, bool)
    good[there] = ~task.goal.fails(sizes[there], held)
    return good[0::2] & good[1::2]


def _ends(task: Task, ids: Codes) -> tuple[Codes, Codes]:
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], np.arange(int(ids.max()) + 1))
    columns = [places[order] for places in task.tuples.places]
    low = [np.minimum.reduceat(places, starts) for places in columns]
    high = [np.maximum.reduceat(places, starts) for places in columns]
    return np.stack(low, axis=1), np.stack(high, axis=1)


def _width(hierarchy: Hierarchy, low: Codes, high: Codes) -> Floats:
    domain = hierarchy.domain
    if domain and all(is_number(value) for value in domain):
        sized = np.array([float(value) for value in domain])  # type: ignore[arg-type]  # numbers
        return np.asarray((sized[high] - sized[low]) / ((sized.max() - sized.min()) or 1.0))
    return np.where(high > low, (high - low + 1) / max(1, len(domain)), 0.0)


def _label(hierarchy: Hierarchy, low: int, high: int) -> tuple[Value, str]:
    domain, texts = hierarchy.domain, hierarchy.levels[0].labels
    if low == high:
        return domain[low], texts[low]
    if all(is_number(value) for value in domain[low : high + 1]):
        made = f"[{texts[low]}, {texts[high]}]"
    elif high - low < _NAMED:
        made = "{" + " | ".join(texts[low : high + 1]) + "}"
    else:
        made = f"{{{texts[low]} .. {texts[high]}}}"
    return made, made
