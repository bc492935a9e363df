"""Sample size and margin of error of a survey, and the influence of malicious respondents.

All results depend only on the question, the randomiser and the number of people, never on an answer
(soundness rule 35).
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np

from sfumato.dp.local.frequency_estimation import variances
from sfumato.dp.local.frequency_oracle import Oracle
from sfumato.dp.local.numeric_response import Numbers, worst_variance
from sfumato.dp.refusal import Refused


def people_for(
    oracle: Oracle, margin: float, *, share: float | None = None, confidence: float = 0.95
) -> int:
    """Return how many people a survey needs so that every share has at most this margin of error.

    A margin of 0.02 is two percentage points. `share` is the expected share; without it, the code
    assumes the worst share.
    """
    return _people(_variance(oracle, share), margin, confidence)


def margin_of(
    oracle: Oracle, people: int, *, share: float | None = None, confidence: float = 0.95
) -> float:
    """Return the margin of error of a share that is estimated from `people` reports."""
    return _z(confidence) * sqrt(_variance(oracle, share) / people)


def people_for_mean(oracle: Numbers, margin: float, *, confidence: float = 0.95) -> int:
    """Return how many people a survey needs for this margin of error of a mean, in grid steps.

    The result assumes that everybody gives a number.
    """
    return _people(float(worst_variance(oracle)), margin, confidence)


def margin_of_mean(oracle: Numbers, people: int, *, confidence: float = 0.95) -> float:
    """Return the margin of error of a mean, in grid steps, if `people` give a number."""
    return _z(confidence) * sqrt(float(worst_variance(oracle)) / people)


def influence_on_share(oracle: Oracle, liars: Fraction) -> Fraction:
    """Return how much malicious respondents can change the estimated share of any answer.

    It is L / (p - q), where L (`liars`) is the share of respondents who are malicious. They may
    send any report, so all or none of their reports may support an answer.
    """
    return _share(liars) / oracle.p_minus_q


def influence_on_mean(oracle: Numbers, liars: Fraction) -> Fraction:
    """Return how much malicious respondents can change the sum per person, in grid steps.

    It is the share of malicious respondents (`liars`) times the range of one report's estimate. If
    some people are silent, divide the result by the share of people who give a number.
    """
    reaches = [line.reach for line in oracle.lines]
    widest = max(high for _, high in reaches) - min(low for low, _ in reaches)
    return _share(liars) * widest


def _people(variance: float, margin: float, confidence: float) -> int:
    if not margin > 0:  # not (margin > 0) also refuses NaN
        raise Refused(
            "bad-request",
            "The wanted margin of error must be above zero.",
            "Write 0.02 for two percentage points.",
        )
    return max(2, ceil(variance * (_z(confidence) / margin) ** 2))


def _variance(oracle: Oracle, share: float | None) -> float:
    """Return the variance of one report's estimate of a share, or of the worst share if None."""
    if share is not None and not 0 <= share <= 1:
        raise Refused("bad-request", "A share must be from 0 to 1.", "Write 0.7, for example.")
    contrast = float(oracle.p_minus_q)
    worst = np.clip((0.5 - oracle.q) / contrast, 0, 1)
    shares = worst if share is None else np.full(oracle.size, share)
    return float(variances(oracle, shares, 1).max())


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise Refused(
            "bad-request",
            "The confidence level must be above 0 and below 1.",
            "Write 0.95, for example.",
        )
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _share(liars: Fraction) -> Fraction:
    if not 0 <= liars <= 1:
        raise Refused("bad-request", "A share must be from 0 to 1.", "Write 0.01, for example.")
    return liars
