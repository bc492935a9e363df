"""A number by a place in a window that moves along with it, or by any place at all.

The window of step i is the places i to i + window - 1; that of silence are as many places behind
all those. A report is a place. Proof: piecewise_mechanism.proof.md (Wang et al. 2019, on a grid).
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
from sfumato.dp.local.likelihood_ratio import Law, Says, epsilon_of
from sfumato.dp.local.numeric_response import Line, moments
from sfumato.dp.local.random_words import (
    PARTS,
    Integers,
    Words,
    among,
    below,
    boldest,
    odds_of,
    words_each,
)
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class Piecewise:
    """The steps of the grid, the places of a window, the chance of the truth in parts of 2**32."""

    steps: int
    window: int
    truth: int

    words: ClassVar[int] = 2

    def __post_init__(self) -> None:
        is_sized = 1 <= self.window <= max(1, self.steps) and 1 <= self.steps <= LONGEST
        if not (is_sized and 0 < self.truth < PARTS):
            raise Bug("a window is not longer than the grid, and the truth is told at times")

    @staticmethod
    def within(steps: int, epsilon: Fraction) -> Piecewise:
        """Return the one with about the least error within this epsilon."""
        window = max(1, round(steps / sqrt(odds_of(epsilon))))
        pairs = _pairs(steps, window)
        return Piecewise(steps, window, boldest(lambda part: _ratio(part, pairs), epsilon))

    @property
    def silent(self) -> int:
        """Return the first place of silence."""
        return self.steps + self.window

    @property
    def places(self) -> int:
        """Return how many places there are, those of silence too."""
        return self.steps + 2 * self.window

    @property
    def width(self) -> int:
        """Return the bytes that hold the last place."""
        return bytes_for(self.places - 1)

    @property
    def parameters(self) -> Parameters:
        """Return the kind and its three numbers."""
        return {"kind": "piecewise", "steps": self.steps, "window": self.window,
                "truth": self.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the chance of every place under every number, and under silence."""
        return {value: self._says(value) for value in range(self.steps + 2)}

    @property
    def ratio(self) -> Fraction:
        """Return the largest ratio of a place in a window to the same place outside of one."""
        return _ratio(self.truth, _pairs(self.steps, self.window))

    @property
    def epsilon(self) -> Fraction:
        """Return what a report costs."""
        return epsilon_of(self.ratio)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Return the one line: a truthful place lies in the window above the step."""
        told = Fraction(self.truth, PARTS)
        count, first, second = _sums(self.window, self.window)
        middle = first / count
        squares = (second / count, 2 * middle, Fraction(1))
        seen, rest, rest_squares = (part * (1 - told) for part in _sums(self.places, self.silent))
        quiet, last = 1 - told - seen, self.silent - 1
        return (Line(Fraction(1), told, middle, squares, rest, rest_squares, quiet, last),)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return a place of each; both words are used for everybody."""
        starts = np.where(values > self.steps, self.silent, values).astype(np.uint64)
        told = starts + among(words[1], self.window)
        said = np.where(below(words[0], self.truth), told, among(words[1], self.places))
        return as_rows(said, self.width)

    def are_valid(self, reports: Reports) -> Booleans:
        """Say which are places."""
        return np.asarray(numbers(reports) < self.places)

    def counts(self, reports: Reports) -> Integers:
        """Return one row of sums, for the one way to answer."""
        places = numbers(reports).astype(np.int64)
        return moments(places, places >= self.silent)[np.newaxis]

    def _says(self, value: int) -> Says:
        told = Fraction(self.truth, PARTS)
        anywhere = words_each(self.places).tolist()
        says = {place: (1 - told) * Fraction(n, PARTS) for place, n in enumerate(anywhere)}
        start = self.silent if value > self.steps else value
        for offset, n in enumerate(words_each(self.window).tolist()):
            says[start + offset] += told * Fraction(n, PARTS)
        return says


def _sums(outcomes: int, below_: int) -> tuple[Fraction, Fraction, Fraction]:
    """Return the sums of 1, j and j * j, each by its chance, of draws below something."""
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
    """Return for each place the most words that lead there inside of a window, and outside."""
    inside, anywhere = words_each(window), words_each(steps + 2 * window)
    most = int(inside.max())
    richest = np.concatenate([[0], np.cumsum(inside == most)])
    places = np.arange(steps + window)
    first, last = np.maximum(0, places - steps), np.minimum(places, window - 1)
    has_most = richest[last + 1] > richest[first]
    reached = np.concatenate([np.where(has_most, most, most - 1), inside])
    return frozenset(zip(reached.tolist(), anywhere.tolist(), strict=True))
