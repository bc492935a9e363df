"""Private median of block results on a fixed public grid, by the exponential mechanism.

There is one value per block. The number of values is public, and one person changes at most one
value. The grid may have billions of points. All points between two neighbouring values have the
same utility, so the mechanism first chooses such a stretch, weighted by its length. Then it picks a
uniform point in the stretch. The resulting distribution is that of the mechanism over all grid
points (median_of_blocks.proof.md).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np

from sfumato.dp.mechanisms.exponential import MAX_WEIGHT, exponential_mechanism, rate_for
from sfumato.dp.mechanisms.permute_and_flip import pick_below
from sfumato.dp.mechanisms.quantile import rank_error
from sfumato.dp.ports import RandomSource
from sfumato.dp.sampling.threshold_table import Integers

SENSITIVITY: Final = 2  # change of a utility, in half ranks, when one value is replaced
MAX_STEPS: Final = MAX_WEIGHT - 2  # largest grid


def choose_median(values: Integers, steps: int, epsilon: Fraction, dice: RandomSource) -> int:
    """Choose a private median of the block results on the grid 0..steps.

    All `values` must be on the grid. The choice costs epsilon.
    """
    starts, lengths, utilities = _stretches(np.sort(values), steps)
    place = exponential_mechanism(
        utilities, lengths, rate_for(epsilon, SENSITIVITY, monotone=False), dice
    )
    return int(starts[place]) + pick_below(int(lengths[place]), dice)


def _stretches(ordered: Integers, steps: int) -> tuple[Integers, Integers, Integers]:
    """Cut the grid into stretches of equal utility; return the start, length and utility of each.

    The utility says how near the points of a stretch are to the median. Each value is a stretch of
    length one, and each gap between values is a stretch. Equal values share one stretch; the others
    get length zero.
    """
    count = ordered.size
    below = np.searchsorted(ordered, ordered, side="left")
    up_to = np.searchsorted(ordered, ordered, side="right")
    gaps = np.arange(count + 1)
    gap_starts = np.concatenate([[0], ordered + 1])
    gap_ends = np.concatenate([ordered, [steps + 1]])
    starts = np.concatenate([gap_starts, ordered])
    lengths = np.concatenate([
        np.maximum(0, gap_ends - gap_starts), np.diff(ordered, prepend=-1) > 0,
    ])  # fmt: skip
    lows, highs = np.concatenate([gaps, below]), np.concatenate([gaps, up_to])
    utilities = np.minimum(0, np.minimum(count - 2 * lows, 2 * highs - count))
    return starts.astype(np.int64), lengths.astype(np.int64), utilities.astype(np.int64)


def mean_square_error(values: Integers, steps: int, epsilon: Fraction, target: int) -> float:
    """Return the mean squared distance of the private median of these values from a target.

    It is computed in floats, and it depends on the values. So it is for synthetic values only.
    """
    starts, lengths, utilities = _stretches(np.sort(values), steps)
    is_there = lengths > 0
    starts, lengths, utilities = starts[is_there], lengths[is_there], utilities[is_there]
    rate = float(rate_for(epsilon, SENSITIVITY, monotone=False))
    weights = lengths * np.exp(rate * (utilities - utilities.max()))
    # a uniform point of a stretch of length n has the variance (n^2 - 1) / 12
    middles = starts + (lengths - 1) / 2 - target
    squares = middles**2 + (lengths.astype(np.float64) ** 2 - 1) / 12
    return float(weights @ squares / weights.sum())


def ranks_off(epsilon: Fraction, steps: int, confidence: Fraction) -> int:
    """Return how many ranks the private median is at most away from the true median.

    This holds at the given confidence. The result depends on public numbers only.
    """
    return rank_error(epsilon, Fraction(SENSITIVITY, 2), steps + 1, confidence)
