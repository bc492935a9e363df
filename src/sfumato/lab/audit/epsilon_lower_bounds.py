"""Compute lower bounds of epsilon from the number of right guesses of an attacker.

For each of n fair coins, the attacker guesses on which of two neighbours a mechanism ran, or
abstains. Under (epsilon, 0)-DP, every guess is right with a chance of at most
e**eps / (1 + e**eps). Under (epsilon, delta)-DP, up to Bin(n, delta) coins are revealed in
addition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.system.optional_packages import extra_module

Floats = NDArray[np.float64]
ROUNDED: Final = 1e-9  # subtracted from each bound; it covers float rounding
STEPS: Final = 40  # number of bisection steps for the bound of one run


@dataclass(frozen=True)
class Score:
    """An attacker's score: the numbers of coins flipped, guesses made, and right guesses."""

    coins: int
    guesses: int
    right: int


def special() -> Any:  # a module that may be absent
    """Return scipy.special, or refuse and name the extra that installs it."""
    return extra_module("scipy.special", "lab")


def share_of(alpha: float, epoch: int) -> float:
    """Return the share of alpha that an epoch spends: 6 alpha / (pi k)**2 for epoch k.

    The shares of all epochs sum to alpha.
    """
    return alpha * 6 / (math.pi * epoch) ** 2


def accuracy(epsilon: float) -> float:
    """Return the highest probability of a right guess that epsilon allows: e^eps / (1 + e^eps)."""
    return 1 / (1 + math.exp(-epsilon)) if epsilon < 700 else 1.0


def surely_above(right: int, guesses: int, alpha: float) -> float:
    """Return a lower confidence bound of the chance that a guess is right (Clopper-Pearson).

    The bound is wrong with a chance of at most `alpha`.
    """
    if right <= 0:
        return 0.0
    return float(special().betaincinv(right, guesses - right + 1, alpha))


def most_told(coins: int, delta: float, alpha: float) -> int:
    """Return an upper bound on the coins that a mechanism reveals with probability delta each.

    The bound is wrong with a chance of at most `alpha`.
    """
    if delta <= 0:
        return 0
    most = min(coins, math.ceil(coins * delta + 12 * math.sqrt(coins * delta) + 60))
    tails = special().bdtrc(np.arange(most), coins, delta)
    within = np.flatnonzero(tails <= alpha)
    return int(within[0]) if within.size else coins


def epsilon_above(score: Score, delta: float, alpha: float) -> float:
    """Return a lower confidence bound of epsilon at that delta, from independent runs.

    The coins that delta may have revealed are subtracted from the right guesses: the worst case.
    """
    told = most_told(score.coins, delta, alpha / 2)
    level = alpha / 2 if delta > 0 else alpha
    return _logit(surely_above(score.right - told, score.guesses - told, level))


def _logit(chance: float) -> float:
    if chance <= 0.5:
        return 0.0
    return max(0.0, math.log(chance / (1 - chance)) - ROUNDED)


def one_run_above(score: Score, delta: float, alpha: float) -> float:
    """Return a lower confidence bound of epsilon at that delta, from one run with many coins.

    A binomial dominates the right guesses of one run, however the release correlates the coins. A
    delta adds a small correction (Steinke, Nasr and Jagielski 2023, theorem 5.2).
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
    """Bound the chance of at least as many right guesses as in `score`, for one run.

    The bound holds if the run is (epsilon, delta)-DP. So a tiny chance refutes that epsilon.
    """
    q = accuracy(epsilon)
    # the terms for "at least v, v - 1, ..., 0 guesses are right"
    fewer = np.arange(score.right, -1, -1)
    at_least = np.where(fewer > 0, special().bdtrc(np.maximum(fewer - 1, 0), score.guesses, q), 1.0)
    gains = (at_least[1:] - at_least[0]) / np.arange(1, len(fewer))
    steepest = float(gains.max()) if gains.size else 0.0
    return min(1.0, float(at_least[0]) + 2 * score.coins * delta * steepest)


def evidence(right: Floats, guesses: Floats, epsilon: float) -> Floats:
    """Return how strongly each number of right guesses contradicts this epsilon, in nats.

    It is the number of guesses times the relative entropy of the observed and the allowed accuracy.
    It is 0 if the observed accuracy is lower.
    """
    q = accuracy(epsilon)
    p = (right + 0.5) / (guesses + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = guesses * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    return np.asarray(np.where((p > q) & (guesses > 0), nats, 0.0), dtype=np.float64)


def relative_entropy(p: float, q: float) -> float:
    """Return KL(p || q) of two Bernoulli chances, in nats; the bounds give 0 < q <= p."""
    if not 0 < q < 1:
        return 0.0
    other = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return max(0.0, p * math.log(p / q) + other - ROUNDED) if p > 0 else max(0.0, other - ROUNDED)


def divergence_of_order_2(p: float, q: float) -> float:
    """Return the Renyi divergence of order 2 of two Bernoulli chances, in nats; 0 < q <= p."""
    if not 0 < q < 1:
        return 0.0
    return max(0.0, math.log(p**2 / q + (1 - p) ** 2 / (1 - q)) - ROUNDED)
