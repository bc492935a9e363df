"""Frequent texts that nobody listed: prefixes that enough people seem to share, grown step by step.

Each person draws one length of prefix, which hangs on nothing, and says by local hashing which
prefix of that length their text has. A server keeps the prefixes that stand out from the noise,
lengthens each by every symbol, and looks at the reports on the next length. A person says one thing
once, so the price is that of one k-ary response. Proof: heavy_hitters.proof.md (Wang et al. 2019).

The reports are gone through once for each length, so they are kept, as any table of reports is.
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
END: Final = 0  # the symbol after a text, up to its full length
_AT_ONCE: Final = 1 << 18  # hashes


@dataclass(frozen=True)
class Hitter:
    """A text, and the share of all people who have it."""

    text: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Growing:
    """The symbols, the longest text, by how many symbols a prefix grows, and the k-ary response.

    Symbol 0 ends a text, symbol i is the i-th of the alphabet, and the one behind them is silence.
    """

    alphabet: str
    length: int
    step: int
    cells: int
    truth: int

    MOST: ClassVar[int] = 64

    def __post_init__(self) -> None:
        are_apart = len(set(self.alphabet)) == len(self.alphabet) > 0
        if not (are_apart and 1 <= self.step <= self.length <= self.MOST):
            raise Bug("symbols differ, and a prefix grows by no more than a text is long")
        Hashing(2, self.cells, self.truth)  # checks both

    @staticmethod
    def within(alphabet: str, length: int, epsilon: Fraction, *, step: int = 1) -> Growing:
        """Return the one with the least error within this epsilon."""
        hashing = Hashing.within(2, epsilon)
        return Growing(alphabet, length, step, hashing.cells, hashing.truth)

    @property
    def levels(self) -> int:
        """Return how many lengths of prefix there are."""
        return -(-self.length // self.step)

    @property
    def words(self) -> int:
        """Return a word for the level, one for each symbol, one more for the hash, two to say."""
        return self.length + 4

    @property
    def width(self) -> int:
        """Return the bytes of the level, the hash and the cell."""
        return 1 + 4 * (self.length + 1) + 1

    @property
    def parameters(self) -> Parameters:
        """Return the kind and all that makes it."""
        return {"kind": "growing", "alphabet": self.alphabet, "length": self.length,
                "step": self.step, "cells": self.cells, "truth": self.truth}  # fmt: skip

    @property
    def law(self) -> Law:
        """Return the chance of every cell under one's own: level and hash hang on nothing."""
        return KAry(self.cells, self.truth).law

    @property
    def ratio(self) -> Fraction:
        """Return the ratio of the k-ary response."""
        return KAry(self.cells, self.truth).ratio

    @property
    def epsilon(self) -> Fraction:
        """Return what a report costs."""
        return epsilon_of(self.ratio)

    @property
    def silence(self) -> int:
        """Return the symbol that a person without a text begins with."""
        return len(self.alphabet) + 1

    def encoded(self, texts: Sequence[str | None]) -> Integers:
        """Return a row of symbols for each text, cut at the full length; None is silence."""
        number = {symbol: place + 1 for place, symbol in enumerate(self.alphabet)}
        rows = np.full((len(texts), self.length), END, dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            if text is None:
                row[0] = self.silence
                continue
            if not set(text) <= set(number):
                raise Refused("bad-request", "A text has another symbol.", "Use the alphabet.")
            cut = text[: self.length]
            row[: len(cut)] = [number[symbol] for symbol in cut]
        return rows

    def decoded(self, symbols: Sequence[int]) -> str:
        """Return the text of some symbols."""
        return "".join(self.alphabet[symbol - 1] for symbol in symbols if symbol != END)

    def say(self, values: Integers, words: Words) -> Reports:
        """Return a level, a hash and a cell of each; symbols beyond the level count as nothing."""
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
        """Say which name a level and a cell."""
        return np.asarray((reports[:, 0] < self.levels) & (reports[:, -1] < self.cells))

    def spoken_for(self, reports: Reports, prefixes: Integers) -> Booleans:
        """Say of each report and prefix whether the one names the other's cell."""
        seeds = np.ascontiguousarray(reports[:, 1:-1]).view("<u4")
        hashed = np.repeat(seeds[:, self.length :], len(prefixes), axis=1)
        for place in range(prefixes.shape[1]):
            symbols = prefixes[:, place].astype(np.uint32)
            hashed += seeds[:, place, np.newaxis] * symbols
        return np.asarray(_cells(hashed, self.cells) == reports[:, -1:])


def growing_of(parameters: Parameters) -> Growing:
    """Return what these parameters describe: all of them, and nothing else."""
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


def _made(alphabet: str, numbers: list[int]) -> Growing | None:
    try:
        return Growing(alphabet, *numbers)
    except Bug:  # what is a bug of ours is a mistake of theirs here
        return None


def _unreadable() -> Refused:
    return Refused(
        "bad-request", "These are no parameters of a randomiser.", "Send them as they were given."
    )


def grow(
    oracle: Growing, reports: Reports, *, most: int = 50, confidence: float = 0.95
) -> tuple[Hitter, ...]:
    """Return the texts that stand out, the most frequent first: at most so many.

    A prefix stays if noise alone would lift any of those looked at so high only once in twenty.
    """
    if reports.ndim != 2 or reports.shape[1] != oracle.width or not oracle.are_valid(reports).all():
        raise Refused("bad-request", "No client makes such a report.", "Send it as it was made.")
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


def _longer(oracle: Growing, kept: list[tuple[int, ...]], level: int) -> Iterator[tuple[int, ...]]:
    """Yield the prefixes of the next length: ended texts stay ended."""
    more = min(oracle.step, oracle.length - level * oracle.step)
    tails = [tail for tail in product(range(oracle.silence), repeat=more) if _is_text(tail)]
    for prefix in kept:
        is_over = bool(prefix) and prefix[-1] == END
        yield from (prefix + tail for tail in (tails[:1] if is_over else tails))


def _is_text(tail: tuple[int, ...]) -> bool:
    """Say whether nothing follows an end."""
    return END not in tail or not any(tail[tail.index(END) :])


def _supports(oracle: Growing, reports: Reports, prefixes: Integers) -> Integers:
    counts = np.zeros(len(prefixes), dtype=np.int64)
    step = max(1, _AT_ONCE // len(prefixes))
    for start in range(0, len(reports), step):
        counts += oracle.spoken_for(reports[start : start + step], prefixes).sum(axis=0)
    return counts


def _standing_out(
    oracle: Growing, supports: Integers, people: int, most: int, confidence: float
) -> Integers:
    """Return the places of the prefixes that noise alone would hardly lift so high."""
    another, _ = _chances(oracle)
    z = NormalDist().inv_cdf(1 - (1 - confidence) / len(supports))
    least = people * another + z * (people * another * (1 - another)) ** 0.5
    order = np.argsort(-supports, kind="stable")[:most]
    return np.asarray(order[supports[order] > least])


def _hitters(
    oracle: Growing, kept: list[tuple[int, ...]], supports: Integers, people: int,
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


def _chances(oracle: Growing) -> tuple[float, float]:
    """Return how often another's prefix is spoken for, and how much likelier one's own is."""
    hashing = Hashing(2, oracle.cells, oracle.truth)
    return float(hashing.by_chance[0]), float(hashing.contrast)


def _cells(hashed: Unsigned, cells: int) -> Unsigned:
    return np.asarray((hashed >> np.uint32(16)) * np.uint32(cells) >> np.uint32(16))
