"""List the shipped local randomisers for audits, and convert their reports to numbers.

A report of local hashing or subset selection is two numbers that encode a set of answers. It is
expanded here to the answers that it supports, as anybody who sees the report can do.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.ballot_split import Sampled, Split
from sfumato.dp.local.binary_response import Binary
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_oracle import Randomiser, Reports
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.heavy_hitters import PrefixOracle
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.random_words import drawn
from sfumato.dp.local.ranking_response import answers_by_pairs, by_pairs
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary
from sfumato.lab.audit.auditor import Mechanism, Random
from sfumato.lab.platform_noise import NumpyRandomSource

Integers = NDArray[np.int64]
ANSWERS: Final = 6
STEPS: Final = 20
SILENT: Final = STEPS + 1
_Within = Callable[[int, Fraction], Any]  # Any: an oracle, or numbers on a grid


def oracle(within: _Within) -> Callable[[Fraction], Mechanism]:
    """Return a function from an epsilon to a mechanism that randomises one of six answers."""
    return lambda epsilon: _said(within(ANSWERS, epsilon))


def numbers(within: _Within) -> Callable[[Fraction], Mechanism]:
    """Return a function from an epsilon to a mechanism that randomises a number on a short grid."""
    return lambda epsilon: _said(within(STEPS, epsilon))


def binary(epsilon: Fraction) -> Mechanism:
    """Return a mechanism that randomises a yes or no at this epsilon."""
    return _said(Binary.within(epsilon))


def waves(epsilon: Fraction) -> Mechanism:
    """Return a mechanism: eight reports of one permanent answer.

    Its price is the epsilon of any number of reports.
    """
    response = PermanentResponse.within(ANSWERS, ever=epsilon, wave=epsilon * Fraction(3, 5))

    def run(data: int, runs: int, dice: Random) -> Integers:
        values, bits = np.full(runs, data, dtype=np.int64), NumpyRandomSource(dice)
        kept = response.permanent.randomise(values, drawn(bits, 2, runs))[:, 0].astype(np.int64)
        said = [
            response.randomise(kept, drawn(bits, response.words_per_report, runs)) for _ in range(8)
        ]
        counts = np.concatenate(said, axis=1)
        return np.column_stack([(counts == answer).sum(axis=1) for answer in range(ANSWERS)])

    return run


def split(epsilon: Fraction) -> Mechanism:
    """Return a randomiser of a ballot with two questions, which answers both of them."""
    return _said(Split.within([partial(KAry.within, 3), partial(Duchi.within, 1)], epsilon))


def sampled(epsilon: Fraction) -> Mechanism:
    """Return a randomiser of a ballot with two questions, which answers one of them at random."""
    return _said(Sampled.within([partial(KAry.within, 3), partial(Piecewise.within, 4)], epsilon))


def ranked(epsilon: Fraction) -> Mechanism:
    """Return a randomiser of a ranking of three items; it reports the order of one random pair."""
    return _said(by_pairs(3, epsilon))


def growing(epsilon: Fraction) -> Mechanism:
    """Return a randomiser of a prefix of a one-letter text (for heavy hitters).

    Its report is expanded to the texts that it supports.
    """
    return _said(PrefixOracle.within("abc", 1, epsilon))


RANKED: Final = (answers_by_pairs((0, 1, 2), 3), answers_by_pairs((2, 1, 0), 3))


def _said(randomiser: Randomiser) -> Mechanism:
    def run(data: object, runs: int, dice: Random) -> Integers:
        one = np.asarray(data, dtype=np.int64)
        values = np.broadcast_to(one, (runs, *one.shape))
        words = drawn(NumpyRandomSource(dice), randomiser.words_per_report, runs)
        return _seen(randomiser, randomiser.randomise(values, words))

    return run


def _seen(randomiser: Randomiser, reports: Reports) -> Integers:
    """Convert each randomised report to the numbers that anybody can read from it, as one row."""
    if isinstance(randomiser, (Hashing, Subset)):
        return np.array([randomiser.counts(report) for report in reports[:, np.newaxis]])
    if isinstance(randomiser, Unary):
        return np.unpackbits(reports, axis=1, bitorder="little")[:, :ANSWERS].astype(np.int64)
    if isinstance(randomiser, PrefixOracle):
        texts = np.arange(randomiser.silence)[:, np.newaxis]
        return randomiser.supports_prefixes(reports, texts).astype(np.int64)
    if isinstance(randomiser, Split):
        return reports.astype(np.int64)
    return reports.astype(np.int64) @ (256 ** np.arange(reports.shape[1]))


# name, modules, function from price to mechanism, neighbours
LOCAL: Final = (
    ("binary response", ("binary_response",), binary, (0, 1)),
    ("k-ary response", ("k_ary_response", "random_words"), oracle(KAry.within), (0, 1)),
    ("unary encoding", ("unary_encoding",), oracle(Unary.within), (0, 1)),
    ("Hadamard response", ("hadamard_response",), oracle(Hadamard.within), (0, 1)),
    ("local hashing", ("local_hashing", "k_ary_response"), oracle(Hashing.within), (0, 1)),
    ("subset selection", ("subset_selection",), oracle(Subset.within), (0, 1)),
    ("projective response", ("projective_geometry_response",), oracle(Projective.within), (0, 1)),
    ("number by its ends", ("duchi", "numeric_response"), numbers(Duchi.within), (0, STEPS)),
    ("number or silence", ("duchi", "numeric_response"), numbers(Duchi.within), (STEPS, SILENT)),
    ("number by a window", ("piecewise_mechanism",), numbers(Piecewise.within), (0, STEPS)),
    ("silence by a window", ("piecewise_mechanism",), numbers(Piecewise.within), (0, SILENT)),
    (
        "number both ways",
        ("hybrid_mechanism", "piecewise_mechanism", "duchi"),
        numbers(Hybrid.within),
        (0, STEPS),
    ),
    ("ballot, all answered", ("ballot_split",), split, ((0, 0), (1, 1))),
    ("ballot, one answered", ("ballot_split",), sampled, ((0, 0), (1, 4))),
    ("ranking by pairs", ("ranking_response", "ballot_split"), ranked, RANKED),
    ("waves of one answer", ("permanent_response",), waves, (0, 1)),
    ("text by its prefix", ("heavy_hitters", "local_hashing"), growing, ((1,), (2,))),
)
