"""The moments of scaled columns, as one question, and the matrix that they are released as.

With u = (1, z1, ..., zp, t), t being y scaled, the matrix is the sum of u u' over the rows. Each
released number stands in it with a public pattern, so the noise of every entry is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from sfumato.client.answer import Answer
from sfumato.client.query_builder import Builder
from sfumato.features.regression.logistic_curve import Floats
from sfumato.features.regression.scaled_columns import Model, Scaled, literally
from sfumato.query.expression import Arithmetic, Clamp, Constant, Expr

LAPLACE_95 = 2.12  # stds that hold 95 % of any sum of Laplace noises: ln(20) / sqrt(2), rounded up
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Moment:
    """One sum of the question: its name, what it adds up, and where it stands in the matrix."""

    name: str
    of: Expr | None
    pattern: Floats


def moments(model: Model) -> list[Moment]:
    """Return every moment; a square is counted from its middle, which halves its noise."""
    every = [*model.xs, model.y]
    size = len(every) + 1
    rows = np.diag([1.0, *(1.0 if c.is_boolean else 0.5 for c in every)])
    made = [Moment("rows", None, rows)]
    for i, column in enumerate(every, 1):
        made.append(Moment(f"z{i}", column.centred, _pattern(size, 0, i) / float(column.reach)))
    for i, one in enumerate(every, 1):
        if not one.is_boolean:
            pattern = _pattern(size, i, i) / float(one.reach**2)
            made.append(Moment(f"z{i}z{i}", _square(one), pattern))
        for j, other in enumerate(every[i:], i + 1):
            of = Arithmetic("*", one.centred, other.centred)
            pattern = _pattern(size, i, j) / float(one.reach * other.reach)
            made.append(Moment(f"z{i}z{j}", of, pattern))
    return made


def _pattern(size: int, i: int, j: int) -> Floats:
    made = np.zeros((size, size))
    made[i, j] = made[j, i] = 1.0
    return made


def _square(column: Scaled) -> Expr:
    """Return the square less half of its largest; the clamp never bites, it says what is known."""
    most = column.reach**2
    square = Arithmetic("*", column.centred, column.centred)
    known = Clamp(square, Constant.of(0), Constant.of(most))
    return Arithmetic("-", known, literally(most / 2))


def moments_question(model: Model) -> Builder:
    """Return the question of all moments."""
    return model.asking([(moment.name, moment.of) for moment in moments(model)])


@dataclass(frozen=True)
class Matrix:
    """The released matrix: its entries, and for each moment what one std of its noise adds."""

    entries: Floats
    noises: tuple[Floats, ...]

    @property
    def rows(self) -> float:
        """Return how many complete rows there are, as released; one at least."""
        return max(float(self.entries[0, 0]), 1.0)

    @property
    def mean(self) -> Floats:
        """Return the mean of every column but the first."""
        return np.asarray(self.entries[0, 1:] / self.rows, np.float64)

    def covariance(self, count: int) -> Floats:
        """Return the covariance of the first columns."""
        mean = self.mean[:count]
        inner = self.entries[1 : count + 1, 1 : count + 1] / self.rows
        return np.asarray(inner - np.outer(mean, mean), np.float64)

    def blur(self, count: int) -> float:
        """Return how far the noise moves the covariance, as the root of its expected square sum."""
        total = 0.0
        for noise in self.noises:
            mean, first = self.mean[:count], noise[0, 1 : count + 1]
            moved = noise[1 : count + 1, 1 : count + 1] - np.outer(mean, first)
            moved = moved - np.outer(first, mean) + noise[0, 0] * np.outer(mean, mean)
            total += float((moved**2).sum())
        return float(np.sqrt(total) / self.rows)


def matrix_of(model: Model, answer: Answer) -> Matrix:
    """Return the matrix that the answer is."""
    values, stds = named(answer)
    every = moments(model)
    entries = sum(values[m.name] * m.pattern for m in every)
    return Matrix(np.asarray(entries, np.float64), tuple(stds[m.name] * m.pattern for m in every))


def named(answer: Answer) -> tuple[dict[str, float], dict[str, float]]:
    """Return the one row of an answer by name: values, and the std of their noise."""
    row = cast("Sequence[float]", answer.rows[0])
    stds = cast("Sequence[float]", answer.std[0])
    pairs = zip(answer.columns, row, stds, strict=True)
    by_name = [(name, float(value), float(std)) for name, value, std in pairs]
    return {n: v for n, v, _ in by_name}, {n: s for n, _, s in by_name}


def stds_for_95(answers: Sequence[Answer]) -> float:
    """Return how many stds hold 95 %, by the kinds of noise."""
    laplace = any("laplace" in str(answer.receipt["mechanism"]) for answer in answers)
    return LAPLACE_95 if laplace else NORMAL_95
