"""A quantile among the points of a fixed public grid, by the exponential mechanism.

The utility of a point is how far the wanted rank lies outside the ranks of the rows at that
point, in whole units of 1/b rows for p = a/b. MIN and MAX are p = 0 and p = 1. What is chosen is
a point of the grid, never a record (quantile.proof.md).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.dp.mechanisms import exponential
from sfumato.dp.mechanisms.exponential import exponential_mechanism_rows, rate_for
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, exp_minus, is_at_most
from sfumato.dp.sampling.threshold_table import Integers

MAX_DENOMINATOR: Final = 10**6  # of p: with up to 2**40 rows, utilities fit into 62 bits


def utilities(histogram: Integers, p: Fraction) -> Integers:
    """Return minus the distance from rank p*n to [rows below, rows up to] of each grid point.

    The last axis is the grid; the unit is 1/b of a row.
    """
    a, b = _parts(p)
    up_to: Integers = b * np.cumsum(histogram, axis=-1)
    below = up_to - b * histogram
    wanted = a * histogram.sum(axis=-1, keepdims=True)
    return np.asarray(np.minimum(0, np.minimum(wanted - below, up_to - wanted)))


def _parts(p: Fraction) -> tuple[int, int]:
    """Return numerator and denominator of a probability."""
    if not 0 <= p <= 1 or p.denominator > MAX_DENOMINATOR:
        raise Bug("a quantile needs a fraction between 0 and 1 with a small denominator")
    return p.numerator, p.denominator


def sensitivity(p: Fraction, rows: int) -> int:
    """Return the most that a person with so many rows moves any utility, in units of 1/b rows."""
    a, b = _parts(p)
    if rows < 1:
        raise Bug("a person has at least one row")
    return rows * max(a, b - a)


def rank_sensitivity(p: Fraction, rows: int) -> Fraction:
    """Return the same in ranks (rows): rows * max(p, 1 - p)."""
    return Fraction(sensitivity(p, rows), p.denominator)


def is_monotone(p: Fraction) -> bool:
    """Say whether a joining person only ever lowers utilities: true of MIN and MAX alone."""
    return p in (0, 1)


def choose_quantiles(
    histograms: Integers, p: Fraction, *, epsilon: Fraction, rows: int, dice: Dice
) -> Integers:
    """Return one grid index for each histogram [cells, grid]; each cell costs epsilon."""
    rate = rate_for(epsilon, sensitivity(p, rows), monotone=is_monotone(p))
    blocks = max(1, min(histograms.shape[0], histograms.size // exponential.BLOCK))
    chosen = [
        exponential_mechanism_rows(utilities(block, p), None, rate, dice)
        for block in np.array_split(histograms, blocks)
    ]
    return np.concatenate(chosen)


def epsilon_of(epsilon_cell: Fraction, groups: int, quantiles: int) -> Fraction:
    """Return what so many quantiles cost a person in so many groups: each choice adds up."""
    return groups * quantiles * Fraction(epsilon_cell)


def rho_of(epsilon_cell: Fraction, groups: int, quantiles: int) -> Fraction:
    """Return the same as rho: groups * quantiles * epsilon_cell**2 / 8."""
    return groups * quantiles * exponential.rho_of(epsilon_cell)


def rank_error(epsilon: Fraction, sensitivity: Fraction, grid: int, confidence: Fraction) -> int:
    """Return how many ranks the chosen point is off at most, at that confidence; public.

    The sensitivity is that in ranks (`rank_sensitivity`). It is the smallest whole t with
    grid * exp(-epsilon t / (2 sensitivity)) <= 1 - confidence: enough for any rows whatever.
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
