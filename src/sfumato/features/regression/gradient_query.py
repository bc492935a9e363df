"""One round of a logistic fit as an ordinary question: the gradient of the loss, in whole numbers.

Each row adds (y - p) * z, p being the curve at the row's score, rounded to a public grid. A score
is a sum of columns times public weights; the curve is a sum of clamps (logistic_curve.py). So one row moves
each sum by what the planner proves: at most GRID times the column's reach.
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from sfumato.client.query_builder import Builder
from sfumato.dp.refusal import Refused
from sfumato.features.regression.logistic_curve import Floats, Ladder, ladder
from sfumato.features.regression.scaled_columns import Model, Scaled, literally
from sfumato.query.expression import Arithmetic, Clamp, Constant, Expr, Floor, walk

GRID: Final = 2**12  # a chance is a multiple of 1/GRID
WEIGHT_GRID: Final = 2**10  # a weight of a scaled column is a multiple of 1/WEIGHT_GRID
HEAVIEST: Final = 16  # the largest weight of a scaled column
MOST_NODES: Final = 1900  # of a question; the language takes 2,000
PIECES: Final = (6, 5, 4, 3, 2)


def on_grid(weights: Floats) -> tuple[Fraction, ...]:
    """Return the weights as a question may hold them."""
    held = (min(max(float(w), -HEAVIEST), HEAVIEST) for w in weights)
    return tuple(Fraction(round(w * WEIGHT_GRID), WEIGHT_GRID) for w in held)


def gradient_question(model: Model, weights: Sequence[Fraction]) -> tuple[Builder, Ladder]:
    """Return the question of a round and the curve in it, as fine as the question has room for."""
    for pieces in PIECES:
        curve = ladder(pieces)
        built = model.asking(_sums(model, weights, curve))
        if _nodes(built) <= MOST_NODES:
            return built, curve
    raise Refused(
        "question-too-large",
        "The columns and conditions of the fit do not fit into one question.",
        "Fit fewer columns, or with shorter conditions.",
    )


def _nodes(built: Builder) -> int:
    parts = [*built.conditions, *(of for o in built.outputs for of in o.of.of)]  # type: ignore[union-attr]  # aggregates all
    return sum(1 for part in parts for _ in walk(part))


def _sums(
    model: Model, weights: Sequence[Fraction], curve: Ladder
) -> list[tuple[str, Expr | None]]:
    rest = _residual(model, weights, curve)
    columns: list[tuple[str, Expr | None]] = [("g0", rest)]
    for place, x in enumerate(model.xs, 1):
        columns.append((f"g{place}", Arithmetic("*", rest, x.centred)))
    return columns


def _residual(model: Model, weights: Sequence[Fraction], curve: Ladder) -> Expr:
    """Return GRID * (y - p): y is -1 or 1 here, so y's half and the curve's cancel."""
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
    """Return the score in steps so fine that rounding the weights is nothing."""
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
    """Return a constant score that still is a number of every row."""
    return Arithmetic("+", Arithmetic("*", model.y.term, literally(0)), constant)


def _finest(xs: Sequence[Scaled]) -> Fraction:
    widest = max(math.ceil(2 * x.reach / x.step) for x in xs)
    return Fraction(1, 2 ** (16 + widest.bit_length()))


def _sum(terms: Sequence[Expr]) -> Expr:
    """Return the sum as a balanced tree: expressions may not be deep."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Arithmetic("+", _sum(terms[:half]), _sum(terms[half:]))
