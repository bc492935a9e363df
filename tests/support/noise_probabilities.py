"""Exact probabilities to 60 digits by another method than ours, and chi-square against them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Integers = NDArray[np.int64]
Cdf = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # P(X <= k), as a float
ALARM = 1e-4  # a p-value below this fails a test; seeds are fixed, so it fails always or never


def decimal_exp(x: Fraction) -> Decimal:
    """exp(-x) to the digits of the context."""
    return (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()


def laplace_cdf(scale: Fraction, digits: int = 60) -> Callable[[int], Decimal]:
    """P(X <= k) of the discrete Laplace, from its closed form."""
    with localcontext() as context:
        context.prec = digits
        a = decimal_exp(1 / scale)

    def cdf(k: int) -> Decimal:
        with localcontext() as context:
            context.prec = digits
            if k < 0:
                return decimal_exp(-k / scale) / (1 + a)
            return 1 - decimal_exp((k + 1) / scale) / (1 + a)

    return cdf


def gaussian_masses(variance: Fraction, reach: int, digits: int = 60) -> list[Decimal]:
    """P(X = k) of the discrete Gaussian for k = 0..reach, by summing all that counts."""
    with localcontext() as context:
        context.prec = digits
        weights = [decimal_exp(Fraction(k * k) / (2 * variance)) for k in range(reach + 1)]
        whole = weights[0] + 2 * sum(weights[1:], Decimal(0))
        return [weight / whole for weight in weights]


def laplace_bins(scale: Fraction, bins: int) -> tuple[Integers, NDArray[np.float64]]:
    """Integer edges e_1 < e_2 < ... and the chances of X < e_1, e_1 <= X < e_2, ..."""
    wide = float(scale)
    marks = (np.arange(1, bins) / bins - 0.5) * 2
    edges = np.unique(np.round(-wide * np.sign(marks) * np.log1p(-np.abs(marks))))
    return chances_between(edges.astype(np.int64), laplace_cdf(scale))


def gaussian_bins(variance: Fraction, bins: int) -> tuple[Integers, NDArray[np.float64]]:
    """The same for the discrete Gaussian: summed if narrow, continuous where they agree."""
    sigma = float(variance) ** 0.5
    edges = np.unique(np.round(stats.norm.ppf(np.arange(1, bins) / bins) * sigma)).astype(np.int64)
    if sigma > 2000:  # P(X < e) is that of the continuous at e - 1/2, within 1 / (24 variance)
        whole = stats.norm.cdf((edges - 0.5) / sigma)
        return edges, np.diff(np.concatenate([[0.0], whole, [1.0]]))
    masses = gaussian_masses(variance, int(12 * sigma) + 2)
    sums = np.cumsum([float(mass) for mass in masses])
    half = float(masses[0]) / 2

    def cdf(k: int) -> Decimal:
        upper = 0.5 + half + float(sums[abs(k)] - sums[0])
        return Decimal(upper if k >= 0 else 1 - upper + float(masses[abs(k)]))

    return chances_between(edges, cdf)


def chances_between(
    edges: Integers, cdf: Callable[[int], Decimal]
) -> tuple[Integers, NDArray[np.float64]]:
    """The edges, and the chance of each bin between them."""
    sums = [Decimal(0), *(cdf(int(edge) - 1) for edge in edges), Decimal(1)]
    parts = [float(above - below) for below, above in pairwise(sums)]
    return edges, np.array(parts)


def p_value(draws: Integers, edges: Integers, chances: NDArray[np.float64]) -> float:
    """The chi-square p-value that the draws come from these chances."""
    places = np.searchsorted(edges, draws, side="right")
    seen = np.bincount(places, minlength=chances.size)
    return float(stats.chisquare(seen, chances * draws.size).pvalue)
