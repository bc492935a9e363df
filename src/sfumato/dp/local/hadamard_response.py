"""Hadamard response, a frequency oracle: report a column of +1 in the answer's Hadamard row.

With some probability, the report is a uniformly drawn column instead. One fast Hadamard transform
of the counts gives all estimates. This oracle needs the least work for many answers, but has a
somewhat larger error. Proof: hadamard_response.proof.md (Acharya et al. 2019, with one block).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.dp.local.frequency_oracle import (
    Booleans,
    Floats,
    Parameters,
    Reports,
    as_rows,
    bytes_for,
    numbers,
)
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of
from sfumato.dp.local.random_words import (
    MAX_OUTCOMES,
    PARTS,
    Integers,
    Words,
    below,
    largest_probability_within,
)
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class Hadamard:
    """Hadamard response, a frequency oracle for many answers.

    `size` is the number of answers, and `rows` the number of rows and columns of the Hadamard
    matrix. `truth` is the probability of a truthful report, in parts of 2**32.
    """

    size: int
    rows: int  # a power of two above `size`, because row 0 is constant
    truth: int

    words_per_report: ClassVar[int] = 2

    def __post_init__(self) -> None:
        is_power = self.rows & (self.rows - 1) == 0
        if not (2 <= self.size < self.rows <= MAX_OUTCOMES and is_power and 0 < self.truth < PARTS):
            raise Bug("the matrix has a power of two of rows, more than there are answers")

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Hadamard:
        """Return the most accurate Hadamard response whose epsilon is at most `epsilon`."""
        rows = 1 << size.bit_length()
        return Hadamard(size, rows, largest_probability_within(_ratio, epsilon))

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: enough for the number of the last column."""
        return bytes_for(self.rows - 1)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `size`, `rows` and `truth`."""
        return {"kind": "hadamard", "size": self.size, "rows": self.rows, "truth": self.truth}

    @property
    def law(self) -> Law:
        """Return the exact probability to report each matrix column, for each answer."""
        told, places = Fraction(self.truth, PARTS), range(self.rows)
        plus, any_ = told * Fraction(2, self.rows), (1 - told) / self.rows
        return {
            value: {y: any_ + plus * _is_plus(value + 1, y) for y in places}
            for value in range(self.size)
        }

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under another.

        Its logarithm is the local epsilon. The worst report is a column with +1 in the row of one
        answer and -1 in that of another.
        """
        return _ratio(self.truth)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(the true answer's row is +1 in the reported column) - 1/2.

        The row of another answer is +1 there with probability one half (q). Estimates of shares
        divide by p - q.
        """
        return Fraction(self.truth, 2 * PARTS)

    @property
    def q(self) -> Floats:
        """Return 1/2 for each answer: the probability that another answer's report supports it.

        A report supports an answer if the answer's row is +1 in the reported column.
        """
        return np.full(self.size, 0.5)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each answer to a report: the number of a column of the Hadamard matrix.

        The column is drawn uniformly. If the report is truthful, it moves to a column in which the
        answer's row is +1.
        """
        places = words[1] >> np.uint32(32 - self.rows.bit_length() + 1)
        rows = values.astype(np.uint32) + np.uint32(1)
        is_minus = (np.bitwise_count(places & rows) & 1).astype(np.uint32)
        is_told = below(words[0], self.truth).astype(np.uint32)
        moved = places ^ ((rows & (~rows + np.uint32(1))) * (is_minus & is_told))
        return as_rows(moved, self.width)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if it is the number of a column."""
        return np.asarray(numbers(reports) < self.rows)

    def counts(self, reports: Reports) -> Integers:
        """Count how many reports name each matrix column."""
        return np.bincount(numbers(reports), minlength=self.rows).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Return for each answer how many reports support it: their columns are +1 in its row.

        The code computes (total + Hadamard transform) / 2.
        """
        signs = transformed(counts)
        return np.asarray((signs[0] + signs[1 : self.size + 1]) // 2)


def _ratio(truth: int) -> Fraction:
    return 1 + Fraction(2 * truth, PARTS - truth)


def _is_plus(row: int, place: int) -> int:
    return (row & place).bit_count() % 2 == 0


def transformed(counts: Integers) -> Integers:
    """Return the fast Hadamard transform of integers; their number must be a power of two."""
    signs = counts.copy()
    step = 1
    while step < len(signs):
        pairs = signs.reshape(-1, 2, step)
        signs = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        step *= 2
    return signs
