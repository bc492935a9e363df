"""The most frequent of some public candidates: their places, and never a count or a score.

k are peeled off one after the other, each by the exponential mechanism at epsilon / k; a single
one may also be found as the largest noisy count. The candidates are public, or were selected
before at their own price (soundness rule 19).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sfumato.dp.mechanisms import exponential, laplace
from sfumato.dp.mechanisms.exponential import exponential_mechanism, rate_for
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.threshold_table import Integers


def most_frequent(
    counts: Integers, k: int, *, epsilon: Fraction, values: int, dice: Dice
) -> tuple[int, ...]:
    """Return the places of k candidates in the order they were found; a person has few `values`.

    `values` is the most that one person adds to any one count; no count falls as they join.
    """
    if not 1 <= k <= counts.size:
        raise Bug("there must be at least as many candidates as are to be found")
    rate = rate_for(epsilon / k, values, monotone=True)
    left = np.arange(counts.size)
    found: list[int] = []
    for _ in range(k):
        place = exponential_mechanism(counts[left], None, rate, dice)
        found.append(int(left[place]))
        left = np.delete(left, place)
    return tuple(found)


def rho_of(epsilon: Fraction, k: int) -> Fraction:
    """Return what k peels at epsilon / k each cost together: epsilon**2 / (8 k)."""
    return k * exponential.rho_of(epsilon / k)


def noisy_max(counts: Integers, *, epsilon: Fraction, values: int, dice: Dice) -> int:
    """Return the place of the largest count plus discrete Laplace noise, the first if tied.

    It costs epsilon, and rho = epsilon**2 / 2. The noisy counts must never leave.
    """
    if counts.size == 0:
        raise Bug("there must be a candidate to be found")
    noise = laplace.sample(laplace.scale_for(values, epsilon), counts.size, dice)
    return int(np.argmax(counts + noise))
