"""Partition selection for people in many groups: a Gaussian count and an integer threshold.

A key with n people is shown if n plus discrete Gaussian noise reaches the threshold. Over the L0
keys of a person the noise costs rho = L0 / (2 variance); a key that is there for one person only is
shown with a chance of at most the tail, and L0 of them within their share of delta (soundness rule
16; gaussian_partition_selection.proof.md). Optimal selection (partition_selection.py) is better for
few groups, this for many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.accounting.composition import rho_within
from sfumato.dp.mechanisms import gaussian
from sfumato.dp.mechanisms.partition_selection import MAX_LENGTH
from sfumato.dp.ports import Dice
from sfumato.dp.sampling.certified_arithmetic import exp_minus

CONVERSION: Final = Fraction(
    1, 2
)  # of the delta, for turning rho into epsilon; the tail has the rest
TWO_PI: Final = Fraction(6_283_185_307, 10**9)  # rounded down
_BITS: Final = 320


@dataclass(frozen=True)
class Threshold:
    """Noise of a variance on each count of people, and the least noisy count that is shown."""

    variance: Fraction
    least: int
    rho: Fraction  # of all of a person's groups together
    tail: Fraction  # a bound of the chance that a key of one's own is shown, all groups together

    def keep(self, counts: NDArray[np.int64], dice: Dice) -> NDArray[np.bool_]:
        """Return which keys are shown; a key with nobody never is."""
        noise = gaussian.sample(self.variance, counts.size, dice).reshape(counts.shape)
        return np.asarray((counts > 0) & (counts + noise >= self.least))

    def shown_from(self, odds: Fraction) -> int:
        """Return how many people a key needs for at least those odds; rarely one more."""
        if odds <= Fraction(1, 2):  # noise is not negative with more than even odds
            return self.least
        return self.least + gaussian.interval(self.variance, 2 * odds - 1)


@lru_cache(maxsize=1024)
def threshold_for(epsilon: Fraction, delta: Fraction, groups: int) -> Threshold | None:
    """Return the least threshold for that price of all groups; None if it would show no key."""
    rho = rho_within(epsilon, delta * CONVERSION)
    if rho == 0:
        return None
    variance = gaussian.variance_for(groups, rho)
    tail = delta * (1 - CONVERSION)
    least = _least(variance, tail / groups)
    if least is None or variance > gaussian.MAX_VARIANCE:
        return None
    return Threshold(variance, least, rho, tail)


def _least(variance: Fraction, limit: Fraction) -> int | None:
    """Return the smallest threshold T with P(1 + noise >= T) surely within the limit."""
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
    """Return an upper bound of P(noise >= t) for t >= 1; certified, and falling in t.

    The weights from t on fall faster than a geometric series, and all weights together are at
    least 1 and at least sigma times the square root of 2 pi.
    """
    one = 1 << _BITS
    first = exp_minus(Fraction(t * t) / (2 * variance), _BITS)[1]
    factor = exp_minus(Fraction(2 * t + 1) / (2 * variance), _BITS)[1]
    if factor >= one:  # a variance so wide that the next weight cannot be told from this one
        return Fraction(1)
    whole = max(Fraction(1), _root_below(TWO_PI * variance))
    return min(Fraction(first, one - factor) / whole, Fraction(1))


def _root_below(square: Fraction) -> Fraction:
    """Return a lower bound of the square root, within one part in 2**64 for what is above one."""
    return Fraction(math.isqrt((square.numerator << 128) // square.denominator), 1 << 64)
