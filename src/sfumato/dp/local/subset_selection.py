"""Subset selection, a frequency oracle: the report is a set that is likely to contain the answer.

All sets have the same size, which minimises the variance. Instead of all such sets, the code uses
only the sets {v : (a * v + b) mod field < chosen}, for a prime field. In this family, every two
answers are together in equally many sets, so the variance is the same. A report is the two numbers
a and b, not one bit for each answer, and takes four random words. Proof: subset_selection.proof.md
(Ye and Barg 2018; the design is the affine one).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import ClassVar, Final

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports, numbers
from sfumato.dp.local.likelihood_ratio import Law, ReportProbabilities, epsilon_of
from sfumato.dp.local.random_words import (
    PARTS,
    Integers,
    Words,
    among,
    among_64,
    below,
    largest_probability_within,
    odds_of,
    words_each,
)
from sfumato.dp.refusal import Bug

LARGEST: Final = 65_521  # the largest prime of 16 bits
TABLE: Final = 1 << 22  # most (a, b) pairs that `_by_table` counts in one table


@dataclass(frozen=True)
class Subset:
    """Subset selection, a frequency oracle: a report is a set that likely contains the answer.

    `size` is the number of answers, and `field` a prime of at least `size`. A set has `chosen`
    elements of the field. `truth` is the probability, in parts of 2**32, that the report is drawn
    among the sets that contain the answer.
    """

    size: int
    field: int
    chosen: int
    truth: int

    words_per_report: ClassVar[int] = 4
    width: ClassVar[int] = 4

    def __post_init__(self) -> None:
        is_sized = 2 <= self.size <= self.field <= LARGEST and 1 <= self.chosen < self.field
        if not (is_sized and is_prime(self.field) and 0 < self.truth < PARTS):
            raise Bug("a set has less than a prime number of answers, which is not below the size")

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Subset:
        """Return the subset selection with the least error whose epsilon is at most `epsilon`."""
        field = next_prime(size)
        chosen = max(1, min(field - 1, round(field / (odds_of(epsilon) + 1))))
        truth = largest_probability_within(
            lambda part: Subset(size, field, chosen, part).ratio, epsilon
        )
        return Subset(size, field, chosen, truth)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters: kind, `size`, `field`, `chosen` and `truth`."""
        return {"kind": "subset", "size": self.size, "field": self.field,
                "chosen": self.chosen, "truth": self.truth}  # fmt: skip

    @property
    def places(self) -> tuple[Fraction, ...]:
        """Return the probability of each place that the true answer can get in a report.

        The place of an answer v is (a * v + b) mod field. The set contains the answers with the
        first `chosen` places.
        """
        field, inside = words_each(self.field).tolist(), words_each(self.chosen).tolist()
        inside += [0] * (self.field - self.chosen)
        weights = [self._weight(i, f) for i, f in zip(inside, field, strict=True)]
        return tuple(Fraction(weight, PARTS**2) for weight in weights)

    @property
    def law(self) -> Law:
        """Return the exact probability of each report (a, b) for each answer, where `a` is uniform.

        A report (a, b) stands for the set of answers v with (a * v + b) mod field < chosen.
        """
        places = self.places
        return {value: self._says(value, places) for value in range(self.size)}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under another.

        Its logarithm is the local epsilon. It is P(most likely place) / P(least likely place) of
        the true answer.
        """
        weights = [self._weight(*pair) for pair in _pairs(self.field, self.chosen)]
        return Fraction(max(weights), min(weights))

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(set contains the true answer) - P(set contains another answer).

        Estimates of shares divide by it.
        """
        return self._own - self._another

    @property
    def q(self) -> Floats:
        """Return for each answer the probability that the set of another answer contains it.

        Estimates of shares subtract this chance.
        """
        return np.full(self.size, float(self._another))

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each answer to a report (a, b), which stands for a set of answers.

        The code draws `a` and the place of the true answer, then solves for `b`.
        """
        field = np.uint64(self.field)
        times = among_64(words[0], words[1], self.field - 1) + np.uint64(1)
        inside, anywhere = among(words[3], self.chosen), among(words[3], self.field)
        place = np.where(below(words[2], self.truth), inside, anywhere)
        shift = (place + field - times * values.astype(np.uint64) % field) % field
        both = times | shift << np.uint64(16)
        return both.astype("<u4").view(np.uint8).reshape(-1, 4)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if 0 < a < field and 0 <= b < field."""
        times, shifts = _read(reports)
        return np.asarray((times > 0) & (times < self.field) & (shifts < self.field))

    def counts(self, reports: Reports) -> Integers:
        """Count for each answer how many reported sets contain the answer."""
        times, shifts = _read(reports)
        is_table_shorter = self.field**2 < min(TABLE, len(reports) * self.size)
        count = self._by_table if is_table_shorter else self._one_by_one
        return count(times, shifts)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: count i is the number of sets that contain answer i."""
        return counts

    def _by_table(self, times: Integers, shifts: Integers) -> Integers:
        """Count for each answer the sets that contain it, from a table of report counts.

        The table has one count for each possible report (a, b). This is fast if there are many
        reports.
        """
        field = self.field
        cells = np.bincount((times - 1) * field + shifts, minlength=(field - 1) * field)
        rows = cells.reshape(field - 1, field)
        sums = np.zeros((field - 1, field + self.chosen + 1), dtype=np.int64)
        np.cumsum(np.hstack([rows, rows[:, : self.chosen]]), axis=1, out=sums[:, 1:])
        windows = sums[:, self.chosen :] - sums[:, : field + 1]
        rows_at = np.arange(1, field)[:, np.newaxis]
        starts = -rows_at * np.arange(self.size) % field
        return np.asarray(np.take_along_axis(windows, starts, axis=1).sum(axis=0))

    def _one_by_one(self, times: Integers, shifts: Integers) -> Integers:
        counts = np.zeros(self.size, dtype=np.int64)
        answers = np.arange(self.size)
        step = max(1, (1 << 20) // self.size)
        for start in range(0, len(times), step):
            some = slice(start, start + step)
            places = (times[some, np.newaxis] * answers + shifts[some, np.newaxis]) % self.field
            counts += (places < self.chosen).sum(axis=0)
        return counts

    def _weight(self, inside: int, field: int) -> int:
        """Return the probability of a place of the true answer, in parts of 2**64.

        `inside` and `field` are the numbers of random words that lead to the place in a truthful
        report and in a uniform one.
        """
        return self.truth * inside + (PARTS - self.truth) * field

    @property
    def _own(self) -> Fraction:
        drawn = Fraction(int(words_each(self.field)[: self.chosen].sum()), PARTS)
        told = Fraction(self.truth, PARTS)
        return told + (1 - told) * drawn

    @property
    def _another(self) -> Fraction:
        """Return the probability that the reported set contains a given answer that is not true."""
        return (self.chosen - self._own) / (self.field - 1)

    def _says(self, value: int, places: tuple[Fraction, ...]) -> ReportProbabilities:
        return {
            (times, (place - times * value) % self.field): chance / (self.field - 1)
            for times in range(1, self.field)
            for place, chance in enumerate(places)
        }


@lru_cache(maxsize=64)
def _pairs(field: int, chosen: int) -> frozenset[tuple[int, int]]:
    """Count for each place the random words that lead to it; return the different pairs of counts.

    The first count is for a draw among the places in the set, and the second for a draw in the
    whole field. `ratio` needs the most and the least likely place.
    """
    whole, inside = words_each(field), words_each(chosen)
    within = zip(inside.tolist(), whole[:chosen].tolist(), strict=True)
    return frozenset(within) | {(0, words) for words in whole[chosen:].tolist()}


def _read(reports: Reports) -> tuple[Integers, Integers]:
    both = numbers(reports).astype(np.int64)
    return both & 0xFFFF, both >> 16


def is_prime(number: int) -> bool:
    """Return whether a small number is prime, by trial division."""
    return number > 1 and all(number % d for d in range(2, isqrt(number) + 1))


def next_prime(number: int) -> int:
    """Return the smallest prime that is at least `number`, as the size of a field."""
    return number if is_prime(number) else next_prime(number + 1)
