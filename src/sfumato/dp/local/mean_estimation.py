"""Estimate a mean from randomised numbers: a ratio of two unbiased estimates, with its interval.

The numerator estimates the sum of the numbers, and the denominator the number of people who gave
one. Both estimates are unbiased. Fieller's method (1954) gives the confidence interval of their
ratio. The interval widens, up to the whole grid, if perhaps few people gave a number.
tests/dp/local/test_numeric_response.py checks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np

from sfumato.dp.local.frequency_oracle import Reports
from sfumato.dp.local.numeric_response import Line, Numbers
from sfumato.dp.local.random_words import Integers, drawn
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused

_WORDS_AT_ONCE = 1 << 18


@dataclass(frozen=True, eq=False)
class NumberTally:
    """The counts and sums of the randomised numbers of `people`, from which a mean is estimated.

    Tallies with the same parameters can be added.
    """

    oracle: Numbers
    people: int
    counts: Integers

    def __post_init__(self) -> None:
        """Refuse so many reports that the sum of squared places could exceed 63 bits."""
        if self.people * (2 * self.oracle.steps) ** 2 >= 1 << 63:  # a place is below 2 * steps
            raise Refused(
                "bad-request",
                "The sum over all reports would exceed 63 bits: the grid of numbers is too fine "
                "for so many reports.",
                "Use a coarser grid. With 1,000 steps, there is room for a report of every "
                "person alive.",
            )

    def __add__(self, other: NumberTally) -> NumberTally:
        """Add the tally of more reports; both must have the same randomiser parameters."""
        if self.oracle.parameters != other.oracle.parameters:
            raise Bug("tallies of different parameters cannot be added")
        return NumberTally(self.oracle, self.people + other.people, self.counts + other.counts)


@dataclass(frozen=True)
class Mean:
    """The estimated mean of the numbers, with its confidence interval and the response rate.

    All values of the mean are in grid steps.
    """

    people: int
    mean: float  # mean over the people who gave a number, in grid steps
    low: float  # lower end of the confidence interval, from 0 to the last step
    high: float
    std: float
    response_rate: float  # unbiased estimate of the share of people who gave a number
    gave_std: float


def tally_numbers(oracle: Numbers, reports: Reports) -> NumberTally:
    """Count the reports of randomised numbers; refuse reports that no client could have made."""
    is_sized = reports.ndim == 2 and reports.shape[1] == oracle.width
    if not (is_sized and oracle.are_valid(reports).all()):
        raise Refused(
            "bad-request",
            "A report has a value that this randomiser never gives.",
            "Send the bytes that the randomiser gave, unchanged.",
        )
    return NumberTally(oracle, len(reports), oracle.counts(reports))


def randomise_numbers(oracle: Numbers, values: Integers, dice: RandomSource) -> Reports:
    """Randomise numbers, given as grid steps, to reports; the value `steps + 1` means silence."""
    if values.size and (values.min() < 0 or values.max() > oracle.steps + 1):
        raise Refused(
            "bad-request",
            "The number of a grid step is outside this randomiser's grid.",
            f"Give numbers from 0 to {oracle.steps}, or {oracle.steps + 1} for no answer.",
        )
    return oracle.randomise(values, drawn(dice, oracle.words_per_report, len(values)))


def simulate_numbers(oracle: Numbers, values: Integers, dice: RandomSource) -> NumberTally:
    """Randomise the numbers of all people and count the reports, in blocks that limit memory."""
    step = max(64, _WORDS_AT_ONCE // oracle.words_per_report)
    tally = tally_numbers(oracle, randomise_numbers(oracle, values[:0], dice))
    for start in range(0, len(values), step):
        reports = randomise_numbers(oracle, values[start : start + step], dice)
        tally += tally_numbers(oracle, reports)
    return tally


def estimate_mean(tally: NumberTally, confidence: float = 0.95) -> Mean:
    """Estimate the mean of the numbers and its confidence interval from a tally.

    A tally of fewer than two people is refused.
    """
    if tally.people < 2:
        raise Refused(
            "bad-request",
            "A mean cannot be estimated from fewer than two reports.",
            "Wait until at least two people have sent a report.",
        )
    sums, squares = _moments(tally)
    total, gave = sums / tally.people
    cov = (squares / tally.people - np.outer(sums, sums) / tally.people**2) / (tally.people - 1)
    np.fill_diagonal(cov, np.maximum(cov.diagonal(), 0.0))  # rounding may make it negative
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    last = tally.oracle.steps
    low, high = fieller(total, gave, cov, z)
    mean = min(max(total / gave, 0.0), last) if gave > 0 else last / 2
    spread = cov[0, 0] - 2 * mean * cov[0, 1] + mean**2 * cov[1, 1]
    return Mean(
        tally.people, mean, min(max(low, 0.0), last), min(max(high, 0.0), last),
        sqrt(max(spread, 0.0)) / max(abs(gave), 1e-9), float(gave), sqrt(cov[1, 1]),
    )  # fmt: skip


def fieller(total: float, response_rate: float, cov: np.ndarray, z: float) -> tuple[float, float]:
    """Return the confidence interval of the mean: total / response_rate, by Fieller's method.

    The interval has all ratios r for which total - r * response_rate is at most z standard
    deviations from 0. It is infinite if the response rate may be 0.
    """
    a = response_rate**2 - z**2 * cov[1, 1]
    b = total * response_rate - z**2 * cov[0, 1]
    c = total**2 - z**2 * cov[0, 0]
    inside = b * b - a * c
    if a <= 0 or response_rate <= 0 or inside < 0:
        return float("-inf"), float("inf")
    arm = sqrt(inside)
    return (b - arm) / a, (b + arm) / a


def _moments(tally: NumberTally) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums over all reports of two unbiased estimates, and the sums of their products.

    The two estimates of a report are the person's number, and whether the person gave a number. The
    mean is the quotient of their sums, and the products give its variance.
    """
    sums, squares = np.zeros(2), np.zeros((2, 2))
    for line, row in zip(tally.oracle.lines, tally.counts, strict=True):
        to, raw, products = _back(line), *_raw(row)
        sums += to @ raw
        squares += to @ products @ to.T
    return sums, squares


def _back(line: Line) -> np.ndarray:
    """Return the matrix that turns one report into two unbiased estimates about its person.

    It maps (1, is silent, place) of the report to the estimates of the number, and of whether the
    person gave one.
    """
    truth, middle = float(line.truth), float(line.middle)
    gave = np.array([1 + float(line.silence) / truth, -1 / truth, 0.0])
    number = np.array([-float(line.rest) / truth, 0.0, 1 / truth]) - middle * gave
    return np.array([number, gave])


def _raw(row: Integers) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums over all reports of (1, is silent, place), and the sums of their products.

    `row` holds the counts of the reports of one mechanism. The place is the reported grid position.
    The product of silent and place is 0, because a silent report has no place.
    """
    people, silent, places, squares = (float(n) for n in row)
    raw = np.array([people, silent, places])
    return raw, np.array([[people, silent, places], [silent, silent, 0.0], [places, 0.0, squares]])
