"""Heavy hitters: find frequent texts without a list of candidates, by growing frequent prefixes.

Each person draws a prefix length at random, independently of the answer. The report encodes the
answer's prefix of that length by local hashing. The server keeps the prefixes with significant
counts, and extends each by every symbol. It tests the longer prefixes on the reports of the next
length. Each person reports once, so the epsilon is that of one k-ary response. Proof:
heavy_hitters.proof.md (Wang et al. 2019).

The server reads the reports once for each prefix length, so it must store them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from statistics import NormalDist
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.proportion_intervals import intervals
from sfumato.dp.local.random_words import Integers, Words, among, below
from sfumato.dp.refusal import Bug, Refused

Unsigned = NDArray[np.uint32]
END: Final = 0  # the symbol that pads a text to the full length
_AT_ONCE: Final = 1 << 18  # hashes per block


@dataclass(frozen=True)
class Hitter:
    """A frequent text, with the estimated share of people who have it and an interval."""

    text: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class PrefixOracle:
    """The local randomiser of texts: it reports a random prefix by local hashing.

    Symbol 0 ends a text, and symbol i is character i of the alphabet. The symbol after the last
    character means silence (no text). A prefix grows by `step` symbols per level. `cells` and
    `truth` are the parameters of the k-ary response.
    """

    alphabet: str
    length: int
    step: int
    cells: int
    truth: int

    MAX_LENGTH: ClassVar[int] = 64

    def __post_init__(self) -> None:
        are_apart = len(set(self.alphabet)) == len(self.alphabet) > 0
        if not (are_apart and 1 <= self.step <= self.length <= self.MAX_LENGTH):
            raise Bug("symbols differ, and a prefix grows by no more than a text is long")
        Hashing(2, self.cells, self.truth)  # also checks cells and truth

    @staticmethod
    def within(alphabet: str, length: int, epsilon: Fraction, *, step: int = 1) -> PrefixOracle:
        """Return the prefix randomiser with the least error whose epsilon is at most `epsilon`."""
        hashing = Hashing.within(2, epsilon)
        return PrefixOracle(alphabet, length, step, hashing.cells, hashing.truth)

    @property
    def levels(self) -> int:
        """Return the number of levels: how many different prefix lengths there are."""
        return -(-self.length // self.step)

    @property
    def words_per_report(self) -> int:
        """Return the number of 32-bit random words per report.

        One word chooses the prefix length, `length` + 1 words define the hash function, and two
        randomise the hash cell.
        """
        return self.length + 4

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: level, hash function and hash cell."""
        return 1 + 4 * (self.length + 1) + 1

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind and all its numbers."""
        return {"kind": "growing", "alphabet": self.alphabet, "length": self.length,
                "step": self.step, "cells": self.cells, "truth": self.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the probability of each reported hash cell, for each true hash cell.

        The prefix level and the hash function are independent of the answer.
        """
        return KAry(self.cells, self.truth).law

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one text than under another.

        Its logarithm is the local epsilon. It is the likelihood ratio of the k-ary response to the
        hash cell.
        """
        return KAry(self.cells, self.truth).ratio

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def silence(self) -> int:
        """Return the number of the symbol that a person without a text has first: silence."""
        return len(self.alphabet) + 1

    def encoded(self, texts: Sequence[str | None]) -> Integers:
        """Encode texts as rows of symbol numbers, truncated to the full length; None is silence."""
        number = {symbol: place + 1 for place, symbol in enumerate(self.alphabet)}
        rows = np.full((len(texts), self.length), END, dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            if text is None:
                row[0] = self.silence
                continue
            if not set(text) <= set(number):
                raise Refused(
                    "bad-request",
                    "The text has a symbol that is not in the alphabet.",
                    "Use only symbols of the alphabet.",
                )
            cut = text[: self.length]
            row[: len(cut)] = [number[symbol] for symbol in cut]
        return rows

    def decoded(self, symbols: Sequence[int]) -> str:
        """Decode a row of symbol numbers to its text, without the symbols that pad it."""
        return "".join(self.alphabet[symbol - 1] for symbol in symbols if symbol != END)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise encoded texts to reports of prefix level, hash function and hash cell.

        The hash covers only the symbols of the level's prefix.
        """
        levels = among(words[0], self.levels).astype(np.int64)
        is_in = np.arange(self.length) < ((levels + 1) * self.step)[:, np.newaxis]
        times = words[1 : self.length + 1]
        hashed = words[self.length + 1] + (times * (values * is_in).T.astype(np.uint32)).sum(
            axis=0, dtype=np.uint32
        )
        drawn = among(words[-1], self.cells)
        said = np.where(below(words[-2], self.truth), _cells(hashed, self.cells), drawn)
        reports = np.empty((len(values), self.width), dtype=np.uint8)
        reports[:, 0] = levels
        seeds = np.ascontiguousarray(words[1 : self.length + 2].T).astype("<u4", copy=False)
        reports[:, 1:-1] = seeds.view(np.uint8)
        reports[:, -1] = said
        return reports

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a mask of the valid reports: those whose prefix level and hash cell exist."""
        return np.asarray((reports[:, 0] < self.levels) & (reports[:, -1] < self.cells))

    def supports_prefixes(self, reports: Reports, prefixes: Integers) -> Booleans:
        """Return for each report (row) which candidate prefixes (columns) it supports, as a matrix.

        A report supports a prefix if it names the prefix's hash cell.
        """
        seeds = np.ascontiguousarray(reports[:, 1:-1]).view("<u4")
        hashed = np.repeat(seeds[:, self.length :], len(prefixes), axis=1)
        for place in range(prefixes.shape[1]):
            symbols = prefixes[:, place].astype(np.uint32)
            hashed += seeds[:, place, np.newaxis] * symbols
        return np.asarray(_cells(hashed, self.cells) == reports[:, -1:])


Growing = PrefixOracle  # the name of version 0.1


def prefix_oracle_of(parameters: Parameters) -> PrefixOracle:
    """Build the prefix randomiser from its JSON parameters; refuse missing or unknown ones."""
    names = ("alphabet", "length", "step", "cells", "truth")
    numbers = [parameters.get(name) for name in names[1:]]
    alphabet = parameters.get("alphabet")
    is_whole = set(parameters) == {"kind", *names} and parameters["kind"] == "growing"
    if not (is_whole and isinstance(alphabet, str) and all(type(n) is int for n in numbers)):
        raise _unreadable()
    made = _made(alphabet, [n for n in numbers if isinstance(n, int)])
    if made is None:
        raise _unreadable()
    return made


def _made(alphabet: str, numbers: list[int]) -> PrefixOracle | None:
    try:
        return PrefixOracle(alphabet, *numbers)
    except Bug:  # the invalid numbers come from the caller, so they are not a bug of this program
        return None


def _unreadable() -> Refused:
    return Refused(
        "bad-request",
        "The parameters do not describe a randomiser that sfumato knows.",
        "Give the randomiser's .parameters unchanged.",
    )


def grow(
    oracle: PrefixOracle, reports: Reports, *, most: int = 50, confidence: float = 0.95
) -> tuple[Hitter, ...]:
    """Find the heavy hitters: at most `most` frequent texts, the most frequent first.

    The search extends prefixes whose count is significantly above the noise. If nobody has any
    candidate prefix of a level, some candidate passes with probability of about 1 - confidence (1
    in 20 by default).
    """
    if reports.ndim != 2 or reports.shape[1] != oracle.width or not oracle.are_valid(reports).all():
        raise Refused(
            "bad-request",
            "A report has a value that this randomiser never gives.",
            "Send the bytes that the randomiser gave, unchanged.",
        )
    kept: list[tuple[int, ...]] = [()]
    seen = (np.zeros(0, dtype=np.int64), 1)
    for level in range(oracle.levels):
        candidates = np.array(list(_longer(oracle, kept, level)))
        some = reports[reports[:, 0] == level]
        if not len(some) or not len(candidates):
            return ()
        supports = _supports(oracle, some, candidates)
        best = _standing_out(oracle, supports, len(some), most, confidence)
        kept = [tuple(candidates[place].tolist()) for place in best]
        seen = (supports[best], len(some))
    return _hitters(oracle, kept, *seen, confidence)


def _longer(
    oracle: PrefixOracle, kept: list[tuple[int, ...]], level: int
) -> Iterator[tuple[int, ...]]:
    """Yield the candidates of a level: every frequent prefix in `kept`, extended by new symbols.

    `level` is the level of the candidates, from 0. A text that has already ended is only padded
    with END symbols.
    """
    more = min(oracle.step, oracle.length - level * oracle.step)
    tails = [tail for tail in product(range(oracle.silence), repeat=more) if _is_text(tail)]
    for prefix in kept:
        is_over = bool(prefix) and prefix[-1] == END
        yield from (prefix + tail for tail in (tails[:1] if is_over else tails))


def _is_text(tail: tuple[int, ...]) -> bool:
    """Return whether these symbols can end a text: after the first END, only END may follow."""
    return END not in tail or not any(tail[tail.index(END) :])


def _supports(oracle: PrefixOracle, reports: Reports, prefixes: Integers) -> Integers:
    counts = np.zeros(len(prefixes), dtype=np.int64)
    step = max(1, _AT_ONCE // len(prefixes))
    for start in range(0, len(reports), step):
        counts += oracle.supports_prefixes(reports[start : start + step], prefixes).sum(axis=0)
    return counts


def _standing_out(
    oracle: PrefixOracle, supports: Integers, people: int, most: int, confidence: float
) -> Integers:
    """Return the indices of the frequent prefixes: their counts are significantly above the noise.

    `supports` has the number of supporting reports of each prefix. At most `most` prefixes are
    returned, the most frequent first.
    """
    another, _ = _chances(oracle)
    z = NormalDist().inv_cdf(1 - (1 - confidence) / len(supports))
    least = people * another + z * (people * another * (1 - another)) ** 0.5
    order = np.argsort(-supports, kind="stable")[:most]
    return np.asarray(order[supports[order] > least])


def _hitters(
    oracle: PrefixOracle, kept: list[tuple[int, ...]], supports: Integers, people: int,
    confidence: float,
) -> tuple[Hitter, ...]:  # fmt: skip
    another, contrast = _chances(oracle)
    low, high = intervals(supports, people, confidence)
    ends = [_back(seen, another, contrast) for seen in (supports / people, low, high)]
    return tuple(
        Hitter(oracle.decoded(text), share, max(0.0, least), min(1.0, top))
        for text, share, least, top in zip(kept, *ends, strict=True)
    )


def _back(seen: Floats, another: float, contrast: float) -> list[float]:
    shares: list[float] = ((seen - another) / contrast).tolist()
    return shares


def _chances(oracle: PrefixOracle) -> tuple[float, float]:
    """Return the two probabilities from which shares of prefixes are estimated: q and p - q.

    A report supports the prefix of its own person with probability p, and any other prefix with
    probability q.
    """
    hashing = Hashing(2, oracle.cells, oracle.truth)
    return float(hashing.q[0]), float(hashing.p_minus_q)


def _cells(hashed: Unsigned, cells: int) -> Unsigned:
    return np.asarray((hashed >> np.uint32(16)) * np.uint32(cells) >> np.uint32(16))
