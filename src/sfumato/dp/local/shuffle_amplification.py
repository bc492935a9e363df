"""The shuffle model: what mixing the reports adds, against those who see only the mixed batch.

The bound is that of the clones of 2021 (Feldman, McMillan and Talwar, "Hiding among the clones"),
for any randomiser of one report: each of the others is, with the chance exp(-e), a clone of one of
the two possible reports of the person who is looked for. So what outsiders learn is at most how
often a coin of unknown side fell among that many fair coins. It is computed from the chances of
every number of clones; what is left out is added to delta, and where clones are taken together, it
is with the fewest, which can only raise it. The theorems of 2023 have an erratum; none is used.

Only for real mixing in batches, with names, order and time removed, and against outsiders, not the
server. Never on a respondent's page, never as a debit. The people are those whose reports arrived
and are honest: n = (1 - share of liars) * received.
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
_STEPS: Final = 30  # of a bisection
_BUCKETS: Final = 300  # numbers of clones that are told apart
_FEW_BUCKETS: Final = 40  # among more than ten million people, where each takes long
_SAFE: Final = 1e-6  # of what is computed in floats is added to it
_LEFT_OUT: Final = 1e-40  # more than the chance of all that is not looked at


def amplified(local: float, people: int, delta: float) -> float:
    """Return the epsilon of a mixed batch at this delta; the local one where that is no more."""
    _check(local, people, delta)
    if delta_of(local, local, people) > delta:
        return local
    low, high = 0.0, local
    for _ in range(_STEPS):
        middle = (low + high) / 2
        is_enough = delta_of(middle, local, people) <= delta
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def closed_form(local: float, people: int, delta: float) -> float:
    """Return the epsilon of the formula of 2021, where it holds; the local one elsewhere."""
    _check(local, people, delta)
    if people <= 16 * log(2 / delta) or local > log(people / (16 * log(2 / delta))):
        return local
    odds = exp(local)
    more = 8 * sqrt(odds * log(4 / delta)) / sqrt(people) + 8 * odds / people
    return min(local, log1p((odds - 1) / (odds + 1) * more))


def delta_of(epsilon: float, local: float, people: int) -> float:
    """Return a delta of a mixed batch at this epsilon: never below the true one of the bound."""
    if epsilon >= local:
        return 0.0
    fewest, chances = _clones(people - 1, exp(-local))
    total = _LEFT_OUT
    for clones, chance in zip(fewest.tolist(), chances.tolist(), strict=True):
        total += chance * _apart(clones, epsilon, local)
    return min(1.0, total * (1 + _SAFE))


def _apart(clones: int, epsilon: float, local: float) -> float:
    """Return by how much the two sides differ beyond exp(epsilon), among so many fair coins.

    With c heads among the clones and one coin more, which is heads with the chance w on one side
    and 1 - w on the other, w = e / (e + 1), h heads are seen. The ratio of the sides grows with h,
    so the worst event is "h is at least so many"; its neighbours are looked at too, as a float may
    round it away.
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
    """Return the chance that so many fair coins or more fall on heads."""
    first, chances = _binomial(coins, 0.5)
    sums = np.cumsum(chances[::-1])[::-1]

    def at_least(heads: int) -> float:
        place = heads - first
        return 1.0 if place < 0 else float(sums[place]) if place < len(sums) else 0.0

    return at_least


@lru_cache(maxsize=2)
def _binomial(times: int, chance: float) -> tuple[int, Floats]:
    """Return the chances near the middle of a binomial, and the first number that has one.

    What is left out on either side is below exp(-100).
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
    return low, made / min(1.0, float(made.sum()))  # of a thousand millions lgamma errs by 1e-5


@lru_cache(maxsize=64)
def _clones(people: int, chance: float) -> tuple[IntegerArray, Floats]:
    """Return numbers of clones, each standing for itself and some above it, and their chances."""
    if people == 0:
        return np.zeros(1, dtype=np.int64), np.ones(1)
    first, chances = _binomial(people, chance)
    buckets = _BUCKETS if people <= 10**7 else _FEW_BUCKETS
    starts = np.unique(np.linspace(0, len(chances), buckets, endpoint=False).astype(np.int64))
    return first + starts, np.add.reduceat(chances, starts)


def _check(local: float, people: int, delta: float) -> None:
    if not (local > 0 and people >= 1 and 0 < delta < 1):
        raise Refused(
            "bad-request", "No such batch.", "Give an epsilon, people, and a delta below 1."
        )
