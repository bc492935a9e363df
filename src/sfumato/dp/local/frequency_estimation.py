"""Unbiased frequency estimates from a tally, with exact variances and confidence intervals.

A report supports an answer with probability lambda = q + (p - q) * share. Here share is the share
of people with that answer. Their reports support it with probability p. The report of a person with
another answer supports it with probability q. The relation is linear, so its inverse gives an
unbiased estimate of share.

For a random sample of people, the number of supporting reports is binomial. So the variance of the
estimate is lambda * (1 - lambda) / (people * (p - q)**2) for every oracle
(frequency_estimation.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.dp.local.frequency_oracle import Floats, Oracle, Tally
from sfumato.dp.local.proportion_intervals import intervals, into_shares
from sfumato.dp.refusal import Refused


@dataclass(frozen=True, eq=False)
class Shares:
    """The estimated share of people with each answer, with variances and confidence intervals."""

    people: int
    shares: Floats  # unbiased, so an estimate may be below 0 or above 1
    variances: Floats  # unbiased estimates of the variances of `shares`
    low: Floats  # lower ends of the confidence intervals, from 0 to 1
    high: Floats

    @property
    def stds(self) -> Floats:
        """Return the standard deviation of each answer's estimated share."""
        return np.sqrt(self.variances)


def estimate(tally: Tally, confidence: float = 0.95) -> Shares:
    """Estimate the share of people with each answer; refuse a tally of fewer than two people."""
    people, oracle = tally.people, tally.oracle
    if people < 2:
        raise Refused(
            "bad-request",
            "Shares cannot be estimated from fewer than two reports.",
            "Wait until at least two people have sent a report.",
        )
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
    """Return the expected share of reports that support each answer, given the true shares."""
    return np.asarray(oracle.q + float(oracle.p_minus_q) * shares)


def variances(oracle: Oracle, shares: Floats, people: int) -> Floats:
    """Return the variance of each estimated share, for a random sample of `people`."""
    seen = observed(oracle, shares)
    return np.asarray(seen * (1 - seen) / (people * float(oracle.p_minus_q) ** 2))
