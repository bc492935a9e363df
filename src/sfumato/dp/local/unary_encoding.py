"""Optimised unary encoding (OUE): one random bit per answer, set more often for the true answer.

The bit of the true answer is a fair coin. Each other bit is set with a smaller probability. The
random words are bit-sliced: 32 answers form a group, and word i of the group holds bit i of the
random number of each answer. So one `and` or `or` per word compares all 32 numbers with a
probability. Proof: unary_encoding.proof.md (Wang et al. 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of
from sfumato.dp.local.random_words import PARTS, Integers, Words, largest_probability_within
from sfumato.dp.refusal import Bug

PLANES = 32
HALF = PARTS // 2
Bits = NDArray[np.uint32]


@dataclass(frozen=True)
class Unary:
    """Optimised unary encoding, a frequency oracle: one random bit per answer.

    `size` is the number of answers. `other` is the probability to set the bit of an answer that is
    not true, in parts of 2**32.
    """

    size: int
    other: int

    def __post_init__(self) -> None:
        if not (2 <= self.size <= 1 << 16 and 0 < self.other < HALF):
            raise Bug(
                "there are two answers at least, and others are set less often than one's own"
            )

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Unary:
        """Return the most accurate unary encoding whose epsilon is at most `epsilon`."""
        return Unary(
            size,
            HALF - largest_probability_within(lambda less: _ratio(HALF - less), epsilon, HALF - 1),
        )

    @property
    def groups(self) -> int:
        """Return the number of groups of 32 answers, one 32-bit word each."""
        return -(-self.size // 32)

    @property
    def words_per_report(self) -> int:
        """Return the number of random words per report: 32 (one per bit plane) for each group."""
        return PLANES * self.groups

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: four for each group of 32 answers."""
        return 4 * self.groups

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `size` and `other`."""
        return {"kind": "unary", "size": self.size, "other": self.other}

    @property
    def law(self) -> Law:
        """Return the exact probability of each report (bit pattern) for each answer.

        Use it for few answers only.
        """
        return {value: dict(self._says(value)) for value in range(self.size)}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under another.

        Its logarithm is the local epsilon. The worst report has the bit of one answer set, and that
        of another not set.
        """
        return _ratio(self.other)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(bit of the true answer is set) - P(bit of another answer is set).

        Estimates of shares divide by it.
        """
        return Fraction(HALF - self.other, PARTS)

    @property
    def q(self) -> Floats:
        """Return for each answer the probability that its bit is set when another is true.

        Estimates of shares subtract this chance.
        """
        return np.full(self.size, self.other / PARTS)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each answer to a pattern of bits, one for each possible answer.

        The code compares random numbers with the probability from the lowest bit up.
        """
        planes = words.reshape(PLANES, self.groups, len(values))
        bits = np.zeros(planes.shape[1:], dtype=np.uint32)
        for place, plane in enumerate(planes):
            (np.bitwise_or if self.other >> place & 1 else np.bitwise_and)(bits, plane, out=bits)
        own = np.uint32(1) << (values & 31).astype(np.uint32)
        at = (values >> 5, np.arange(len(values)))
        bits[at] = (bits[at] & ~own) | (planes[-1][at] & own)
        bits[-1] &= self._last
        return np.ascontiguousarray(bits.T).astype("<u4", copy=False).view(np.uint8)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if no bit after the last answer is set."""
        return np.asarray((reports.view("<u4")[:, -1] & ~self._last) == 0)

    def counts(self, reports: Reports) -> Integers:
        """Count for each answer how many reports have its bit set."""
        return set_bits(reports.view("<u4"))[: self.size]

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: a report supports each answer whose bit it has set."""
        return counts

    @property
    def _last(self) -> np.uint32:
        """Return the mask of the bits in the last group of 32 that belong to a possible answer."""
        return np.uint32((1 << (self.size - 32 * (self.groups - 1))) - 1)

    def _says(self, value: int) -> list[tuple[int, Fraction]]:
        return [(said, self._chance(value, said)) for said in range(1 << self.size)]

    def _chance(self, value: int, said: int) -> Fraction:
        chance = Fraction(1, 2)  # P(bit of the true answer), whether it is set or not
        other = Fraction(self.other, PARTS)
        for place in range(self.size):
            if place != value:
                chance *= other if said >> place & 1 else 1 - other
        return chance


def _ratio(other: int) -> Fraction:
    return Fraction(PARTS - other, other)


def set_bits(rows: Bits) -> Integers:
    """Count for each bit position how many rows have the bit set, the lowest bit of a word first.

    The code works like a full adder: it adds three rows at a time into a sum and a carry. A row
    costs about ten word operations, and no bit is processed alone.
    """
    counts = np.zeros(32 * rows.shape[1], dtype=np.int64)
    weight = 1
    while len(rows):
        rows, carries = _added(rows)
        for row in rows:
            counts += weight * _bits_of(row)
        rows, weight = carries, 2 * weight
    return counts


def _added(rows: Bits) -> tuple[Bits, Bits]:
    """Add bits over many rows, three rows at a time, as a full adder does.

    Return one or two rows of sums, and rows of carries, which have twice the weight.
    """
    carried = []
    while len(rows) > 2:
        third = len(rows) // 3
        one, two, three = rows[:third], rows[third : 2 * third], rows[2 * third : 3 * third]
        half = one ^ two
        carried.append((one & two) | (half & three))
        rows = np.concatenate([half ^ three, rows[3 * third :]])
    return rows, np.concatenate(carried) if carried else rows[:0]


def _bits_of(row: Bits) -> Integers:
    return np.unpackbits(row.astype("<u4").view(np.uint8), bitorder="little").astype(np.int64)
