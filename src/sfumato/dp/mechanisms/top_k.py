"""Private top-k: the indices of the k most frequent candidates, without their counts.

Peeling applies the exponential mechanism at epsilon / k, removes the chosen candidate, and repeats.
A single candidate may also be found as the largest noisy count (report noisy max). The candidates
are public, or partition selection chose them earlier at its own price (soundness rule 19).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from sfumato.dp.mechanisms import exponential, laplace
from sfumato.dp.mechanisms.exponential import exponential_mechanism, rate_for
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.threshold_table import Integers


def most_frequent(
    counts: Integers, k: int, *, epsilon: Fraction, values: int, dice: RandomSource
) -> tuple[int, ...]:
    """Return the indices of k frequent candidates, in the order in which peeling chose them.

    The whole choice costs epsilon. `values` is the sensitivity of each count: one person adds at
    most `values` to any count. Adding a person must not lower a count.
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
    """Return the total zCDP cost of a private top-k at epsilon: rho = epsilon**2 / (8 k).

    The k choices by the exponential mechanism cost epsilon / k each.
    """
    return k * exponential.rho_of(epsilon / k)


def noisy_max(counts: Integers, *, epsilon: Fraction, values: int, dice: RandomSource) -> int:
    """Return the index of the largest noisy count (report noisy max), with discrete Laplace noise.

    The first index wins a tie. The cost is epsilon, or rho = epsilon**2 / 2 under zCDP. The caller
    must never release the noisy counts.
    """
    if counts.size == 0:
        raise Bug("there must be a candidate to be found")
    noise = laplace.sample(laplace.scale_for(values, epsilon), counts.size, dice)
    return int(np.argmax(counts + noise))
