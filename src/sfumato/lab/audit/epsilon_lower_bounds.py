"""What guesses prove: lower bounds of epsilon from how many of them were right.

Somebody guesses, for each of n fair coins, on which side of a neighbouring pair a mechanism ran, or
abstains. Under (epsilon, 0)-DP a guess is right with a chance of at most e**eps / (1 + e**eps),
whatever the guesser does; under (epsilon, delta)-DP up to Bin(n, delta) coins are told besides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.system.optional_packages import extra_module

Floats = NDArray[np.float64]
ROUNDED: Final = 1e-9  # a bound is lowered by this, for what floats may be off by
STEPS: Final = 40  # halvings of the interval in which a one-run bound lies


@dataclass(frozen=True)
class Score:
    """How a guesser did: coins flipped, guesses made, guesses right."""

    coins: int
    guesses: int
    right: int


def special() -> Any:  # a module that may be absent
    """Return scipy's special functions, or refuse with the extra that brings them."""
    return extra_module("scipy.special", "lab")


def share_of(alpha: float, epoch: int) -> float:
    """Return what epoch 1, 2, ... may spend of alpha: 6 alpha / (pi k)**2, in all alpha."""
    return alpha * 6 / (math.pi * epoch) ** 2


def accuracy(epsilon: float) -> float:
    """Return how often a guess is right at most, under that epsilon."""
    return 1 / (1 + math.exp(-epsilon)) if epsilon < 700 else 1.0


def surely_above(right: int, guesses: int, alpha: float) -> float:
    """Return the Clopper-Pearson lower bound of the chance that a guess is right."""
    if right <= 0:
        return 0.0
    return float(special().betaincinv(right, guesses - right + 1, alpha))


def most_told(coins: int, delta: float, alpha: float) -> int:
    """Return how many coins a delta tells at most, but with chance alpha."""
    if delta <= 0:
        return 0
    most = min(coins, math.ceil(coins * delta + 12 * math.sqrt(coins * delta) + 60))
    tails = special().bdtrc(np.arange(most), coins, delta)
    within = np.flatnonzero(tails <= alpha)
    return int(within[0]) if within.size else coins


def epsilon_above(score: Score, delta: float, alpha: float) -> float:
    """Return an epsilon that the mechanism surely has at least, for that delta; of fresh coins.

    What the delta may have told is taken away as right guesses, which is the worst that it can be.
    """
    told = most_told(score.coins, delta, alpha / 2)
    level = alpha / 2 if delta > 0 else alpha
    return _logit(surely_above(score.right - told, score.guesses - told, level))


def _logit(chance: float) -> float:
    if chance <= 0.5:
        return 0.0
    return max(0.0, math.log(chance / (1 - chance)) - ROUNDED)


def one_run_above(score: Score, delta: float, alpha: float) -> float:
    """Return an epsilon that one release with many coins surely has at least, for that delta.

    Steinke, Nasr and Jagielski (2023), theorem 5.2: the right guesses of one run are dominated by
    a binomial, and by a little more under a delta, however the release ties the coins together.
    """
    if delta <= 0:
        return _logit(surely_above(score.right, score.guesses, alpha))
    if one_run_chance(score, 0.0, delta) > alpha:
        return 0.0
    low, high = 0.0, 30.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        is_out = one_run_chance(score, middle, delta) <= alpha
        low, high = (middle, high) if is_out else (low, middle)
    return max(0.0, low - ROUNDED)


def one_run_chance(score: Score, epsilon: float, delta: float) -> float:
    """Return a bound of the chance of so many right guesses in one (epsilon, delta)-DP run."""
    q = accuracy(epsilon)
    fewer = np.arange(score.right, -1, -1)  # at least v, v - 1, ..., 0 right
    at_least = np.where(fewer > 0, special().bdtrc(np.maximum(fewer - 1, 0), score.guesses, q), 1.0)
    gains = (at_least[1:] - at_least[0]) / np.arange(1, len(fewer))
    steepest = float(gains.max()) if gains.size else 0.0
    return min(1.0, float(at_least[0]) + 2 * score.coins * delta * steepest)


def evidence(right: Floats, guesses: Floats, epsilon: float) -> Floats:
    """Return how much each count of right guesses speaks against that epsilon, in nats."""
    q = accuracy(epsilon)
    p = (right + 0.5) / (guesses + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = guesses * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    return np.asarray(np.where((p > q) & (guesses > 0), nats, 0.0), dtype=np.float64)


def relative_entropy(p: float, q: float) -> float:
    """Return KL(p || q) of two coins, in nats; 0 < q <= p is what the bounds give."""
    if not 0 < q < 1:
        return 0.0
    other = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return max(0.0, p * math.log(p / q) + other - ROUNDED) if p > 0 else max(0.0, other - ROUNDED)


def divergence_of_order_2(p: float, q: float) -> float:
    """Return Renyi's divergence of order 2 of two coins, in nats; 0 < q <= p as above."""
    if not 0 < q < 1:
        return 0.0
    return max(0.0, math.log(p**2 / q + (1 - p) ** 2 / (1 - q)) - ROUNDED)
