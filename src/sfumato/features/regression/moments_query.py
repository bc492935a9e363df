"""The query for all moments of scaled columns, and the moment matrix from its answer.

With u = (1, z1, ..., zp, t), where t is the scaled y, the matrix is the sum of u u' over the rows.
Each released number enters the matrix with a public pattern, so the noise of every entry is known.
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

# in stds, the half-interval that covers 95 % of any sum of Laplace noises: ln(20) / sqrt(2),
# rounded up
LAPLACE_95 = 2.12
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Moment:
    """One sum of the moments query: its name, its expression, and its pattern in the moment matrix.

    The pattern says which matrix entries the released number is part of.
    """

    name: str
    of: Expr | None
    pattern: Floats


def moments(model: Model) -> list[Moment]:
    """List every sum that the moment matrix needs, with its expression.

    Squares are centred at half their maximum, which halves the sensitivity and so the noise.
    """
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
    """Return the square of a column minus half its maximum.

    The clamp changes no value; it only tells the planner the bounds.
    """
    most = column.reach**2
    square = Arithmetic("*", column.centred, column.centred)
    known = Clamp(square, Constant.of(0), Constant.of(most))
    return Arithmetic("-", known, literally(most / 2))


def moments_question(model: Model) -> Builder:
    """Build the query that asks for all moments at once."""
    return model.asking([(moment.name, moment.of) for moment in moments(model)])


@dataclass(frozen=True)
class Matrix:
    """The released moment matrix, and its change by one std of noise in each moment."""

    entries: Floats
    noises: tuple[Floats, ...]

    @property
    def rows(self) -> float:
        """Return the released number of complete rows, at least 1."""
        return max(float(self.entries[0, 0]), 1.0)

    @property
    def mean(self) -> Floats:
        """Return the mean of every column except the constant."""
        return np.asarray(self.entries[0, 1:] / self.rows, np.float64)

    def covariance(self, count: int) -> Floats:
        """Return the covariance of the first `count` columns."""
        mean = self.mean[:count]
        inner = self.entries[1 : count + 1, 1 : count + 1] / self.rows
        return np.asarray(inner - np.outer(mean, mean), np.float64)

    def noise_norm(self, count: int) -> float:
        """Return the root mean square (Frobenius) error of the covariance that noise causes."""
        total = 0.0
        for noise in self.noises:
            mean, first = self.mean[:count], noise[0, 1 : count + 1]
            moved = noise[1 : count + 1, 1 : count + 1] - np.outer(mean, first)
            moved = moved - np.outer(first, mean) + noise[0, 0] * np.outer(mean, mean)
            total += float((moved**2).sum())
        return float(np.sqrt(total) / self.rows)


def matrix_of(model: Model, answer: Answer) -> Matrix:
    """Build the moment matrix from the released answer."""
    values, stds = named(answer)
    every = moments(model)
    entries = sum(values[m.name] * m.pattern for m in every)
    return Matrix(np.asarray(entries, np.float64), tuple(stds[m.name] * m.pattern for m in every))


def named(answer: Answer) -> tuple[dict[str, float], dict[str, float]]:
    """Return two mappings of a one-row answer: each column's value, and each column's noise std."""
    row = cast("Sequence[float]", answer.rows[0])
    stds = cast("Sequence[float]", answer.std[0])
    pairs = zip(answer.columns, row, stds, strict=True)
    by_name = [(name, float(value), float(std)) for name, value, std in pairs]
    return {n: v for n, v, _ in by_name}, {n: s for n, _, s in by_name}


def stds_for_95(answers: Sequence[Answer]) -> float:
    """Return the half-width of a 95 % interval in stds: larger if any answer has Laplace noise."""
    laplace = any("laplace" in str(answer.receipt["mechanism"]) for answer in answers)
    return LAPLACE_95 if laplace else NORMAL_95
