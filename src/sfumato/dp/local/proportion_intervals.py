"""Intervals for a chance, from how often something was seen: exact where counts are small.

Wilson's interval wanders below its word where few are expected on one side: at 95 % and a rare
event it can hold 83 times in 100. So it serves only where both sides have been seen often; below
that the interval of Clopper and Pearson takes its place, which never falls short, and is wider than
need be. tests/dp/local/test_frequency_estimation.py adds up the chances of every count.
"""

from __future__ import annotations

from functools import lru_cache
from math import log, log1p
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
OFTEN: Final = 400  # seen on both sides: Wilson's wandering is within 0.3 % there
_HALVINGS: Final = 60


def intervals(seen: Integers, people: int, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return the lower and the upper end for each chance, of events seen among so many people."""
    low, high = wilson(seen / people, people, confidence)
    rare = np.minimum(seen, people - seen) < OFTEN
    for place in np.flatnonzero(rare):
        low[place], high[place] = exact(int(seen[place]), people, confidence)
    return low, high


def into_shares(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the intervals cut to 0 and 1; none loses its whole width by it.

    Of one whose middle lies beyond an end, half the width stays on this side: where chance has
    taken an estimate outside, it is no more certain than inside.
    """
    half = (high - low) / 2
    return np.clip(np.minimum(low, 1 - half), 0, 1), np.clip(np.maximum(high, half), 0, 1)


def wilson(shares: Floats, people: int, confidence: float) -> tuple[Floats, Floats]:
    """Return the interval of Wilson (1927)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    whole = 1 + z * z / people
    middle = (shares + z * z / (2 * people)) / whole
    arm = np.sqrt(shares * (1 - shares) / people + (z / (2 * people)) ** 2) * z / whole
    return middle - arm, middle + arm


@lru_cache(maxsize=4096)
def exact(seen: int, people: int, confidence: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson (1934): each side is wrong half as often."""
    side = (1 - confidence) / 2
    if 2 * seen > people:
        low, high = exact(people - seen, people, confidence)
        return 1 - high, 1 - low
    low = _least(seen - 1, people, 1 - side) if seen else 0.0
    return low, _least(seen, people, side)


def at_most(seen: int, people: int, chance: float) -> float:
    """Return the chance that something of this chance happens so often at most."""
    if seen < 0 or chance >= 1:
        return float(seen >= people)
    if chance <= 0:
        return 1.0
    return float(np.exp(_log_ways(seen, people) + _log_times(seen, people, chance)).sum())


def _log_ways(seen: int, people: int) -> Floats:
    """Return the logarithms of how many ways there are to see 0, 1, ... of all."""
    times = np.arange(1, seen + 1)
    return np.concatenate([[0.0], np.cumsum(np.log((people - times + 1) / times))])


def _log_times(seen: int, people: int, chance: float) -> Floats:
    times = np.arange(seen + 1)
    return np.asarray(times * log(chance) + (people - times) * log1p(-chance))


def _least(seen: int, people: int, limit: float) -> float:
    """Return the least chance of which so few are seen no more often than this."""
    ways = _log_ways(seen, people)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_reached = float(np.exp(ways + _log_times(seen, people, middle)).sum()) <= limit
        low, high = (low, middle) if is_reached else (middle, high)
    return high
