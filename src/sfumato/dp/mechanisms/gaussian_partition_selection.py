"""Partition selection by Gaussian thresholding, for people in many groups.

The mechanism releases a key with n people if n plus discrete Gaussian noise is at least the
threshold. For a person in L0 groups, the noise costs rho = L0 / (2 variance). The threshold bounds
the probability of releasing a key that only one person has. For L0 such keys together, that
probability is at most their share of delta (soundness rule 16;
gaussian_partition_selection.proof.md).

Optimal selection (partition_selection.py) is better for few groups, and this mechanism for many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.mechanisms import gaussian
from sfumato.dp.mechanisms.partition_selection import MAX_LENGTH
from sfumato.dp.ports import RandomSource
from sfumato.dp.sampling.certified_arithmetic import exp_minus

CONVERSION: Final = Fraction(
    1, 2
)  # share of delta for the conversion of rho to epsilon; the tail gets the rest
TWO_PI: Final = Fraction(6_283_185_307, 10**9)  # rounded down
_BITS: Final = 320


@dataclass(frozen=True)
class GaussianThreshold:
    """The settings with which Gaussian thresholding decides what keys to release, and their cost.

    The settings are the noise variance and the threshold. The cost is rho, and the probability
    `tail` of releasing a key that only one person has.
    """

    variance: Fraction
    threshold: int
    rho: Fraction  # cost of all groups of one person together
    tail: Fraction  # bound of the probability that a key of one person only is released

    def keep(self, counts: NDArray[np.int64], dice: RandomSource) -> NDArray[np.bool_]:
        """Return a mask of the keys to release: those with a noisy count of at least the threshold.

        `counts` has the number of people of each key. A key without people is never released.
        """
        noise = gaussian.sample(self.variance, counts.size, dice).reshape(counts.shape)
        return np.asarray((counts > 0) & (counts + noise >= self.threshold))

    def people_for_odds(self, odds: Fraction) -> int:
        """Return how many people a key needs so that its release probability is at least `odds`.

        In rare cases the result is one too large.
        """
        if odds <= Fraction(1, 2):  # P(noise >= 0) is above one half
            return self.threshold
        return self.threshold + gaussian.interval(self.variance, 2 * odds - 1)


@lru_cache(maxsize=1024)
def threshold_for(epsilon: Fraction, delta: Fraction, groups: int) -> GaussianThreshold | None:
    """Return the settings of Gaussian thresholding with the smallest threshold at (epsilon, delta).

    `groups` is the contribution bound: in how many groups one person is at most. The result is None
    if no key would be released.
    """
    rho = rho_within(epsilon, delta * CONVERSION)
    if rho == 0:
        return None
    variance = gaussian.variance_for(groups, rho)
    tail = delta * (1 - CONVERSION)
    least = _least(variance, tail / groups)
    if least is None or variance > gaussian.MAX_VARIANCE:
        return None
    return GaussianThreshold(variance, least, rho, tail)


def _least(variance: Fraction, limit: Fraction) -> int | None:
    """Return the smallest threshold that releases a key of only one person rarely enough.

    The probability P(1 + noise >= threshold) is certified to be at most `limit`. The result is None
    if no threshold in range suffices.
    """
    too_low, enough = 1, MAX_LENGTH
    if tail_above(variance, enough - 1) > limit:
        return None
    while enough - too_low > 1:
        middle = (too_low + enough) // 2
        if tail_above(variance, middle - 1) <= limit:
            enough = middle
        else:
            too_low = middle
    return enough


def tail_above(variance: Fraction, t: int) -> Fraction:
    """Return a certified upper bound of P(noise >= t) for discrete Gaussian noise and t >= 1.

    The bound decreases in t. The weights from t on decrease faster than a geometric series. The sum
    of all weights is at least 1, and at least sigma times the square root of 2 pi.
    """
    one = 1 << _BITS
    first = exp_minus(Fraction(t * t) / (2 * variance), _BITS)[1]
    factor = exp_minus(Fraction(2 * t + 1) / (2 * variance), _BITS)[1]
    if factor >= one:  # the variance is so large that successive weights round to the same number
        return Fraction(1)
    whole = max(Fraction(1), _root_below(TWO_PI * variance))
    return min(Fraction(first, one - factor) / whole, Fraction(1))


def _root_below(square: Fraction) -> Fraction:
    """Return a lower bound of the square root of a number, as an exact fraction.

    It is within one part in 2**64 for values above one.
    """
    return Fraction(math.isqrt((square.numerator << 128) // square.denominator), 1 << 64)
