"""Unbiased frequency estimates from a tally, with exact variances and confidence intervals.

A report supports an answer with probability lambda = q + (p - q) * share, where share is
the share of people with that answer. This is linear, so inverting it gives an unbiased estimate.
For a random sample of people the count is binomial, so the variance is lambda * (1 - lambda) /
(people * contrast**2), for every kind of oracle (frequency_estimation.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.dp.local.frequency_oracle import Floats, Oracle, Tally
from sfumato.dp.local.proportion_intervals import intervals, into_shares
from sfumato.dp.refusal import Refused


@dataclass(frozen=True, eq=False)
class Shares:
    """The estimated share of every answer, with variance and confidence interval."""

    people: int
    shares: Floats  # unbiased, so some may be below 0 or above 1
    variances: Floats  # unbiased estimates
    low: Floats  # from 0 to 1
    high: Floats

    @property
    def stds(self) -> Floats:
        """Return the standard deviation of each share."""
        return np.sqrt(self.variances)


def estimate(tally: Tally, confidence: float = 0.95) -> Shares:
    """Estimate the share of every answer from a tally of at least two people."""
    people, oracle = tally.people, tally.oracle
    if people < 2:
        raise Refused("bad-request", "Nobody can be hidden among so few.", "Wait for more reports.")
    supports = oracle.supports(tally.counts)
    seen, contrast = supports / people, float(oracle.p_minus_q)
    ends = ((end - oracle.q) / contrast for end in intervals(supports, people, confidence))
    return Shares(
        people,
        (seen - oracle.q) / contrast,
        seen * (1 - seen) / ((people - 1) * contrast**2),
        *into_shares(*ends),
    )


def observed(oracle: Oracle, shares: Floats) -> Floats:
    """Return the expected support of each answer, given the true shares."""
    return np.asarray(oracle.q + float(oracle.p_minus_q) * shares)


def variances(oracle: Oracle, shares: Floats, people: int) -> Floats:
    """Return the variance of each estimate, for a random sample of `people`."""
    seen = observed(oracle, shares)
    return np.asarray(seen * (1 - seen) / (people * float(oracle.p_minus_q) ** 2))
