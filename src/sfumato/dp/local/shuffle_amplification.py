"""Privacy amplification in the shuffle model, against outsiders who see only the shuffled batch.

The bound is "Hiding among the clones" (Feldman, McMillan and Talwar 2021), for any randomiser of
one report. Each other report is, with probability exp(-e), a clone of one of the two possible
reports of the target. So an outsider learns at most the side of one biased coin among that many
fair coins.

The code sums delta over the possible numbers of clones, and adds omitted probability to delta. It
groups the numbers of clones, and each group counts as its smallest number. That can only increase
delta. The theorems of 2023 have an erratum, so none of them is used.

Use the bound only if reports are really shuffled in batches, with names, order and time removed. It
protects against outsiders, not against the server. Never show it on a respondent's page, and never
charge by it. `people` are those whose honest reports arrived: n = (1 - share of liars) * received.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil, exp, floor, lgamma, log, log1p, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused

Floats = NDArray[np.float64]
IntegerArray = NDArray[np.int64]
_STEPS: Final = 30  # bisection steps
_BUCKETS: Final = 300  # groups of numbers of clones that `_clones` makes
_FEW_BUCKETS: Final = 40  # groups for more than ten million people, where each group is slow
_SAFE: Final = 1e-6  # relative margin for float rounding
_LEFT_OUT: Final = 1e-40  # upper bound of the omitted probability


def amplified(local: float, people: int, delta: float) -> float:
    """Return the epsilon of a shuffled batch at this delta; it is at most the local epsilon.

    `local` is the local epsilon, and `people` the number of honest reports in the batch.
    """
    _check(local, people, delta)
    if delta_of(local, local, people) > delta:
        return local
    low, high = 0.0, local
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_enough = delta_of(middle, local, people) <= delta
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def delta_of(epsilon: float, local: float, people: int) -> float:
    """Return an upper bound of the delta of a shuffled batch at this epsilon.

    `local` is the local epsilon, and `people` the number of honest reports in the batch.
    """
    if epsilon >= local:
        return 0.0
    fewest, chances = _clones(people - 1, exp(-local))
    total = _LEFT_OUT
    for clones, chance in zip(fewest.tolist(), chances.tolist(), strict=True):
        total += chance * _hockey_stick(clones, epsilon, local)
    return min(1.0, total * (1 + _SAFE))


def _hockey_stick(clones: int, epsilon: float, local: float) -> float:
    """Return the delta of a shuffled batch at this epsilon, given the number of clones.

    A clone is another person's report that looks like one of the two possible reports of the
    target. The observation is the number h of heads among the clones' fair coins and one coin more.
    That coin is heads with probability w on one side and 1 - w on the other. Here w = e / (e + 1)
    and e = exp(local). The likelihood ratio increases with h, so the worst event is "h >= some
    threshold". Neighbouring thresholds are tried too, because of float rounding.
    """
    heads, odds = 1 / (1 + exp(-local)), exp(epsilon)
    worst = floor((clones + 1) * (odds * heads - (1 - heads)) / ((2 * heads - 1) * (1 + odds)))
    tails = _tails(clones)

    def beyond(least: int) -> float:
        before, at = tails(least - 1), tails(least)
        first, second = heads * before + (1 - heads) * at, (1 - heads) * before + heads * at
        return first - odds * second

    return max(0.0, *(beyond(worst + shift) for shift in range(-1, 4)))


@lru_cache(maxsize=320)
def _tails(coins: int) -> Callable[[int], float]:
    """Return a function that gives the probability of at least n heads among this many fair coins.

    `_hockey_stick` computes the delta of a shuffled batch from these probabilities.
    """
    first, chances = _binomial(coins, 0.5)
    sums = np.cumsum(chances[::-1])[::-1]

    def at_least(heads: int) -> float:
        place = heads - first
        return 1.0 if place < 0 else float(sums[place]) if place < len(sums) else 0.0

    return at_least


@lru_cache(maxsize=2)
def _binomial(times: int, chance: float) -> tuple[int, Floats]:
    """Return the binomial distribution of successes among `times` trials, without its far tails.

    The result is the first number of successes, and the probabilities from it on. The omitted
    probability on each side is below exp(-100).
    """
    centre = min(times, floor((times + 1) * chance))
    reach = ceil(15 * sqrt(times * chance * (1 - chance))) + 60
    low, high = max(0, centre - reach), min(times, centre + reach)
    ways = lgamma(times + 1) - lgamma(centre + 1) - lgamma(times - centre + 1)
    middle = ways + centre * log(chance) + (times - centre) * log1p(-chance)
    odds = log(chance) - log1p(-chance)
    up = np.arange(centre, high)
    down = np.arange(centre, low, -1)
    above = np.cumsum(np.log((times - up) / (up + 1)) + odds)
    below = np.cumsum(np.log(down / (times - down + 1)) - odds)
    made = np.exp(middle + np.concatenate([below[::-1], [0.0], above]))
    return low, made / min(1.0, float(made.sum()))  # for 1e9 trials lgamma errs by 1e-5


@lru_cache(maxsize=64)
def _clones(people: int, chance: float) -> tuple[IntegerArray, Floats]:
    """Return the distribution of how many other reports hide the target's, in coarse groups.

    Such a report is a clone: it looks like one of the two possible reports of the target. The
    result has the smallest number of each group, and the probability of the group.
    """
    if people == 0:
        return np.zeros(1, dtype=np.int64), np.ones(1)
    first, chances = _binomial(people, chance)
    buckets = _BUCKETS if people <= 10**7 else _FEW_BUCKETS
    starts = np.unique(np.linspace(0, len(chances), buckets, endpoint=False).astype(np.int64))
    return first + starts, np.add.reduceat(chances, starts)


def _check(local: float, people: int, delta: float) -> None:
    if not (local > 0 and people >= 1 and 0 < delta < 1):
        raise Refused(
            "bad-request",
            "The epsilon, the number of people or the delta of the shuffled batch is out of range.",
            "Give an epsilon above 0, at least one person, and a delta between 0 and 1.",
        )
