"""What hits in a number of tries say of the chance behind them, at a stated confidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sfumato.system.optional_packages import extra_module


def interval(hits: int, tries: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided interval of a chance (Clopper and Pearson 1934)."""
    miss = (1 - confidence) / 2
    return least(hits, tries, miss), most(hits, tries, miss)


def least(hits: int, tries: int, miss: float) -> float:
    """Return what the chance is at least, but for a probability of `miss`."""
    if hits == 0:
        return 0.0
    return float(_stats().beta.ppf(miss, hits, tries - hits + 1))


def most(hits: int, tries: int, miss: float) -> float:
    """Return what the chance is at most, but for a probability of `miss`."""
    if hits >= tries:
        return 1.0
    return float(_stats().beta.isf(miss, hits + 1, tries - hits))


def guessing_bound(epsilon: float, delta: float = 0.0, prior: float = 0.5) -> float:
    """Return how often who guesses between two neighbours can be right, whatever they do.

    The likelier of the two has this prior. With odds of at most e^epsilon from the release, and all
    that delta may give away, nobody is right more often than this.
    """
    odds = math.exp(min(epsilon, 700.0)) * prior / (1 - prior)
    return min(1.0, delta + (1 - delta) * odds / (1 + odds))


def hit_rate_bound(epsilon: float, false_alarms: float, delta: float = 0.0) -> float:
    """Return the largest share of members who can be named, at that share of strangers named."""
    grown = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    shrunk = 1 - math.exp(-min(epsilon, 700.0)) * (1 - delta - false_alarms)
    return float(np.clip(min(grown, shrunk), 0.0, 1.0))


def _stats() -> Any:  # a module that may be absent
    extra_module("scipy", "lab")
    return extra_module("scipy.stats", "lab")
