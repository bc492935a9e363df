"""What a recoded table is still good for: how coarse it is, and what a model still learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.core.crowd.coded import Bits, Codes, Floats, Table
from sfumato.core.crowd.recoded import Recoded, class_sizes

_FOLDS = 5


@dataclass(frozen=True)
class Utility:
    """Figures of a recoding; of all but `classes`, smaller is better."""

    loss: float  # normalised certainty penalty, from 0 to 1
    discernibility: int  # sum over rows of how many look alike; one left out: all rows
    mean_class: float  # rows per class
    mean_class_per_k: float  # the same over k: 1 is the best there can be
    classes: int
    suppressed: int


@dataclass(frozen=True)
class Learnt:
    """How often a model is right: before, after, and by the commonest answer alone."""

    before: float
    after: float
    guessing: float


def utility_of(before: Table, after: Recoded, quasi: Sequence[str]) -> Utility:
    """Return the figures of the recoding."""
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
    """Return how well the answer is told from the quasi-identifiers, before and after.

    The model is a naive Bayes over categories, trained on four fifths of the rows and tried on the
    rest, five times. Every row of the original is tried: one that was left out after gets the
    commonest answer.
    """
    truth = before.of([answer])[0]
    fold = np.arange(before.rows) % _FOLDS
    first = _right(before, quasi, (truth.codes, len(truth.values)), fold)
    kept = np.zeros(before.rows, bool)
    kept[after.kept] = True
    common = np.bincount(truth.codes, minlength=1).argmax() if before.rows else 0
    later = np.asarray(truth.codes == common)
    held = (truth.codes[after.kept], len(truth.values))
    later[after.kept] = _right(after.table, quasi, held, fold[after.kept])
    weight, people = before.weight, max(1, before.people)
    return Learnt(
        float(first @ weight) / people,
        float(later @ weight) / people,
        float((truth.codes == common) @ weight) / people,
    )


def _right(table: Table, quasi: Sequence[str], truth: tuple[Codes, int], fold: Codes) -> Bits:
    right = np.zeros(table.rows, bool)
    for part in range(_FOLDS):
        test = fold == part
        right[test] = _guessed(table, quasi, truth, test) == truth[0][test]
    return right


def _guessed(table: Table, quasi: Sequence[str], truth: tuple[Codes, int], test: Bits) -> Codes:
    answers, count = truth
    weight, train = table.weight, ~test
    prior = np.bincount(answers[train], weight[train], minlength=count) + 1.0
    score: Floats = np.tile(np.log(prior / prior.sum()), (int(test.sum()), 1))
    for column in table.of(quasi):
        values = max(1, len(column.values))
        key = column.codes[train] * count + answers[train]
        found = (
            np.bincount(key, weight[train], minlength=values * count).reshape(values, count) + 1.0
        )
        score += np.log(found / found.sum(axis=0))[column.codes[test]]
    best: Codes = score.argmax(axis=1)
    return best
