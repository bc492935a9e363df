"""Logistic regression in rounds of noisy full gradients (soundness rule 20; decision 0005).

The first query asks for the moments, which guide the steps of the fit. Each later query asks for
the gradient at weights that are computed from released values alone. The final fit averages all
gradients. The weight of a gradient depends on its noise and on the distance of its round from the
optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.client.answer import Answer
from sfumato.client.ask_terms import ROUNDS, FitPriceTerms, FitTerms
from sfumato.client.budget_shares import check_all_fits, shares
from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.features.regression.fit_price import FitPrice, Stage, column_margins, fit_price
from sfumato.features.regression.fit_result import Fit, in_units
from sfumato.features.regression.logistic_curve import (
    Floats,
    NormalApproximation,
    PiecewiseLogistic,
    ladder,
    logistic,
    steepness,
)
from sfumato.features.regression.moments_query import (
    Matrix,
    matrix_of,
    moments_question,
    named,
    stds_for_95,
)
from sfumato.features.regression.scaled_columns import Model, Scaled, literally, model_of
from sfumato.query.expression import Arithmetic, Clamp, Constant, Expr, Floor, walk

# --- One round of a logistic fit as an ordinary query: the gradient of the loss, in integers
#
# Each row adds (y - p) * z. Here p is the logistic curve at the row's score, rounded to a public
# grid. A score is a sum of columns times public weights. The curve is a sum of clamps
# (logistic_curve.py). So the planner proves each sum's sensitivity per row: at most GRID times the
# column's bound.


GRID: Final = 2**12  # a probability is a multiple of 1/GRID
WEIGHT_GRID: Final = 2**10  # a weight of a scaled column is a multiple of 1/WEIGHT_GRID
HEAVIEST: Final = 16  # the largest weight of a scaled column
MAX_NODES: Final = 1900  # the most expression nodes of a query here; the language allows 2,000
PIECES: Final = (6, 5, 4, 3, 2)


def on_grid(weights: Floats) -> tuple[Fraction, ...]:
    """Clamp the regression weights, and round them to the public grid that queries use.

    The same rounded weights make the same query, whose repeat is free.
    """
    held = (min(max(float(w), -HEAVIEST), HEAVIEST) for w in weights)
    return tuple(Fraction(round(w * WEIGHT_GRID), WEIGHT_GRID) for w in held)


def gradient_question(
    model: Model, weights: Sequence[Fraction]
) -> tuple[Builder, PiecewiseLogistic]:
    """Build the gradient query of one round, and return it with its piecewise logistic curve.

    The curve has as many pieces as fit into one query.
    """
    for pieces in PIECES:
        curve = ladder(pieces)
        built = model.asking(_sums(model, weights, curve))
        if _nodes(built) <= MAX_NODES:
            return built, curve
    raise Refused(
        "question-too-large",
        "The regression has too many columns and conditions for one question.",
        "Use fewer columns, or shorter conditions in where(...).",
    )


def _nodes(built: Builder) -> int:
    parts = [*built.conditions, *(of for o in built.outputs for of in o.of.operands)]  # type: ignore[union-attr]  # aggregates all
    return sum(1 for part in parts for _ in walk(part))


def _sums(
    model: Model, weights: Sequence[Fraction], curve: PiecewiseLogistic
) -> list[tuple[str, Expr | None]]:
    rest = _residual(model, weights, curve)
    columns: list[tuple[str, Expr | None]] = [("g0", rest)]
    for place, x in enumerate(model.xs, 1):
        columns.append((f"g{place}", Arithmetic("*", rest, x.centred)))
    return columns


def _residual(model: Model, weights: Sequence[Fraction], curve: PiecewiseLogistic) -> Expr:
    """Return the scaled residual of a row, GRID * (y - p), as a query expression.

    Here p is the predicted probability, and y = (1 + term) / 2, where the term is -1 or 1. The 1/2
    in y cancels the 1/2 with which the curve begins.
    """
    score = _score(model, weights)
    chance = _sum(
        [
            Arithmetic("*", _between(score, knot), literally(slope * GRID))
            for knot, slope in zip(curve.knots, curve.slopes, strict=True)
            if slope
        ]
    )
    rounded = Floor(Arithmetic("+", chance, literally(Fraction(1, 2))))
    return Arithmetic("-", Arithmetic("*", model.y.term, literally(GRID // 2)), rounded)


def _between(score: Expr, knot: Fraction) -> Expr:
    return Clamp(score, Constant.of(-knot), Constant.of(knot))


def _score(model: Model, weights: Sequence[Fraction]) -> Expr:
    """Return a row's score, the weighted sum of its columns, as a query expression.

    The weights are rounded to a grid so fine that the rounding has hardly any effect.
    """
    fine = _finest(model.xs)
    start = weights[0]
    terms: list[Expr] = []
    for x, weight in zip(model.xs, weights[1:], strict=True):
        slope = Fraction(round(weight / x.reach * x.step / fine)) * fine / x.step
        start -= slope * x.start
        if slope:
            terms.append(Arithmetic("*", x.term, literally(slope)))
    constant = literally(round(start / fine) * fine)
    return Arithmetic("+", _sum(terms), constant) if terms else _nothing(model, constant)


def _nothing(model: Model, constant: Expr) -> Expr:
    """Return a score that is the same for every row, as an expression that names y (times zero).

    A row has this score if the rounded weights of all columns are zero. So the score is computed
    like any other, although it does not depend on the row.
    """
    return Arithmetic("+", Arithmetic("*", model.y.term, literally(0)), constant)


def _finest(xs: Sequence[Scaled]) -> Fraction:
    widest = max(math.ceil(2 * x.reach / x.step) for x in xs)
    return Fraction(1, 2 ** (16 + widest.bit_length()))


def _sum(terms: Sequence[Expr]) -> Expr:
    """Return the sum of the terms as a balanced tree, because expression depth is limited."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Arithmetic("+", _sum(terms[:half]), _sum(terms[half:]))


FOR_MOMENTS: Final = Fraction(3, 10)  # the share of the price that pays for the moments
MAX_ROUNDS: Final = 20
MISFIT: Final = 0.2  # the assumed relative error of the curvature under the normal approximation
# the least eigenvalue of the approximation's covariance, in multiples of the noise norm
FLOOR: Final = 0.5
STEPS: Final = 40
LONGEST_STEP: Final = 1.5


@dataclass(frozen=True)
class Round:
    """The released answer of one round: the gradient at the round's weights, and its noise stds."""

    weights: Floats
    gradient: Floats
    stds: Floats
    curve_error: Floats  # bound on the gradient's error from the piecewise linear curve
    answer: Answer

    @property
    def trust(self) -> float:
        """Return the weight of the round in the average: the less noise and error, the larger.

        It is 1 / (noise variance + squared error from the distance to the optimum).
        """
        noise = float(np.mean(self.stds**2))
        far = max(float(np.mean(self.gradient**2)) - noise, 0.0)
        return 1 / (noise + MISFIT**2 * far)


def fit_logistic(rows: Builder, y: str, xs: Sequence[str], terms: FitTerms) -> Fit:
    """Fit a logistic model; the price of every query is checked before the first is asked."""
    model, stages = _stages(rows, y, xs, terms)
    priced = [(stage.question, stage.share) for stage in stages]
    check_all_fits(rows.target, priced, resume=terms.get("resume", False))
    first = _asked(stages[0])
    matrix = matrix_of(model, first)
    crowd = _crowd(matrix, len(model.xs))
    weights, rounds = _start(matrix, crowd), list[Round]()
    for stage in stages[1:]:
        rounds.append(_round(model, crowd, weights, stage))
        weights = _settled(crowd, rounds)
    return _fitted(model, crowd, weights, (first, rounds))


def price_logistic(rows: Builder, y: str, xs: Sequence[str], terms: FitPriceTerms) -> FitPrice:
    """Return the price of a logistic fit and its expected error; spends nothing."""
    model, stages = _stages(rows, y, xs, terms)

    def margins(error: dict[str, float], count: int) -> dict[str, float]:
        found = [4 * error[f"g{i}"] / GRID / float(x.reach) for i, x in enumerate(model.xs, 1)]
        return column_margins(model, found, count, 1.0)

    return fit_price(rows.target, stages, margins, terms.get("people"), check_all_fits)


def _stages(rows: Builder, y: str, xs: Sequence[str], terms: FitTerms) -> tuple[Model, list[Stage]]:
    """Return the model to fit, and its queries with their shares of the price.

    The rounds are planned with the largest weights, because the real ones depend on answers.
    """
    card, count = rows.target.card, terms.get("rounds", ROUNDS)
    if terms.get("ridge") is not None:
        raise Refused(
            "not-in-language",
            "A logistic regression does not take the argument ridge.",
            "Leave ridge out.",
        )
    if type(count) is not int or not 1 <= count <= MAX_ROUNDS:
        raise Refused(
            "not-in-language",
            f"A logistic regression takes 1 to {MAX_ROUNDS} rounds.",
            "Give fewer rounds, or leave rounds out.",
        )
    model = model_of(rows, card, y, xs)
    if not model.y.is_boolean:
        raise Refused(
            "type-mismatch",
            f"{model.y.name!r} is not a boolean column, but a logistic regression predicts yes "
            "or no.",
            "Choose a boolean column as y, or use a linear regression: linear(...).",
            column=model.y.name,
        )
    model = Model(model.rows, model.y, model.xs, is_odds=True)
    paid = shares(card, terms, _parts(count))
    heaviest = on_grid(np.full(len(model.xs) + 1, float(HEAVIEST)))
    stages = [Stage("moments", moments_question(model), paid[0])]
    for number, share in enumerate(paid[1:], 1):
        question, _ = gradient_question(model, heaviest)
        stages.append(Stage(f"round {number}", question, share))
    return model, stages


def _parts(rounds: int) -> list[Fraction]:
    """Return the price share of the moments query (3/10), then of each round.

    Later rounds start nearer to the optimum, so they get larger shares.
    """
    rest, whole = 1 - FOR_MOMENTS, rounds * (rounds + 1) // 2
    return [FOR_MOMENTS, *(rest * number / whole for number in range(1, rounds + 1))]


def _asked(stage: Stage) -> Answer:
    return stage.question.ask(epsilon=stage.share.epsilon, delta=stage.share.delta)


def _crowd(matrix: Matrix, count: int) -> NormalApproximation:
    values, turn = np.linalg.eigh(matrix.covariance(count))
    held = np.maximum(values, max(FLOOR * matrix.noise_norm(count), 1e-9))
    return NormalApproximation(
        matrix.rows, matrix.mean[:count], np.asarray((turn * held) @ turn.T, np.float64)
    )


def _start(matrix: Matrix, crowd: NormalApproximation) -> Floats:
    """Return the initial weights, which fit the released moments under the normal approximation.

    The fit has a ridge penalty of 1, which keeps the weights small.
    """
    size = len(crowd.mean) + 1
    wanted = (matrix.entries[:size, -1] + matrix.entries[:size, 0]) / 2
    return _solved(crowd, wanted, np.zeros(size), 1.0)


def _solved(crowd: NormalApproximation, wanted: Floats, begin: Floats, ridge: float) -> Floats:
    """Find by Newton's method the weights at which the expected gradient is `wanted`.

    The expectation is under the normal approximation of the rows.
    """
    weights = begin
    for _ in range(STEPS):
        missing = wanted - crowd.gradient(logistic, weights) - ridge * weights
        steep = crowd.curvature(steepness, weights) + (ridge + 1e-6) * np.eye(len(weights))
        step = np.linalg.solve(steep, missing)
        length = float(np.linalg.norm(step))
        weights = weights + step * min(1.0, LONGEST_STEP / max(length, 1e-12))
        if length < 1e-9:
            break
    return np.clip(weights, -HEAVIEST, HEAVIEST)


def _round(model: Model, crowd: NormalApproximation, weights: Floats, stage: Stage) -> Round:
    held = on_grid(weights)
    question, curve = gradient_question(model, held)
    answer = _asked(Stage(stage.says, question, stage.share))
    values, stds = named(answer)
    reach = np.array([GRID, *(GRID * float(x.reach) for x in model.xs)])
    names = [f"g{place}" for place in range(len(reach))]
    at = np.array([float(w) for w in held])
    seen = np.array([values[name] for name in names]) / reach
    noise = np.array([stds[name] for name in names]) / reach

    def pieces(x: Floats) -> Floats:
        return logistic(x) - curve.at(x)

    expected = crowd.gradient(pieces, at)  # bias of the piecewise linear curve
    return Round(at, seen - expected, noise, MISFIT * crowd.off_by(pieces, at), answer)


def _settled(crowd: NormalApproximation, rounds: Sequence[Round]) -> Floats:
    """Solve for the weights from the gradients of all rounds, averaged by each round's `trust`."""
    trust = np.array([r.trust for r in rounds])
    wanted = [r.gradient + crowd.gradient(logistic, r.weights) for r in rounds]
    mean = np.average(wanted, axis=0, weights=trust)
    return _solved(crowd, np.asarray(mean, np.float64), rounds[-1].weights, 0.0)


def _fitted(
    model: Model, crowd: NormalApproximation, weights: Floats, released: tuple[Answer, list[Round]]
) -> Fit:
    first, rounds = released
    noise, far = _errors(crowd, weights, rounds)
    answers = (first, *(r.answer for r in rounds))
    margins = np.full(len(weights), stds_for_95(answers[1:]))
    intercept, coefficients = in_units(model, weights, (noise + far, None), margins)
    return Fit(
        "logistic", model.y.name, intercept, coefficients, None, None, answers,
        _notes(weights, noise, far),
    )  # fmt: skip


def _errors(
    crowd: NormalApproximation, weights: Floats, rounds: Sequence[Round]
) -> tuple[Floats, Floats]:
    """Return the covariances of the noise and of the remaining optimisation error of the weights.

    The optimisation error assumes that two values of the normal approximation have a relative error
    of 20 % (MISFIT). They are its curvature along each step, and its correction for the piecewise
    linear curve.
    """
    inverse = np.linalg.inv(crowd.curvature(steepness, weights) + 1e-6 * np.eye(len(weights)))
    trust = np.array([r.trust for r in rounds])
    shares = trust / trust.sum()
    noise = sum(
        s**2 * inverse @ np.diag(r.stds**2) @ inverse for s, r in zip(shares, rounds, strict=True)
    )
    ways = [MISFIT * s * (weights - r.weights) for s, r in zip(shares, rounds, strict=True)]
    bent = inverse @ np.diag(rounds[-1].curve_error ** 2) @ inverse
    far = bent + sum(np.outer(way, way) for way in ways)
    return np.asarray(noise, np.float64), np.asarray(far, np.float64)


def _notes(weights: Floats, noise: Floats, far: Floats) -> tuple[str, ...]:
    notes = [
        (
            "Coefficients are log odds. The ± covers the noise and the piecewise linear "
            "approximation of the logistic curve, but not sampling, clamping or max_rows."
        )
    ]
    if float(np.max(np.abs(weights))) >= HEAVIEST:
        notes.append(
            f"A coefficient reached its limit of {HEAVIEST} over half its column's range, "
            "because yes and no are separable or the noise is too wide. The ± is not valid."
        )
    if float(np.trace(far)) > float(np.trace(noise)):
        notes.append(
            "Most of the ± comes from missing rounds and the piecewise linear approximation, "
            "not from noise."
        )
    return tuple(notes)
