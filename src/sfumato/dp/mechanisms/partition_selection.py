"""Optimal partition selection: decide which private keys to release (Desfontaines et al. 2020).

The mechanism keeps a key with n people with probability p(n). This is the largest probability that
(epsilon, delta)-DP allows when one person changes n by one. The probabilities are integers over
2**64. The code rounds each down before it computes the next, so the rounded values satisfy both DP
inequalities (partition_selection.proof.md).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.certified_arithmetic import exp_minus

ONE: Final = 1 << 64  # probability one
MAX_LENGTH: Final = 1 << 18  # most people from which a key is always kept
_BITS: Final = 192


def per_key(epsilon: Fraction, delta: Fraction, groups: int) -> tuple[Fraction, Fraction]:
    """Split epsilon and delta of partition selection over the `groups` keys of one person.

    `groups` is the contribution bound: in how many groups one person is at most.
    """
    return epsilon / groups, delta / groups


@lru_cache(maxsize=64)
def keep_probabilities(epsilon: Fraction, delta: Fraction) -> tuple[int, ...]:
    """Return the probability to release a key with 0, 1, 2, ... people, up to the first that is 1.

    The probabilities are integers over 2**64.
    """
    if epsilon <= 0 or not 0 <= delta < 1:
        raise Bug("selection needs an epsilon above zero and a delta below one")
    shrink = exp_minus(epsilon, _BITS)[1]  # exp(-epsilon), rounded up
    grow = (1 << 2 * _BITS) // shrink  # exp(epsilon), rounded down
    extra = delta.numerator * ONE // delta.denominator
    kept = [0]
    while kept[-1] < ONE:
        if extra == 0 or len(kept) > MAX_LENGTH:
            raise _too_small()
        kept.append(_next(kept[-1], extra, grow, shrink))
    return tuple(kept)


def people_for_even_odds(epsilon: Fraction, delta: Fraction) -> float:
    """Return how many people a key needs so that it is released with probability one half.

    Up to one half, the release probability of a key is a geometric sum in its number of people. The
    result only serves to compare mechanisms, so a float is enough. Sampling never uses it.
    """
    grown = math.expm1(min(float(epsilon), 700.0))
    if delta == 0:
        return math.inf
    return math.ceil(math.log1p(grown / (2 * float(delta))) / float(epsilon))


def _next(kept: int, extra: int, grow: int, shrink: int) -> int:
    """Return the largest allowed probability to release a key with n + 1 people, given that for n.

    `kept` is the probability p(n) of a key with n people. Both inequalities of (epsilon, delta)-DP
    hold for the result p(n+1), which is rounded down.
    """
    from_kept = (grow * kept >> _BITS) + extra
    dropped = max(0, ONE - kept - extra)
    from_dropped = ONE + (-shrink * dropped >> _BITS)
    return min(from_kept, from_dropped, ONE)


def _too_small() -> Refused:
    return Refused(
        "noise-out-of-range",
        "The epsilon or the delta for choosing keys is too small for any key to be shown.",
        "Give a larger epsilon or delta, or limit each person to fewer groups.",
    )


def keep_partitions(
    counts: NDArray[np.int64], epsilon: Fraction, delta: Fraction, dice: RandomSource
) -> NDArray[np.bool_]:
    """Return a mask of the keys to release, drawn at random from the number of people of each key.

    Every key consumes the same number of random bits.
    """
    certain, odds = _odds(epsilon, delta)
    uniforms = np.frombuffer(dice.draw(8 * counts.size), dtype="<u8").reshape(counts.shape)
    places = np.clip(counts, 0, certain - 1)
    return np.asarray((uniforms < odds[places]) | (counts >= certain))


@lru_cache(maxsize=64)
def _odds(epsilon: Fraction, delta: Fraction) -> tuple[int, NDArray[np.uint64]]:
    """Return from how many people on a key is always released, and the probabilities below that."""
    kept = keep_probabilities(epsilon, delta)
    return len(kept) - 1, np.array(kept[:-1], dtype=np.uint64)
