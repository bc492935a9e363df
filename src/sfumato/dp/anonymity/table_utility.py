"""Utility of a recoded table: information loss, and the accuracy of a classifier on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.dp.anonymity.coded_table import Bits, Codes, Column, Table
from sfumato.dp.anonymity.recoded_table import Recoded, class_sizes

_FOLDS = 5
_ANSWERS = 50  # most classes of the classifier


@dataclass(frozen=True)
class Utility:
    """Utility measures of a recoded table; smaller is better for all but `classes`."""

    loss: float  # normalised certainty penalty, from 0 to 1
    discernibility: int  # sum over rows of the class size; a suppressed row counts all rows
    mean_class: float  # rows per class
    mean_class_per_k: float  # rows per class divided by k; 1 is optimal
    classes: int
    suppressed: int


@dataclass(frozen=True)
class Learnt:
    """The accuracy of a classifier before and after recoding, and of always guessing the mode.

    The mode is the most frequent answer.
    """

    before: float
    after: float
    guessing: float


def utility_of(before: Table, after: Recoded, quasi: Sequence[str]) -> Utility:
    """Compute how much utility a recoded table has left, compared with the table before recoding.

    `quasi` names the quasi-identifiers.
    """
    sizes = class_sizes(after.table, quasi)
    rows, left = before.people, int(sizes.sum())
    k = int(sizes.min()) if len(sizes) else 0
    return Utility(
        loss=after.loss,
        discernibility=int((sizes * sizes).sum()) + (rows - left) * rows,
        mean_class=left / len(sizes) if len(sizes) else 0.0,
        mean_class_per_k=left / (len(sizes) * k) if k else 0.0,
        classes=len(sizes),
        suppressed=rows - left,
    )


def learnt(before: Table, after: Recoded, quasi: Sequence[str], answer: str) -> Learnt:
    """Compare how well a classifier predicts `answer` from the quasi-identifiers after recoding.

    The classifier is categorical naive Bayes with 5-fold cross-validation. Every original row is
    tested; for a suppressed row the prediction after recoding is the most frequent answer. If
    `answer` has more than 50 values, numbers are grouped into 50 quantiles. Other values keep
    the 49 most frequent ones, and all others form one class.
    """
    truth, count = _answers(before.of([answer])[0], before.weight)
    fold = np.arange(before.rows) % _FOLDS
    first = _right(before, quasi, (truth, count), fold)
    counts = np.bincount(truth, before.weight, minlength=1)
    later = np.asarray(truth == counts.argmax())
    guessed = later.copy()
    later[after.kept] = _right(after.table, quasi, (truth[after.kept], count), fold[after.kept])
    weight, people = before.weight, max(1, before.people)
    return Learnt(
        float(first @ weight) / people,
        float(later @ weight) / people,
        float(guessed @ weight) / people,
    )


def _answers(column: Column, weight: Codes) -> tuple[Codes, int]:
    """Return the class that a classifier should predict for each row, and the number of classes."""
    count = len(column.values)
    if count <= _ANSWERS:
        return column.codes, max(1, count)
    of_value = np.bincount(column.codes, weight, minlength=count)
    if column.is_ordered:
        before = np.cumsum(of_value) - of_value
        part = np.minimum(before * _ANSWERS // max(1.0, of_value.sum()), _ANSWERS - 1)
        return part.astype(np.int64)[column.codes], _ANSWERS
    small = np.full(count, _ANSWERS - 1, np.int64)
    small[np.argsort(-of_value, kind="stable")[: _ANSWERS - 1]] = np.arange(_ANSWERS - 1)
    return small[column.codes], _ANSWERS


def _right(table: Table, quasi: Sequence[str], truth: tuple[Codes, int], fold: Codes) -> Bits:
    right = np.zeros(table.rows, bool)
    for part in range(_FOLDS):
        test = fold == part
        right[test] = _guessed(table, quasi, truth, test) == truth[0][test]
    return right


def _guessed(table: Table, quasi: Sequence[str], truth: tuple[Codes, int], test: Bits) -> Codes:
    """Return the most probable answer of each test row, by naive Bayes on the other rows."""
    answers, count = truth
    weight, train = table.weight, np.flatnonzero(~test)
    train = train[np.argsort(answers[train], kind="stable")]
    ends = np.searchsorted(answers[train], np.arange(count + 1))
    best: Codes = np.zeros(int(test.sum()), np.int64)
    highest = np.full(len(best), -np.inf)
    columns = [(c.codes, max(1, len(c.values)), c.codes[test]) for c in table.of(quasi)]
    people = float(weight[train].sum())
    for answer in range(count):
        rows = train[ends[answer] : ends[answer + 1]]
        held = float(weight[rows].sum())
        score = np.full(len(best), math.log((held + 1.0) / (people + count)))
        for codes, values, tested in columns:
            found = np.bincount(codes[rows], weight[rows], minlength=values) + 1.0
            score += np.log(found / (held + values))[tested]
        better = score > highest
        best[better], highest[better] = answer, score[better]
    return best
