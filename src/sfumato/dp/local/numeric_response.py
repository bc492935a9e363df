"""The interface of local randomisers for numbers on a grid, and the variance of their means.

A number is its step i, from 0 to `steps`. A missing answer (silence) is the value `steps + 1` and
is randomised like a number (soundness rule 31). Each report is a place j, or silence. For a number
i, E[j] = truth * (i + middle) + rest, a linear function. The probability of silence is linear too.
The constants are exact, because they count the random words that lead to each outcome. So the
sum of the numbers and the number of people who gave one have unbiased estimates. The mean is
their ratio (numeric_response.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Counting
from sfumato.dp.local.random_words import Integers


class Numbers(Counting, Protocol):
    """A randomiser of a number on a grid, whose report has a mean that is linear in the number.

    Its counts have one row for each sub-mechanism: number of reports, of silent reports, sum of
    places and sum of squared places.
    """

    @property
    def steps(self) -> int:
        """Return the last step of the grid; the first is 0, and silence is `steps + 1`."""
        ...

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return the linear model of each sub-mechanism, with the probability of its use."""
        ...


@dataclass(frozen=True)
class Line:
    """The first and second moment of a report as functions of the true number.

    A Hybrid randomiser has one line for each of its two sub-mechanisms, others have one line.
    """

    share: Fraction  # probability that this sub-mechanism makes the report
    truth: Fraction  # probability of a truthful report
    middle: Fraction  # mean of (place - step) for a truthful report
    squares: tuple[Fraction, Fraction, Fraction]  # a truthful E[j * j] is a + b * i + c * i * i
    rest: Fraction  # contribution of random places to the mean of j
    rest_squares: Fraction  # contribution of random places to the mean of j * j
    silence: Fraction  # probability that silence is drawn at random
    last: int  # the last place that does not mean silence

    @property
    def reach(self) -> tuple[Fraction, Fraction]:
        """Return the smallest and largest estimate that a single report can give of its number."""
        least = -self.rest / self.truth - self.middle * (1 + self.silence / self.truth)
        return least, least + Fraction(self.last) / self.truth

    def variance(self, step: int) -> Fraction:
        """Return the variance of one report's contribution to the mean, if all have this number.

        It is the variance of (j + (middle + step) * is_silent) / truth, where a silent report has
        no place j.
        """
        a, b, c = self.squares
        place = self.truth * (step + self.middle) + self.rest
        square = self.truth * (a + b * step + c * step * step) + self.rest_squares
        weight = self.middle + step
        quiet = self.silence
        spread = square - place**2 + weight**2 * quiet * (1 - quiet) - 2 * weight * place * quiet
        return spread / self.truth**2


def moments(places: Integers, is_silent: Booleans) -> Integers:
    """Return the counts of one sub-mechanism: reports, silent reports, sum of j, sum of j * j."""
    said = np.where(is_silent, 0, places)
    return np.array([len(said), is_silent.sum(), said.sum(), (said * said).sum()], dtype=np.int64)


def variance(oracle: Numbers, step: int) -> Fraction:
    """Return the variance of one report's contribution to the mean, if all have this number."""
    return sum((line.share * line.variance(step) for line in oracle.lines), Fraction(0))


def worst_variance(oracle: Numbers) -> Fraction:
    """Return the largest variance over the two ends and the middle of the grid.

    The variance is quadratic in the step.
    """
    steps = oracle.steps
    return max(variance(oracle, step) for step in (0, steps // 2, steps))
