"""Optimised local hashing (OLH): each client draws a hash, and randomises the answer's hash cell.

The client reports the cell by k-ary response. The client itself draws the hash function (soundness
rule 33). The hash family is exactly pairwise independent: over its two random words, the cells of
two answers are independent.

The variance depends only on this property, so it equals that of a perfect hash. A hash with a short
or shared seed lacks this property, and is less accurate. Proof: local_hashing.proof.md (Wang et al.
2017; Dietzfelbinger 1996).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of
from sfumato.dp.local.random_words import PARTS, Integers, Words, among, below, odds_of, words_each
from sfumato.dp.refusal import Bug

Unsigned = NDArray[np.uint32]
HASHED: Final = 1 << 16  # the hash gives 16 bits, which are then scaled to a cell
MAX_ANSWERS: Final = 1 << 17  # answers have 17 bits; the proof needs 17 + 16 - 1 = 32
MAX_CELLS: Final = 1 << 8
_AT_ONCE: Final = 1 << 17  # hashes per block, which fit in the CPU cache


@dataclass(frozen=True)
class Hashing:
    """Optimised local hashing: a frequency oracle whose reports name a hash function and a cell.

    `size` is the number of answers, and `cells` the number of hash cells. `truth` is the
    probability to report the true cell, in parts of 2**32.
    """

    size: int
    cells: int
    truth: int

    words_per_report: ClassVar[int] = 4
    width: ClassVar[int] = 9

    def __post_init__(self) -> None:
        is_sized = 2 <= self.size <= MAX_ANSWERS and 2 <= self.cells <= MAX_CELLS
        if not (is_sized and 0 < self.truth < PARTS):
            raise Bug("hashes have 2 to 256 cells, for 2 to 2**17 answers")

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Hashing:
        """Return the most accurate local hashing whose epsilon is at most `epsilon`.

        It has about exp(epsilon) + 1 hash cells.
        """
        cells = max(2, min(MAX_CELLS, round(odds_of(epsilon) + 1)))
        return Hashing(size, cells, KAry.within(cells, epsilon).truth)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `size`, `cells` and `truth`."""
        return {"kind": "hashing", "size": self.size, "cells": self.cells, "truth": self.truth}

    @property
    def response(self) -> KAry:
        """Return the k-ary randomised response that randomises the hash cell."""
        return KAry(self.cells, self.truth)

    @property
    def law(self) -> Law:
        """Return the probability of each reported hash cell for each true hash cell.

        The hash function is independent of the answer.
        """
        return self.response.law

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under another.

        Its logarithm is the local epsilon. It is the likelihood ratio of the k-ary response to the
        hash cell.
        """
        return self.response.ratio

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(reported cell is the true answer's cell) - P(it is another answer's cell).

        Estimates of shares divide by it.
        """
        return Fraction(self.truth, PARTS) * (1 - self._same)

    @property
    def q(self) -> Floats:
        """Return for each answer the probability that the report of another answer supports it.

        A report supports all answers in its hash cell. Estimates subtract this chance support.
        """
        told = Fraction(self.truth, PARTS)
        return np.full(self.size, float(told * self._same + (1 - told) * self._drawn))

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each answer to a report: two words of its hash, and the randomised cell."""
        cells = cells_of(words[0], words[1], values.astype(np.uint32), self.cells)
        drawn = among(words[3], self.cells).astype(np.uint8)
        said = np.where(below(words[2], self.truth), cells.astype(np.uint8), drawn)
        reports = np.empty((len(values), self.width), dtype=np.uint8)
        reports[:, :4] = words[0].astype("<u4").view(np.uint8).reshape(-1, 4)
        reports[:, 4:8] = words[1].astype("<u4").view(np.uint8).reshape(-1, 4)
        reports[:, 8] = said
        return reports

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a mask of the valid reports: those whose hash cell exists."""
        return np.asarray(reports[:, 8] < self.cells)

    def counts(self, reports: Reports) -> Integers:
        """Count for each answer how many reports name its cell, under the report's own hash."""
        times, shifts = (_column(reports, start)[:, np.newaxis] for start in (0, 4))
        said = reports[:, 8].astype(np.uint32)[:, np.newaxis]
        counts = np.zeros(self.size, dtype=np.int64)
        for start in range(0, self.size, 512):
            answers = np.arange(start, min(start + 512, self.size), dtype=np.uint32)
            step = min(255, max(1, _AT_ONCE // len(answers)))
            for row in range(0, len(reports), step):
                some = slice(row, row + step)
                is_same = cells_of(times[some], shifts[some], answers, self.cells) == said[some]
                same = is_same.view(np.uint8).sum(axis=0, dtype=np.uint8)  # 255 rows fit in uint8
                counts[start : start + len(answers)] += same
        return counts

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: count i is the number of reports that support answer i."""
        return counts

    @cached_property
    def _hashed(self) -> tuple[Fraction, ...]:
        """Return for each hash cell the exact probability that a random hash maps an answer to it.

        The cells do not have exactly equal probabilities, and unbiased estimates need the exact
        ones.
        """
        first = -((-np.arange(self.cells + 1) * HASHED) // self.cells)
        return tuple(Fraction(int(count), HASHED) for count in np.diff(first))

    @property
    def _same(self) -> Fraction:
        """Return the probability that a random hash maps two different answers to the same cell."""
        return sum((chance**2 for chance in self._hashed), Fraction(0))

    @property
    def _drawn(self) -> Fraction:
        """Return the probability that a cell drawn at random is the hash cell of a given answer.

        It is near one over the number of cells, but exact.
        """
        chances = [Fraction(int(words), PARTS) for words in words_each(self.cells)]
        return sum((a * b for a, b in zip(chances, self._hashed, strict=True)), Fraction(0))


def cells_of(times: Unsigned, shifts: Unsigned, answers: Unsigned, cells: int) -> Unsigned:
    """Hash each answer to one of `cells` cells; `times` and `shifts` define the hash function.

    The cell is the upper 16 bits of times * answer + shift, scaled to `cells`.
    """
    hashed = times * answers
    hashed += shifts
    if cells & (cells - 1) == 0:  # for a power of two, one shift gives the same cells
        hashed >>= np.uint32(33 - cells.bit_length())
        return np.asarray(hashed)
    hashed >>= np.uint32(16)
    hashed *= np.uint32(cells)
    hashed >>= np.uint32(16)
    return np.asarray(hashed)


def _column(reports: Reports, start: int) -> Unsigned:
    return np.ascontiguousarray(reports[:, start : start + 4]).view("<u4").reshape(-1)
