"""Numbers on a grid of whole steps, said by a window or by one end, and the mean behind them.

A number is its step i, from 0 to `steps`; silence is `steps + 1` and is hidden like a number
(soundness rule 31). Every report says a place j, or silence, and for a number i, E[j] is truth * (i
+ middle) + rest: a straight line, as for silence, with constants that are counted from the words
which lead to each outcome. So the sum of the numbers and the count of who gave one are right on
average, and the mean is their ratio (numeric_response.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Counting
from sfumato.dp.local.random_words import Integers


class Numbers(Counting, Protocol):
    """A randomiser of a number on a grid; what it says has a straight line as its mean.

    Its counts are, for each way: reports, the silent, the sum of places and that of their squares.
    """

    @property
    def steps(self) -> int:
        """Return the last step of the grid; the first is 0, and silence is one more."""
        ...

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return the straight line of each way to answer, with how often it is taken."""
        ...


@dataclass(frozen=True)
class Line:
    """How what is said hangs on what is true, in one way to answer."""

    share: Fraction  # of the reports that are made in this way
    truth: Fraction  # how often the truth is told
    middle: Fraction  # what a truthful place lies above the step, on average
    squares: tuple[Fraction, Fraction, Fraction]  # a truthful j * j is a + b * i + c * i * i
    rest: Fraction  # what places drawn at random add to the mean of j
    rest_squares: Fraction  # and to the mean of j * j
    silence: Fraction  # how often silence is drawn at random
    last: int  # the last place that is no silence

    @property
    def reach(self) -> tuple[Fraction, Fraction]:
        """Return the least and the most that one report can say of its number."""
        least = -self.rest / self.truth - self.middle * (1 + self.silence / self.truth)
        return least, least + Fraction(self.last) / self.truth

    def variance(self, step: int) -> Fraction:
        """Return the variance of one report about the mean, where everybody has this number.

        It is that of (j + (middle + step) * is_silent) / truth, whose two parts exclude each other.
        """
        a, b, c = self.squares
        place = self.truth * (step + self.middle) + self.rest
        square = self.truth * (a + b * step + c * step * step) + self.rest_squares
        weight = self.middle + step
        quiet = self.silence
        spread = square - place**2 + weight**2 * quiet * (1 - quiet) - 2 * weight * place * quiet
        return spread / self.truth**2


def moments(places: Integers, is_silent: Booleans) -> Integers:
    """Return what is kept of reports of one way: their number, the silent, sums of j and j * j."""
    said = np.where(is_silent, 0, places)
    return np.array([len(said), is_silent.sum(), said.sum(), (said * said).sum()], dtype=np.int64)


def variance(oracle: Numbers, step: int) -> Fraction:
    """Return the variance of one report about the mean, where everybody has this number."""
    return sum((line.share * line.variance(step) for line in oracle.lines), Fraction(0))


def worst_variance(oracle: Numbers) -> Fraction:
    """Return the largest of the ends' and the middle's variances: between them it is a parabola."""
    steps = oracle.steps
    return max(variance(oracle, step) for step in (0, steps // 2, steps))
