"""Optimised unary encoding: a bit for every answer; one's own is a fair coin, the others are rare.

Thirty-two answers share a word, and the thirty-two words of such a group hold one bit each of every
answer's own 32-bit word: comparing them with a chance takes one `and` or `or` per word, however
many answers there are. Proof: unary_encoding.proof.md (Wang et al. 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of
from sfumato.dp.local.random_words import PARTS, Integers, Words, boldest
from sfumato.dp.refusal import Bug

PLANES = 32
HALF = PARTS // 2
Bits = NDArray[np.uint32]


@dataclass(frozen=True)
class Unary:
    """How many answers, and the chance that another's bit is set, in parts of 2**32."""

    size: int
    other: int

    def __post_init__(self) -> None:
        if not (2 <= self.size <= 1 << 16 and 0 < self.other < HALF):
            raise Bug(
                "there are two answers at least, and others are set less often than one's own"
            )

    @staticmethod
    def within(size: int, epsilon: Fraction) -> Unary:
        """Return the one that tells most within this epsilon."""
        return Unary(size, HALF - boldest(lambda less: _ratio(HALF - less), epsilon, HALF - 1))

    @property
    def groups(self) -> int:
        """Return how many groups of 32 answers there are."""
        return -(-self.size // 32)

    @property
    def words(self) -> int:
        """Return the words of a report: a plane of each group for every bit of a chance."""
        return PLANES * self.groups

    @property
    def width(self) -> int:
        """Return the bytes of all groups."""
        return 4 * self.groups

    @property
    def parameters(self) -> Parameters:
        """Return the kind, the number of answers and the chance of another's bit."""
        return {"kind": "unary", "size": self.size, "other": self.other}

    @property
    def law(self) -> Law:
        """Return the chance of every set of bits under every answer; for few answers only."""
        return {value: dict(self._says(value)) for value in range(self.size)}

    @property
    def ratio(self) -> Fraction:
        """Return the largest ratio: one's own bit is set and the other's is not, or vice versa."""
        return _ratio(self.other)

    @property
    def epsilon(self) -> Fraction:
        """Return what a report costs."""
        return epsilon_of(self.ratio)

    @property
    def contrast(self) -> Fraction:
        """Return how much likelier one's own bit is set."""
        return Fraction(HALF - self.other, PARTS)

    @property
    def by_chance(self) -> Floats:
        """Return how often another's bit is set."""
        return np.full(self.size, self.other / PARTS)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return the bits of every answer, compared with their chance from the lowest plane on."""
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
        """Say which set no bit beyond the last answer."""
        return np.asarray((reports.view("<u4")[:, -1] & ~self._last) == 0)

    def counts(self, reports: Reports) -> Integers:
        """Return how often each bit is set."""
        return set_bits(reports.view("<u4"))[: self.size]

    def supports(self, counts: Integers) -> Integers:
        """Return the counts."""
        return counts

    @property
    def _last(self) -> np.uint32:
        """Return the bits of the last group that are answers."""
        return np.uint32((1 << (self.size - 32 * (self.groups - 1))) - 1)

    def _says(self, value: int) -> list[tuple[int, Fraction]]:
        return [(said, self._chance(value, said)) for said in range(1 << self.size)]

    def _chance(self, value: int, said: int) -> Fraction:
        chance = Fraction(1, 2)  # of one's own bit, set or not
        other = Fraction(self.other, PARTS)
        for place in range(self.size):
            if place != value:
                chance *= other if said >> place & 1 else 1 - other
        return chance


def _ratio(other: int) -> Fraction:
    return Fraction(PARTS - other, other)


def set_bits(rows: Bits) -> Integers:
    """Return how often each bit of a row is set: the first bit of the first word first.

    Rows are added three at a time into a sum and a carry, as a full adder does with bits, so that
    a row costs about ten operations on words and no bit is ever looked at alone.
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
    """Return one or two rows with the sum of all, and rows of carries worth twice as much."""
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
