"""Private quantiles on a fixed public grid, by the exponential mechanism.

The quantile p = a/b wants rank p*n. The utility of a grid point is minus the distance from that
rank to the ranks of the rows at the point. It is an integer in units of 1/b rows. MIN and MAX are p
= 0 and p = 1. The result is a point of the grid, never a value of a record (quantile.proof.md).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.dp.mechanisms import exponential
from sfumato.dp.mechanisms.exponential import exponential_mechanism_rows, rate_for
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, exp_minus, is_at_most
from sfumato.dp.sampling.threshold_table import Integers

MAX_DENOMINATOR: Final = 10**6  # of p: with up to 2**40 rows, utilities fit in 62 bits


def utilities(histogram: Integers, p: Fraction) -> Integers:
    """Return the utility of each grid point for the quantile p; the last axis is the grid.

    The utility is minus the distance from rank p*n to the interval [rows below the point, rows up
    to the point]. Here n is the number of rows. The unit is 1/b of a row, where b is the
    denominator of p.
    """
    a, b = _parts(p)
    up_to: Integers = b * np.cumsum(histogram, axis=-1)
    below = up_to - b * histogram
    wanted = a * histogram.sum(axis=-1, keepdims=True)
    return np.asarray(np.minimum(0, np.minimum(wanted - below, up_to - wanted)))


def _parts(p: Fraction) -> tuple[int, int]:
    """Check that p is a valid quantile; return its numerator and denominator."""
    if not 0 <= p <= 1 or p.denominator > MAX_DENOMINATOR:
        raise Bug("a quantile needs a fraction between 0 and 1 with a small denominator")
    return p.numerator, p.denominator


def sensitivity(p: Fraction, rows: int) -> int:
    """Return the sensitivity of the utilities for the quantile p = a/b, in units of 1/b rows.

    The units make all utilities integers. One person has at most `rows` rows.
    """
    a, b = _parts(p)
    if rows < 1:
        raise Bug("a person has at least one row")
    return rows * max(a, b - a)


def rank_sensitivity(p: Fraction, rows: int) -> Fraction:
    """Return the sensitivity of the quantile utilities in rows (ranks): rows * max(p, 1 - p).

    One person has at most `rows` rows.
    """
    return Fraction(sensitivity(p, rows), p.denominator)


def is_monotone(p: Fraction) -> bool:
    """Return whether adding a person never raises a utility; only MIN and MAX are monotone."""
    return p in (0, 1)


def choose_quantiles(
    histograms: Integers, p: Fraction, *, epsilon: Fraction, rows: int, dice: RandomSource
) -> Integers:
    """Choose a private quantile for each histogram; return the indices of the chosen grid points.

    `histograms` has the shape [groups, grid points]. Each group costs epsilon.
    """
    rate = rate_for(epsilon, sensitivity(p, rows), monotone=is_monotone(p))
    blocks = max(1, min(histograms.shape[0], histograms.size // exponential.BLOCK))
    chosen = [
        exponential_mechanism_rows(utilities(block, p), None, rate, dice)
        for block in np.array_split(histograms, blocks)
    ]
    return np.concatenate(chosen)


def epsilon_of(epsilon_cell: Fraction, groups: int, quantiles: int) -> Fraction:
    """Return the total epsilon of all quantiles, for a person in `groups` groups of the answer.

    It is groups * quantiles * epsilon_cell, by basic composition. `epsilon_cell` is the cost of one
    quantile in one group.
    """
    return groups * quantiles * Fraction(epsilon_cell)


def rho_of(epsilon_cell: Fraction, groups: int, quantiles: int) -> Fraction:
    """Return the total zCDP cost rho of all quantiles, for a person in `groups` groups.

    It is groups * quantiles * epsilon_cell**2 / 8. `epsilon_cell` is the cost of one quantile in
    one group.
    """
    return groups * quantiles * exponential.rho_of(epsilon_cell)


def rank_error(epsilon: Fraction, sensitivity: Fraction, grid: int, confidence: Fraction) -> int:
    """Return how many rows (ranks) a private quantile is off at most, at this confidence.

    It is the smallest integer t with grid * exp(-epsilon t / (2 sensitivity)) <= 1 - confidence. It
    is public, and holds for all data. `sensitivity` is in rows (`rank_sensitivity`).
    """
    rate = Fraction(epsilon) / (2 * Fraction(sensitivity))
    miss = (1 - confidence) / grid
    t = max(0, math.floor(math.log(1 / miss) / rate) - 1)
    while not _is_within(rate * t, miss):
        t += 1
    return t


def _is_within(power: Fraction, miss: Fraction) -> bool:
    def bounds(bits: int) -> Interval:
        return exp_minus(power, bits)

    return is_at_most(bounds, miss)
