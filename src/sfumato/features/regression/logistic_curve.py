"""The logistic curve as a sum of clamps, which queries can express, and its mean over the rows.

The mean uses a normal approximation: a normal distribution with the released mean and covariance of
the rows. It only guides the rounds. Information about the rows comes from the gradients (decision
0005).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FAR: Final = 8  # beyond it the curve is 0 or 1
KNOT_GRID: Final = 2**4
SLOPE_GRID: Final = 2**12
POINTS: Final = 60  # the number of quadrature points


@dataclass(frozen=True)
class PiecewiseLogistic:
    """The logistic curve in linear pieces: 1/2 + the sum of slope * clamp(x, -knot, knot)."""

    knots: tuple[Fraction, ...]
    slopes: tuple[Fraction, ...]

    def at(self, x: Floats) -> Floats:
        """Return the curve's value at each x."""
        pieces = zip(self.knots, self.slopes, strict=True)
        heights = [float(a) * np.clip(x, -float(b), float(b)) for b, a in pieces]
        return np.asarray(0.5 + np.sum(heights, axis=0), np.float64)


@lru_cache(maxsize=16)
def ladder(pieces: int) -> PiecewiseLogistic:
    """Build the piecewise linear logistic curve with `pieces` pieces on each side of zero.

    The pieces are denser where the curve bends. Its values are from 0 to 1.
    """
    fine = np.linspace(0, FAR, 4001)
    bend = np.sqrt(np.abs(steepness(fine) * (1 - 2 * logistic(fine))))
    share = np.cumsum(bend) / bend.sum()
    ends = np.interp(np.arange(1, pieces) / pieces, share, fine)
    knots = [Fraction(round(x * KNOT_GRID), KNOT_GRID) for x in ends] + [Fraction(FAR)]
    heights = [0.0, *(logistic(np.array([float(k) for k in knots[:-1]])) - 0.5), 0.5]
    before = [Fraction(0), *knots]
    steep = [
        float((high - low) / float(knot - last))
        for low, high, last, knot in zip(heights, heights[1:], before, knots, strict=False)
    ]
    slopes = [
        Fraction(int((a - b) * SLOPE_GRID), SLOPE_GRID)
        for a, b in zip(steep, [*steep[1:], 0.0], strict=True)
    ]
    return PiecewiseLogistic(tuple(knots), tuple(slopes))


def logistic(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(x / 2)), np.float64)


def steepness(x: Floats) -> Floats:
    """Return the derivative of the logistic curve."""
    height = logistic(x)
    return height * (1 - height)


@dataclass(frozen=True)
class NormalApproximation:
    """A normal approximation of the scaled columns: released row count, mean and covariance."""

    rows: float
    mean: Floats
    covariance: Floats

    def _along(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return some scores that stand for all rows, each with its weight and the columns' mean.

        A score is a row's weighted sum of columns. The scores are the points of Gauss-Hermite
        quadrature, which replaces an integral over all rows by a sum.
        """
        middle = weights[0] + weights[1:] @ self.mean
        leaning = self.covariance @ weights[1:]
        spread = float(max(float(weights[1:] @ leaning), 1e-12) ** 0.5)
        points, odds = np.polynomial.hermite_e.hermegauss(POINTS)
        moved = self.mean[:, None] + (leaning / spread)[:, None] * points
        return middle + spread * points, odds / odds.sum(), np.vstack([np.ones(POINTS), moved])

    def gradient(self, height: Callable[[Floats], Floats], weights: Floats) -> Floats:
        """Return the expected sum over all rows of height(score) times the row's (1, columns).

        The score is a row's weighted sum of columns. `height` is any function of the score, for
        example the logistic curve.
        """
        scores, odds, columns = self._along(weights)
        return self.rows * np.asarray(columns @ (odds * height(scores)), np.float64)

    def off_by(self, heights: Callable[[Floats], Floats], weights: Floats) -> Floats:
        """Bound the error of `gradient` if the curve has the error `heights` at each row's score.

        By the Cauchy-Schwarz inequality, the bound is rows * rms(heights) * rms(column).
        """
        scores, odds, _ = self._along(weights)
        off = np.sqrt(odds @ heights(scores) ** 2)
        squares = np.array([1.0, *(np.diag(self.covariance) + self.mean**2)])
        return self.rows * np.asarray(off * np.sqrt(squares), np.float64)

    def curvature(self, steep: Callable[[Floats], Floats], weights: Floats) -> Floats:
        """Return the expected derivative of `gradient` with respect to the weights."""
        scores, odds, columns = self._along(weights)
        heights = odds * steep(scores)
        made = (columns * heights) @ columns.T
        leaning = self.covariance @ weights[1:]
        spread = max(float(weights[1:] @ leaning), 1e-12)
        rest = self.covariance - np.outer(leaning, leaning) / spread
        made[1:, 1:] += heights.sum() * rest
        return self.rows * np.asarray(made, np.float64)
