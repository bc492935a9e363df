"""One interface for every randomiser of one answer among several, and what is common to them.

An answer is a whole number from 0 to size - 1. Who gives no answer has a number too, the last one
by custom, so that silence is hidden like everything else (soundness rule 31). A report is a row of
bytes of one fixed width. Counts of reports are whole numbers and may be added in any order, so what
a server keeps does not grow with its respondents.

To write a client in another language, docs/local.md says for each kind which word does what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.likelihood_ratio import Law
from sfumato.dp.local.random_words import Integers, Words, drawn
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug, Refused

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Reports = NDArray[np.uint8]  # a row of bytes for each report
Parameters = Mapping[str, object]  # JSON: texts, whole numbers and lists of them
_WORDS_AT_ONCE: Final = 1 << 18  # a block that stays near the processor
_BYTES_AT_ONCE: Final = 1 << 20  # of reports, before they are counted: counting has a price too


class Randomiser(Protocol):
    """What the randomisers of one answer, of numbers and of ballots have in common."""

    @property
    def words(self) -> int:
        """Return how many 32-bit words a report takes, whatever the answer."""
        ...

    @property
    def width(self) -> int:
        """Return how many bytes a report has, whatever the answer."""
        ...

    @property
    def parameters(self) -> Parameters:
        """Return what a report has to carry to be read: JSON with the kind and its numbers."""
        ...

    @property
    def ratio(self) -> Fraction:
        """Return the largest ratio of the chances of a report under two answers, exact."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """Return the logarithm of that ratio, rounded up to billionths."""
        ...

    def say(self, values: Integers, words: Words) -> Reports:
        """Return the reports for these answers and words; a column of words for each report."""
        ...

    def are_valid(self, reports: Reports) -> Booleans:
        """Say of each row of bytes whether a client could have made it."""
        ...


class Counting(Randomiser, Protocol):
    """A randomiser whose reports are counted: its law can be written down, its counts added."""

    @property
    def law(self) -> Law:
        """Return the chance of everything that can be said under every answer; for few answers."""
        ...

    def counts(self, reports: Reports) -> Integers:
        """Return what is kept of valid reports; counts of different reports may be added."""
        ...


class Oracle(Counting, Protocol):
    """A randomiser of one answer among several, and the counts behind its estimates."""

    @property
    def size(self) -> int:
        """Return how many answers there are, silence among them."""
        ...

    @property
    def contrast(self) -> Fraction:
        """Return by how much likelier a report speaks for its giver's answer than for another."""
        ...

    @property
    def by_chance(self) -> Floats:
        """Return for each answer the chance that a report of somebody else speaks for it."""
        ...

    def supports(self, counts: Integers) -> Integers:
        """Return for each answer how many of the counted reports speak for it."""
        ...


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of so many reports, made with one oracle; two of them may be added."""

    oracle: Oracle
    people: int
    counts: Integers

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of both, if the same parameters made them."""
        if self.oracle.parameters != other.oracle.parameters:
            raise Bug("tallies of different parameters cannot be added")
        return Tally(self.oracle, self.people + other.people, self.counts + other.counts)


def randomise(oracle: Oracle, values: Integers, dice: Dice) -> Reports:
    """Return a packed report for each answer."""
    return np.concatenate([_empty(oracle), *_said(oracle, values, dice)])


def randomise_one(oracle: Oracle, value: int, words: list[int]) -> bytes:
    """Return the report that given words make of one answer: what test vectors are made with."""
    column = np.array(words, dtype=np.uint32).reshape(oracle.words, 1)
    return oracle.say(checked(oracle, np.array([value])), column).tobytes()


def tally(oracle: Oracle, reports: Reports) -> Tally:
    """Return the tally of packed reports; one that no client could have made is refused."""
    if reports.ndim != 2 or reports.shape[1] != oracle.width:
        raise Refused("bad-request", "A report has another length.", "Send it as it was made.")
    if not oracle.are_valid(reports).all():
        raise Refused("bad-request", "No client makes such a report.", "Send it as it was made.")
    return Tally(oracle, len(reports), oracle.counts(reports))


def nothing(oracle: Oracle) -> Tally:
    """Return the tally of no reports."""
    return Tally(oracle, 0, oracle.counts(_empty(oracle)))


def simulate(oracle: Oracle, values: Integers, dice: Dice) -> Tally:
    """Return the tally of what these people would say, block by block: memory stays the same."""
    counts, kept = nothing(oracle).counts, [_empty(oracle)]
    for reports in _said(oracle, values, dice):
        kept.append(reports)
        if sum(some.size for some in kept) >= _BYTES_AT_ONCE:
            counts, kept = counts + oracle.counts(np.concatenate(kept)), [_empty(oracle)]
    return Tally(oracle, len(values), counts + oracle.counts(np.concatenate(kept)))


def checked(oracle: Oracle, values: Integers) -> Integers:
    """Return the answers, if each of them is one of the oracle's."""
    if values.size and (values.min() < 0 or values.max() >= oracle.size):
        raise Refused("bad-request", "There is no such answer.", "Give the number of an answer.")
    return values


def _empty(oracle: Oracle) -> Reports:
    return np.zeros((0, oracle.width), dtype=np.uint8)


def _said(oracle: Oracle, values: Integers, dice: Dice) -> Iterator[Reports]:
    step = max(64, _WORDS_AT_ONCE // oracle.words)
    for start in range(0, len(values), step):
        block = checked(oracle, values[start : start + step])
        yield oracle.say(block, drawn(dice, oracle.words, len(block)))


def packed(columns: list[NDArray[np.unsignedinteger]], sizes: list[int]) -> Reports:
    """Return rows of bytes: each column of numbers in so many bytes, the lowest byte first."""
    wide = [column.astype("<u8").view(np.uint8).reshape(-1, 8) for column in columns]
    cut = [bytes_[:, :size] for bytes_, size in zip(wide, sizes, strict=True)]
    return np.ascontiguousarray(np.concatenate(cut, axis=1))


def bytes_for(most: int) -> int:
    """Return how many bytes hold every number up to that one: 1, 2 or 4."""
    return next(size for size in (1, 2, 4) if most < 1 << 8 * size)


def numbers(reports: Reports) -> NDArray[np.unsignedinteger]:
    """Return the number that each row of one, two, four or eight bytes holds."""
    size = reports.shape[1]
    return np.ascontiguousarray(reports).view(f"<u{size}").reshape(-1)


def as_rows(said: NDArray[np.unsignedinteger], size: int) -> Reports:
    """Return the numbers as rows of so many bytes."""
    return said.astype(f"<u{size}").view(np.uint8).reshape(-1, size)
