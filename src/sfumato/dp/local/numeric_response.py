"""The interface of local randomisers for numbers on a grid, and the variance of their means.

A number is a grid step i, from 0 to `steps`. A missing number (silence) is the value `steps + 1`,
and a client randomises it like a number (soundness rule 31). Each report is a place j, or silence.

For a number i, the expected place is linear: E[j] = truth * (i + middle) + rest. The probability of
a silent report is linear too. The constants are exact, because the code counts the random words
that lead to each outcome. So the sum of the numbers and the number of people who gave one have
unbiased estimates. The mean is their ratio (numeric_response.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Counting
from sfumato.dp.local.random_words import Integers


class Numbers(Counting, Protocol):
    """A randomiser of a number on a grid, whose expected report is linear in the number.

    The counts have one row for each sub-mechanism: number of reports, number of silent reports, sum
    of places and sum of squared places.
    """

    @property
    def steps(self) -> int:
        """Return the number of the last grid step; the first is 0, and silence is `steps + 1`."""
        ...

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return how the mean of a report depends on the true number: a `Line` per sub-mechanism.

        Each line also holds the probability that its sub-mechanism is used.
        """
        ...


@dataclass(frozen=True)
class Line:
    """How the mean and the mean square of a report depend on the true number.

    The true number is a grid step i, and the report a grid place j. A Hybrid randomiser has one
    line for each of its two sub-mechanisms. Other randomisers have one line.
    """

    share: Fraction  # probability that this sub-mechanism makes the report
    truth: Fraction  # probability of a truthful report
    middle: Fraction  # mean of j - i over truthful reports
    squares: tuple[Fraction, Fraction, Fraction]  # truthful E[j * j] = a + b * i + c * i * i
    rest: Fraction  # contribution of uniform draws to the mean of j
    rest_squares: Fraction  # contribution of uniform draws to the mean of j * j
    silence: Fraction  # probability that a report is a uniform draw and silent
    last: int  # the last place that does not mean silence

    @property
    def reach(self) -> tuple[Fraction, Fraction]:
        """Return the smallest and the largest estimate that one report can give, in grid steps."""
        least = -self.rest / self.truth - self.middle * (1 + self.silence / self.truth)
        return least, least + Fraction(self.last) / self.truth

    def variance(self, step: int) -> Fraction:
        """Return the variance that one report adds to the mean, if every person's number is `step`.

        It is the variance of (j + (middle + step) * is_silent) / truth. Here j is the reported
        place, or 0 for a silent report.
        """
        a, b, c = self.squares
        place = self.truth * (step + self.middle) + self.rest
        square = self.truth * (a + b * step + c * step * step) + self.rest_squares
        weight = self.middle + step
        quiet = self.silence
        spread = square - place**2 + weight**2 * quiet * (1 - quiet) - 2 * weight * place * quiet
        return spread / self.truth**2


def moments(places: Integers, is_silent: Booleans) -> Integers:
    """Return the sums that a mean is estimated from, over reports of numbers.

    They are the number of reports, of silent reports, the sum of the places, and that of their
    squares. A place is the reported grid position; a silent report counts as place 0.
    """
    said = np.where(is_silent, 0, places)
    return np.array([len(said), is_silent.sum(), said.sum(), (said * said).sum()], dtype=np.int64)


def variance(oracle: Numbers, step: int) -> Fraction:
    """Return the variance that one report adds to the mean, if every number is `step`."""
    return sum((line.share * line.variance(step) for line in oracle.lines), Fraction(0))


def worst_variance(oracle: Numbers) -> Fraction:
    """Return the largest variance that one report adds to the mean, in squared grid steps.

    The code compares both ends and the middle of the grid, because the variance is quadratic in the
    step.
    """
    steps = oracle.steps
    return max(variance(oracle, step) for step in (0, steps // 2, steps))
