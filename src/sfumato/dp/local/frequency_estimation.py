"""From a tally back to shares: right on average, with exact variances and intervals that hold.

A share v of the people whose answer is v makes v spoken for with the chance lambda = by_chance +
contrast * share. The way back is a straight line, so the estimate is right on average; people drawn
by chance make the count binomial, so its variance is lambda * (1 - lambda) / (people *
contrast**2), for every kind of oracle (frequency_estimation.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.dp.local.frequency_oracle import Floats, Oracle, Tally
from sfumato.dp.local.proportion_intervals import intervals, into_shares
from sfumato.dp.refusal import Refused


@dataclass(frozen=True, eq=False)
class Shares:
    """The share of every answer, and what the randomiser leaves in doubt."""

    people: int
    shares: Floats  # right on average, so some may lie below 0 or above 1
    variances: Floats  # estimated without bias
    low: Floats  # from 0 to 1
    high: Floats

    @property
    def stds(self) -> Floats:
        """Return the standard deviation of each share."""
        return np.sqrt(self.variances)


def estimate(tally: Tally, confidence: float = 0.95) -> Shares:
    """Return the shares behind a tally of two people or more."""
    people, oracle = tally.people, tally.oracle
    if people < 2:
        raise Refused("bad-request", "Nobody can be hidden among so few.", "Wait for more reports.")
    supports = oracle.supports(tally.counts)
    seen, contrast = supports / people, float(oracle.contrast)
    ends = ((end - oracle.by_chance) / contrast for end in intervals(supports, people, confidence))
    return Shares(
        people,
        (seen - oracle.by_chance) / contrast,
        seen * (1 - seen) / ((people - 1) * contrast**2),
        *into_shares(*ends),
    )


def observed(oracle: Oracle, shares: Floats) -> Floats:
    """Return how often each answer is spoken for, where these are the shares."""
    return np.asarray(oracle.by_chance + float(oracle.contrast) * shares)


def variances(oracle: Oracle, shares: Floats, people: int) -> Floats:
    """Return the variance of each estimate, from so many people drawn by chance."""
    seen = observed(oracle, shares)
    return np.asarray(seen * (1 - seen) / (people * float(oracle.contrast) ** 2))
