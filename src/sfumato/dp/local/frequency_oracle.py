"""The interface of local randomisers and frequency oracles, and the functions that they share.

An answer is an integer from 0 to size - 1. A missing answer (silence) also has a number, usually
the last one, so a client randomises silence like any answer (soundness rule 31). A report is a row
of bytes of fixed width. Counts of reports are integers that can be added in any order. So the
server's storage does not grow with the number of respondents.

For clients in other languages, docs/reference/local.md specifies how a client uses each random
word.
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
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
Reports = NDArray[np.uint8]  # uint8 matrix: one report per row
Parameters = Mapping[str, object]  # JSON values: strings, integers and lists of them
_WORDS_AT_ONCE: Final = 1 << 18  # random words per block, so that a block fits in the CPU cache
_BYTES_AT_ONCE: Final = 1 << 20  # bytes of reports that `simulate` collects before it counts them


class Randomiser(Protocol):
    """The interface of all local randomisers, which make a person's answer private on their device.

    There are randomisers for one answer among several, for numbers and for ballots of questions.
    """

    @property
    def words_per_report(self) -> int:
        """Return the number of random 32-bit words per report, the same for every answer."""
        ...

    @property
    def width(self) -> int:
        """Return the length of a report in bytes, the same for every answer."""
        ...

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters that a reader of reports needs: the kind and its numbers."""
        ...

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under another.

        It is exact, and its logarithm is the local epsilon.
        """
        ...

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon: the logarithm of `ratio`, rounded up to 1e-9."""
        ...

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise answers to reports; column i of `words` holds the random words of report i."""
        ...

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask of the reports that a correct client could have sent."""
        ...


class Counting(Randomiser, Protocol):
    """A randomiser whose reports the server counts, and whose exact distribution is known."""

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for each answer, from which epsilon follows.

        This is slow if there are many answers.
        """
        ...

    def counts(self, reports: Reports) -> Integers:
        """Count valid reports by their content; the counts of different batches can be added."""
        ...


class Oracle(Counting, Protocol):
    """A frequency oracle: a randomiser of one answer among several, with counts for estimates."""

    @property
    def size(self) -> int:
        """Return the number of possible answers, including silence (no answer)."""
        ...

    @property
    def p_minus_q(self) -> Fraction:
        """Return p - q: P(report supports its true answer) - P(report supports another answer).

        Estimates divide by it: a share is (share of supporting reports - q) / (p - q).
        """
        ...

    @property
    def q(self) -> Floats:
        """Return for each answer the probability that a report of another answer supports it.

        A report may support wrong answers by chance. An estimate subtracts this chance support from
        the share of supporting reports.
        """
        ...

    def supports(self, counts: Integers) -> Integers:
        """Return for each answer how many of the counted reports support it."""
        ...


@dataclass(frozen=True, eq=False)
class Tally:
    """The counts of the reports of `people` under one frequency oracle; tallies can be added."""

    oracle: Oracle
    people: int
    counts: Integers

    def __add__(self, other: Tally) -> Tally:
        """Add the tally of more reports; both must have the same randomiser parameters."""
        if self.oracle.parameters != other.oracle.parameters:
            raise Bug("tallies of different parameters cannot be added")
        return Tally(self.oracle, self.people + other.people, self.counts + other.counts)


def randomise(oracle: Oracle, values: Integers, dice: RandomSource) -> Reports:
    """Randomise answers with a frequency oracle; return one report (row of bytes) per answer."""
    return np.concatenate([_empty(oracle), *_reports_in_blocks(oracle, values, dice)])


def randomise_one(oracle: Oracle, value: int, words: list[int]) -> bytes:
    """Randomise one answer with the given random words, to make test vectors; return its report."""
    column = np.array(words, dtype=np.uint32).reshape(oracle.words_per_report, 1)
    return oracle.randomise(checked(oracle, np.array([value])), column).tobytes()


def tally(oracle: Oracle, reports: Reports) -> Tally:
    """Count the reports of a frequency oracle; refuse reports that no client could have made."""
    if reports.ndim != 2 or reports.shape[1] != oracle.width:
        raise Refused(
            "bad-request",
            "A report has another length than this randomiser's reports.",
            "Send the bytes that the randomiser gave, unchanged.",
        )
    if not oracle.are_valid(reports).all():
        raise Refused(
            "bad-request",
            "A report has a value that this randomiser never gives.",
            "Send the bytes that the randomiser gave, unchanged.",
        )
    return Tally(oracle, len(reports), oracle.counts(reports))


def nothing(oracle: Oracle) -> Tally:
    """Return the tally of zero reports, as the start of a sum of tallies."""
    return Tally(oracle, 0, oracle.counts(_empty(oracle)))


def simulate(oracle: Oracle, values: Integers, dice: RandomSource) -> Tally:
    """Randomise the answers of all people and count the reports, in blocks that limit memory."""
    counts, kept = nothing(oracle).counts, [_empty(oracle)]
    for reports in _reports_in_blocks(oracle, values, dice):
        kept.append(reports)
        if sum(some.size for some in kept) >= _BYTES_AT_ONCE:
            counts, kept = counts + oracle.counts(np.concatenate(kept)), [_empty(oracle)]
    return Tally(oracle, len(values), counts + oracle.counts(np.concatenate(kept)))


def checked(oracle: Oracle, values: Integers) -> Integers:
    """Return the answer numbers unchanged, or refuse a number outside 0 to size - 1."""
    if values.size and (values.min() < 0 or values.max() >= oracle.size):
        raise Refused(
            "bad-request",
            "The number of an answer is outside the range of this randomiser.",
            f"Give numbers from 0 to {oracle.size - 1}.",
        )
    return values


def _empty(oracle: Oracle) -> Reports:
    return np.zeros((0, oracle.width), dtype=np.uint8)


def _reports_in_blocks(oracle: Oracle, values: Integers, dice: RandomSource) -> Iterator[Reports]:
    step = max(64, _WORDS_AT_ONCE // oracle.words_per_report)
    for start in range(0, len(values), step):
        block = checked(oracle, values[start : start + step])
        yield oracle.randomise(block, drawn(dice, oracle.words_per_report, len(block)))


def packed(columns: list[NDArray[np.unsignedinteger]], sizes: list[int]) -> Reports:
    """Pack columns of numbers into reports: one row of bytes for each person, little-endian.

    `sizes` gives the number of bytes of each column.
    """
    wide = [column.astype("<u8").view(np.uint8).reshape(-1, 8) for column in columns]
    cut = [bytes_[:, :size] for bytes_, size in zip(wide, sizes, strict=True)]
    return np.ascontiguousarray(np.concatenate(cut, axis=1))


def bytes_for(max_number: int) -> int:
    """Return how many bytes hold every number from 0 to `max_number`: 1, 2 or 4."""
    return next(size for size in (1, 2, 4) if max_number < 1 << 8 * size)


def numbers(reports: Reports) -> NDArray[np.unsignedinteger]:
    """Decode each report (row of one, two, four or eight bytes) as a little-endian number."""
    size = reports.shape[1]
    return np.ascontiguousarray(reports).view(f"<u{size}").reshape(-1)


def as_rows(said: NDArray[np.unsignedinteger], size: int) -> Reports:
    """Encode each number as a report: a row of `size` bytes, little-endian."""
    return said.astype(f"<u{size}").view(np.uint8).reshape(-1, size)
