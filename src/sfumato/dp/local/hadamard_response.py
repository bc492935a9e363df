"""Hadamard response: a place where the answer's row of a Hadamard matrix is plus, or any place.

A report is a number, and a fast transform of the counts gives every estimate at once: the cheapest
oracle for many answers, at a somewhat larger error. Proof: hadamard_response.proof.md (Acharya et
al. 2019, with one block).
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
from sfumato.dp.local.random_words import MOST_OUTCOMES, PARTS, Integers, Words, below, boldest
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class Hadamard:
    """How many answers, the rows of the matrix, and the chance of a truthful place."""

    size: int
    rows: int  # a power of two above the number of answers: row 0 tells nothing
    truth: int

    words: ClassVar[int] = 2

    def __post_init__(self) -> None:
        is_power = self.rows & (self.rows - 1) == 0
        if not (
            2 <= self.size < self.rows <= MOST_OUTCOMES and is_power and 0 < self.truth < PARTS
        ):
            raise Bug("the matrix has a power of two of rows, more than there are answers")

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Hadamard:
        """Return the one that tells most within this epsilon."""
        rows = 1 << size.bit_length()
        return Hadamard(size, rows, boldest(_ratio, epsilon))

    @property
    def width(self) -> int:
        """Return the bytes that hold the largest place."""
        return bytes_for(self.rows - 1)

    @property
    def parameters(self) -> Parameters:
        """Return the kind and its three numbers."""
        return {"kind": "hadamard", "size": self.size, "rows": self.rows, "truth": self.truth}

    @property
    def law(self) -> Law:
        """Return the chance of every place under every answer."""
        told, places = Fraction(self.truth, PARTS), range(self.rows)
        plus, any_ = told * Fraction(2, self.rows), (1 - told) / self.rows
        return {
            value: {y: any_ + plus * _is_plus(value + 1, y) for y in places}
            for value in range(self.size)
        }

    @property
    def ratio(self) -> Fraction:
        """Return the ratio of a place that is plus for one answer and minus for another."""
        return _ratio(self.truth)

    @property
    def epsilon(self) -> Fraction:
        """Return what a report costs."""
        return epsilon_of(self.ratio)

    @property
    def contrast(self) -> Fraction:
        """Return how much likelier one's own row is plus there: other rows agree half the time."""
        return Fraction(self.truth, 2 * PARTS)

    @property
    def by_chance(self) -> Floats:
        """Return one half."""
        return np.full(self.size, 0.5)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return a place of each: any one, moved where the row is plus if the truth is told."""
        places = words[1] >> np.uint32(32 - self.rows.bit_length() + 1)
        rows = values.astype(np.uint32) + np.uint32(1)
        is_minus = (np.bitwise_count(places & rows) & 1).astype(np.uint32)
        is_told = below(words[0], self.truth).astype(np.uint32)
        moved = places ^ ((rows & (~rows + np.uint32(1))) * (is_minus & is_told))
        return as_rows(moved, self.width)

    def are_valid(self, reports: Reports) -> Booleans:
        """Say which are places of the matrix."""
        return np.asarray(numbers(reports) < self.rows)

    def counts(self, reports: Reports) -> Integers:
        """Return how often each place was said."""
        return np.bincount(numbers(reports), minlength=self.rows).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Return how many places are plus for each answer: half of all and the transform."""
        signs = transformed(counts)
        return np.asarray((signs[0] + signs[1 : self.size + 1]) // 2)


def _ratio(truth: int) -> Fraction:
    return 1 + Fraction(2 * truth, PARTS - truth)


def _is_plus(row: int, place: int) -> int:
    return (row & place).bit_count() % 2 == 0


def transformed(counts: Integers) -> Integers:
    """Return the Hadamard transform of whole numbers, a power of two of them."""
    signs = counts.copy()
    step = 1
    while step < len(signs):
        pairs = signs.reshape(-1, 2, step)
        signs = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        step *= 2
    return signs
