"""The piecewise mechanism for numbers: report a place in a window near the number, or any place.

The places are integers from 0. The window of grid step i holds the places i to i + window - 1. The
window of silence (no number) holds the last `window` places. Proof: piecewise_mechanism.proof.md
(Wang et al. 2019, on a grid).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import ClassVar

import numpy as np

from sfumato.dp.local.duchi import LONGEST
from sfumato.dp.local.frequency_oracle import (
    Booleans,
    Parameters,
    Reports,
    as_rows,
    bytes_for,
    numbers,
)
from sfumato.dp.local.likelihood_ratio import Law, ReportProbabilities, epsilon_of
from sfumato.dp.local.numeric_response import Line, moments
from sfumato.dp.local.random_words import (
    PARTS,
    Integers,
    Words,
    among,
    below,
    largest_probability_within,
    odds_of,
    words_each,
)
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class Piecewise:
    """The piecewise mechanism: a report is a grid place that is likely to be near the number.

    `steps` is the last grid step, and `window` the number of places per window. `truth` is the
    probability, in parts of 2**32, that the report is drawn in the window instead of among all
    places.
    """

    steps: int
    window: int
    truth: int

    words_per_report: ClassVar[int] = 2

    def __post_init__(self) -> None:
        is_sized = 1 <= self.window <= max(1, self.steps) and 1 <= self.steps <= LONGEST
        if not (is_sized and 0 < self.truth < PARTS):
            raise Bug("a window is not longer than the grid, and the truth is told at times")

    @staticmethod
    def within(steps: int, epsilon: Fraction) -> Piecewise:
        """Return the piecewise mechanism with nearly the least error at this epsilon or less."""
        window = max(1, round(steps / sqrt(odds_of(epsilon))))
        pairs = _pairs(steps, window)
        return Piecewise(
            steps, window, largest_probability_within(lambda part: _ratio(part, pairs), epsilon)
        )

    @property
    def silent(self) -> int:
        """Return the first of the places (possible reports) that mean silence: no number."""
        return self.steps + self.window

    @property
    def places(self) -> int:
        """Return the number of places (possible reports), including those of silence."""
        return self.steps + 2 * self.window

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: enough for the number of the last place."""
        return bytes_for(self.places - 1)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `steps`, `window` and `truth`."""
        return {"kind": "piecewise", "steps": self.steps, "window": self.window,
                "truth": self.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the exact probability to report each place, for each number and for silence.

        A place is a possible report.
        """
        return {value: self._says(value) for value in range(self.steps + 2)}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one number than under another.

        Its logarithm is the local epsilon. The worst report is a place inside the window of one
        number and outside that of another.
        """
        return _ratio(self.truth, _pairs(self.steps, self.window))

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return how the mean of a report depends on the true number: one linear model (`Line`).

        A truthful place is in the number's window.
        """
        told = Fraction(self.truth, PARTS)
        count, first, second = _sums(self.window, self.window)
        middle = first / count
        squares = (second / count, 2 * middle, Fraction(1))
        seen, rest, rest_squares = (part * (1 - told) for part in _sums(self.places, self.silent))
        quiet, last = 1 - told - seen, self.silent - 1
        return (Line(Fraction(1), told, middle, squares, rest, rest_squares, quiet, last),)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each number to a report: a place in the number's window, or any place.

        Every report consumes two random words, whatever the outcome.
        """
        starts = np.where(values > self.steps, self.silent, values).astype(np.uint64)
        told = starts + among(words[1], self.window)
        said = np.where(below(words[0], self.truth), told, among(words[1], self.places))
        return as_rows(said, self.width)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask of the reports that are the number of a place."""
        return np.asarray(numbers(reports) < self.places)

    def counts(self, reports: Reports) -> Integers:
        """Return four sums over the reports, as one row, to estimate the mean.

        They are the number of reports, of silent reports, the sum of places, and that of squared
        places.
        """
        places = numbers(reports).astype(np.int64)
        return moments(places, places >= self.silent)[np.newaxis]

    def _says(self, value: int) -> ReportProbabilities:
        told = Fraction(self.truth, PARTS)
        anywhere = words_each(self.places).tolist()
        says = {place: (1 - told) * Fraction(n, PARTS) for place, n in enumerate(anywhere)}
        start = self.silent if value > self.steps else value
        for offset, n in enumerate(words_each(self.window).tolist()):
            says[start + offset] += told * Fraction(n, PARTS)
        return says


def _sums(outcomes: int, below_: int) -> tuple[Fraction, Fraction, Fraction]:
    """Return three sums over the places j below `below_`, for a place drawn at random.

    They are the sums of P(j), j * P(j) and j * j * P(j), from which the mean report is computed.
    The draw is among `outcomes` places, and P(j) is its exact probability of place j.
    """
    words = words_each(outcomes)[:below_].tolist()
    return (
        Fraction(sum(words), PARTS),
        Fraction(sum(place * n for place, n in enumerate(words)), PARTS),
        Fraction(sum(place * place * n for place, n in enumerate(words)), PARTS),
    )


def _ratio(truth: int, pairs: frozenset[tuple[int, int]]) -> Fraction:
    worst = max(Fraction(inside, anywhere) for inside, anywhere in pairs)
    return 1 + Fraction(truth, PARTS - truth) * worst


@lru_cache(maxsize=64)
def _pairs(steps: int, window: int) -> frozenset[tuple[int, int]]:
    """Count for each place the random words that lead to it; return the different pairs of counts.

    The first count is for a draw in a window: the most words over all windows. The second count is
    for a draw among all places. `ratio` needs the largest quotient of the two.
    """
    inside, anywhere = words_each(window), words_each(steps + 2 * window)
    most = int(inside.max())
    richest = np.concatenate([[0], np.cumsum(inside == most)])
    places = np.arange(steps + window)
    first, last = np.maximum(0, places - steps), np.minimum(places, window - 1)
    has_most = richest[last + 1] > richest[first]
    reached = np.concatenate([np.where(has_most, most, most - 1), inside])
    return frozenset(zip(reached.tolist(), anywhere.tolist(), strict=True))
