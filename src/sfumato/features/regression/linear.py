"""Linear least squares from one query of noisy moments (soundness rule 20; decision 0005).

Let M + E be the released matrix, where E is the noise. The solution b and the true solution b*
satisfy (M + E)(b - b*) = e. Here e is the contribution of the noise to the residual moments at b*.
It is linear in the noise, so its std is known at b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.client.answer import Answer
from sfumato.client.ask_terms import FitPriceTerms, FitTerms
from sfumato.client.budget_shares import check_all_fits, shares
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.features.regression.fit_price import FitPrice, Stage, column_margins, fit_price
from sfumato.features.regression.fit_result import Fit, in_units
from sfumato.features.regression.logistic_curve import Floats
from sfumato.features.regression.moments_query import (
    Matrix,
    matrix_of,
    moments_question,
    stds_for_95,
)
from sfumato.features.regression.scaled_columns import Model, model_of
from sfumato.query.expression import Constant

# the ridge raises the covariance's least eigenvalue to at least so many times the noise norm
STEADY: Final = 2.0
ROWS_ALIKE: Final = (
    "The standard deviation of sampling assumes independent rows from one distribution. The ± "
    "covers the noise alone: not sampling, clamping or max_rows."
)


@dataclass(frozen=True)
class Solved:
    """The solution of a least squares fit: scaled coefficients, and the terms for their noise."""

    values: Floats
    inverse: Floats
    ridge: float
    strain: float  # noise norm / least eigenvalue, at most 1 / STEADY


def fit_linear(rows: Builder, y: str, xs: Sequence[str], terms: FitTerms) -> Fit:
    """Fit a linear model with one query; the same query again is free."""
    card = rows.target.card
    model = model_of(rows, card, y, xs)
    ridge = _ridge(terms)
    (share,) = shares(card, terms, [Fraction(1)])
    question = moments_question(model)
    answer = question.ask(epsilon=share.epsilon, delta=share.delta)
    return fitted(model, answer, ridge)


def price_linear(rows: Builder, y: str, xs: Sequence[str], terms: FitPriceTerms) -> FitPrice:
    """Return the price of a linear fit and its expected error; spends nothing."""
    card = rows.target.card
    model = model_of(rows, card, y, xs)
    _ridge(terms)
    (share,) = shares(card, terms, [Fraction(1)])
    stage = Stage("moments", moments_question(model), share)
    last = len(model.xs) + 1

    def margins(error: dict[str, float], count: int) -> dict[str, float]:
        found = [error[f"z{i}z{last}"] / float(x.reach) for i, x in enumerate(model.xs, 1)]
        found = [margin / float(model.y.reach) for margin in found]
        return column_margins(model, found, count, float(model.y.half))

    return fit_price(rows.target, [stage], margins, terms.get("people"), check_all_fits)


def _ridge(terms: FitTerms) -> float | None:
    ridge = terms.get("ridge")
    if ridge is None:
        return None
    made = Constant.of(ridge)
    if made.kind != "number" or made.number < 0:
        raise Refused(
            "not-in-language",
            "The ridge (penalty of the regression) must be a number of rows, zero or more.",
            "Leave ridge out. The regression then chooses it from the noise.",
        )
    return float(made.number)


def fitted(model: Model, answer: Answer, ridge: float | None) -> Fit:
    """Compute a linear fit, with its errors, from the released moments."""
    matrix = matrix_of(model, answer)
    count = len(model.xs)
    solved = _solved(matrix, count, ridge)
    theta = np.concatenate([-solved.values, [1.0]])
    noise = _noise(matrix, theta, solved.inverse)
    rest = float(theta @ matrix.entries @ theta)
    sampling = _sampling(matrix, solved, rest, count)
    margins = np.full(count + 1, stds_for_95([answer]) / (1 - solved.strain))
    intercept, coefficients = in_units(model, solved.values, (noise, sampling), margins)
    share, share_std = _explained(matrix, theta, rest)
    return Fit(
        "linear", model.y.name, intercept, coefficients, share, share_std, (answer,),
        _notes(solved, ridge, has_sampling=sampling is not None, explains=share is not None),
    )  # fmt: skip


def _solved(matrix: Matrix, count: int, ridge: float | None) -> Solved:
    """Solve least squares for the scaled coefficients.

    Without a given ridge, one is added if the noise could make the matrix indefinite. A given ridge
    that leaves the matrix indefinite is replaced too.
    """
    least = float(np.linalg.eigvalsh(matrix.covariance(count))[0])
    blur = matrix.noise_norm(count)
    more = max(STEADY * blur - least, 0.0) if ridge is None else ridge / matrix.rows
    if ridge is not None and least + more <= blur * 1e-9:
        more = STEADY * blur - least  # the given ridge does not make the matrix positive definite
    inner = matrix.entries[: count + 1, : count + 1].copy()
    inner[0, 0] = matrix.rows
    inner += matrix.rows * more * np.diag([0.0, *[1.0] * count])
    inverse = np.asarray(np.linalg.inv(inner), np.float64)
    values = np.asarray(inverse @ matrix.entries[: count + 1, count + 1], np.float64)
    strain = min(blur / max(least + more, 1e-300), 1 / STEADY)
    return Solved(values, inverse, matrix.rows * more, strain)


def _noise(matrix: Matrix, theta: Floats, inverse: Floats) -> Floats:
    moved = np.array([inverse @ (noise @ theta)[:-1] for noise in matrix.noises])
    return np.asarray(moved.T @ moved, np.float64)


def _sampling(matrix: Matrix, solved: Solved, rest: float, count: int) -> Floats | None:
    free = matrix.rows - count - 1
    if rest <= 0 or free <= 0:
        return None
    if solved.ridge > 0:
        # (M + R)^-1 is an upper bound of (M + R)^-1 M (M + R)^-1, and it is positive definite,
        # whereas the noise can make M indefinite.
        return np.asarray(rest / free * solved.inverse, np.float64)
    inner = matrix.entries[: count + 1, : count + 1]
    return np.asarray(rest / free * solved.inverse @ inner @ solved.inverse, np.float64)


def _explained(matrix: Matrix, theta: Floats, rest: float) -> tuple[float | None, float | None]:
    """Return r squared of the fit (the share of y's variance that it explains), and its std.

    The std is that of the noise. Both are None if the noise hides the variance of y.
    """
    mean = float(matrix.mean[-1])
    whole = float(matrix.entries[-1, -1]) - matrix.rows * mean**2
    rests = np.array([theta @ noise @ theta for noise in matrix.noises])
    wholes = np.array([n[-1, -1] - 2 * mean * n[0, -1] + mean**2 * n[0, 0] for n in matrix.noises])
    if whole <= 3 * float(np.linalg.norm(wholes)):
        return None, None
    moved = (rest * wholes / whole - rests) / whole
    return 1 - rest / whole, float(np.linalg.norm(moved))


def _notes(
    solved: Solved, ridge: float | None, *, has_sampling: bool, explains: bool
) -> tuple[str, ...]:
    notes = (
        [ROWS_ALIKE]
        if has_sampling
        else ["The sampling error is too small to be estimated under the noise."]
    )
    if solved.ridge > 0 and ridge is None:
        notes.append(
            "The columns' variance is hardly above the noise, or the columns are nearly equal. A "
            f"ridge penalty of {solved.ridge:.3g} rows stabilises the fit and biases it towards "
            "zero. The ± does not include this bias."
        )
    elif solved.ridge > 0:
        notes.append(
            f"A ridge penalty of {solved.ridge:.3g} rows biases the fit towards zero. The ± does "
            "not include this bias."
        )
    if not explains:
        notes.append(
            "There is no r squared, because the variance of y cannot be told from the noise."
        )
    return tuple(notes)
