"""Confidence intervals for a proportion: Wilson for large counts, Clopper-Pearson for small ones.

The coverage of Wilson's interval can be too low for rare events: 83 % instead of 95 %. So the code
uses it only if both outcomes have large counts. Otherwise it uses the exact interval of Clopper and
Pearson. That interval's coverage is never too low, but it is wider than necessary.
tests/dp/local/test_frequency_estimation.py computes the coverage over all counts.
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
# least count of both outcomes for Wilson; then its coverage errs by at most 0.3 %
OFTEN: Final = 400
_HALVINGS: Final = 60


def intervals(seen: Integers, people: int, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return the ends (low, high) of the confidence interval of each proportion seen / people."""
    low, high = wilson(seen / people, people, confidence)
    rare = np.minimum(seen, people - seen) < OFTEN
    for place in np.flatnonzero(rare):
        low[place], high[place] = exact(int(seen[place]), people, confidence)
    return low, high


def into_shares(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Limit confidence intervals of shares to 0..1, but keep at least half of their width.

    An interval whose middle is below 0 or above 1 keeps half its width inside. An estimate that is
    outside by chance is no more certain than one inside.
    """
    half = (high - low) / 2
    return np.clip(np.minimum(low, 1 - half), 0, 1), np.clip(np.maximum(high, half), 0, 1)


def wilson(shares: Floats, people: int, confidence: float) -> tuple[Floats, Floats]:
    """Return the ends of Wilson's score interval (1927), a confidence interval for each share."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    whole = 1 + z * z / people
    middle = (shares + z * z / (2 * people)) / whole
    arm = np.sqrt(shares * (1 - shares) / people + (z / (2 * people)) ** 2) * z / whole
    return middle - arm, middle + arm


@lru_cache(maxsize=4096)
def exact(seen: int, people: int, confidence: float) -> tuple[float, float]:
    """Return the ends of the Clopper-Pearson interval (1934) of the proportion seen / people.

    Each side misses with half the probability.
    """
    side = (1 - confidence) / 2
    if 2 * seen > people:
        low, high = exact(people - seen, people, confidence)
        return 1 - high, 1 - low
    low = _least(seen - 1, people, 1 - side) if seen else 0.0
    return low, _least(seen, people, side)


def at_most(seen: int, people: int, chance: float) -> float:
    """Return the binomial probability of at most `seen` successes among `people` trials.

    Each trial succeeds with probability `chance`.
    """
    if seen < 0 or chance >= 1:
        return float(seen >= people)
    if chance <= 0:
        return 1.0
    return float(np.exp(_log_ways(seen, people) + _log_times(seen, people, chance)).sum())


def _log_ways(seen: int, people: int) -> Floats:
    """Return the logarithms of the binomial coefficients (people over i), for i = 0 to `seen`."""
    times = np.arange(1, seen + 1)
    return np.concatenate([[0.0], np.cumsum(np.log((people - times + 1) / times))])


def _log_times(seen: int, people: int, chance: float) -> Floats:
    times = np.arange(seen + 1)
    return np.asarray(times * log(chance) + (people - times) * log1p(-chance))


def _least(seen: int, people: int, limit: float) -> float:
    """Return the smallest probability p with binomial P(X <= seen) <= limit, found by bisection."""
    ways = _log_ways(seen, people)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_reached = float(np.exp(ways + _log_times(seen, people, middle)).sum()) <= limit
        low, high = (low, middle) if is_reached else (middle, high)
    return high
