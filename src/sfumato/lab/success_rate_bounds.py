"""Compute confidence intervals of a success rate, and its highest value under DP."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sfumato.system.optional_packages import extra_module


def interval(hits: int, tries: int, confidence: float) -> tuple[float, float]:
    """Return the exact confidence interval of a success probability (Clopper and Pearson 1934)."""
    miss = (1 - confidence) / 2
    return least(hits, tries, miss), most(hits, tries, miss)


def least(hits: int, tries: int, miss: float) -> float:
    """Return a lower confidence bound of a success probability, from hits and tries.

    The bound is wrong with a probability of at most `miss`.
    """
    if hits == 0:
        return 0.0
    return float(_stats().beta.ppf(miss, hits, tries - hits + 1))


def most(hits: int, tries: int, miss: float) -> float:
    """Return an upper confidence bound of a success probability, from hits and tries.

    The bound is wrong with a probability of at most `miss`.
    """
    if hits >= tries:
        return 1.0
    return float(_stats().beta.isf(miss, hits + 1, tries - hits))


def guessing_bound(epsilon: float, delta: float = 0.0, prior: float = 0.5) -> float:
    """Return the highest rate at which an attacker can tell neighbouring data sets apart under DP.

    `prior` is the probability of the likelier neighbour. The release changes the odds by at most
    e^epsilon, and with probability delta it may reveal the truth.
    """
    odds = math.exp(min(epsilon, 700.0)) * prior / (1 - prior)
    return min(1.0, delta + (1 - delta) * odds / (1 + odds))


def hit_rate_bound(epsilon: float, false_alarms: float, delta: float = 0.0) -> float:
    """Return the highest true positive rate that DP allows at a false positive rate.

    The attack is membership inference: `false_alarms` is the share of non-members that it names.
    """
    grown = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    shrunk = 1 - math.exp(-min(epsilon, 700.0)) * (1 - delta - false_alarms)
    return float(np.clip(min(grown, shrunk), 0.0, 1.0))


def _stats() -> Any:  # a module that may be absent
    extra_module("scipy", "lab")
    return extra_module("scipy.stats", "lab")
