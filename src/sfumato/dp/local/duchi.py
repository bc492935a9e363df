"""Duchi's mechanism for numbers: round to an end of the grid at random, then randomise the end.

The report on the end is a 3-ary randomised response: low, high or silent (no number). Proof:
duchi.proof.md (Duchi, Jordan and Wainwright 2018; silence is a third end).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Parameters, Reports
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import Law, ReportProbabilities, epsilon_of
from sfumato.dp.local.numeric_response import Line, moments
from sfumato.dp.local.random_words import PARTS, Integers, Words, among, among_64, below, words_each
from sfumato.dp.refusal import Bug

LONGEST: Final = 1 << 19  # most steps of a grid
LOW, HIGH, SILENT = 0, 1, 2


@dataclass(frozen=True)
class Duchi:
    """Duchi's mechanism for numbers on a grid: a report names only the low or the high end.

    `steps` is the last grid step. `truth` is the probability to report the true end, in parts of
    2**32.
    """

    steps: int
    truth: int

    words_per_report: ClassVar[int] = 4
    width: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not (1 <= self.steps <= LONGEST and 0 < self.truth < PARTS):
            raise Bug("a grid has one step at least, and the truth is told at times")

    @staticmethod
    def within(steps: int, epsilon: Fraction) -> Duchi:
        """Return the most accurate Duchi mechanism whose epsilon is at most `epsilon`."""
        return Duchi(steps, KAry.within(3, epsilon).truth)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `steps` and `truth`."""
        return {"kind": "duchi", "steps": self.steps, "truth": self.truth}

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for each number and for silence."""
        return {value: self._says(value) for value in range(self.steps + 2)}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one number than under another.

        Its logarithm is the local epsilon. It is the likelihood ratio of the 3-ary response to the
        end of the grid. Numbers between the ends mix the distributions of the two ends, so their
        ratio is no larger.
        """
        return KAry(3, self.truth).ratio

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return how the mean of a report depends on the true number: one linear model (`Line`).

        A low report counts as place 0, and a high report as place `steps`.
        """
        told = Fraction(self.truth, PARTS)
        _, high, quiet = ((1 - told) * Fraction(int(n), PARTS) for n in words_each(3))
        squares = (Fraction(0), Fraction(self.steps), Fraction(0))
        steps = self.steps
        rest = (high * steps, high * steps**2)
        return (Line(Fraction(1), told, Fraction(0), squares, *rest, quiet, steps),)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Round each number to an end of the grid at random, and randomise the end.

        The probability of the upper end is value / steps.
        """
        is_up = among_64(words[0], words[1], self.steps) < np.minimum(values, self.steps)
        end = np.where(values > self.steps, SILENT, is_up).astype(np.uint8)
        drawn = among(words[3], 3).astype(np.uint8)
        return np.where(below(words[2], self.truth), end, drawn).reshape(-1, 1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if it is low, high or silent."""
        return np.asarray(reports[:, 0] <= SILENT)

    def counts(self, reports: Reports) -> Integers:
        """Return four sums over the reports, as one row, to estimate the mean.

        They are the number of reports, of silent reports, the sum of places, and that of squared
        places.
        """
        ends = reports[:, 0].astype(np.int64)
        return moments(ends * self.steps, ends == SILENT)[np.newaxis]

    def _says(self, value: int) -> ReportProbabilities:
        told, up = Fraction(self.truth, PARTS), self._up(min(value, self.steps))
        ends = (
            [Fraction(0), Fraction(0), Fraction(1)] if value > self.steps else [1 - up, up, 0 * up]
        )
        drawn = [(1 - told) * Fraction(int(n), PARTS) for n in words_each(3)]
        return {end: told * ends[end] + drawn[end] for end in (LOW, HIGH, SILENT)}

    def _up(self, value: int) -> Fraction:
        """Return the exact probability to round the value to the upper end of the grid.

        It is within 2**-64 of value / steps.
        """
        return Fraction(-(-value * PARTS**2 // self.steps), PARTS**2)
