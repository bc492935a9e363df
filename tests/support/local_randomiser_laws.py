"""The law of a randomiser by running it: every word stands for an interval of words like it.

The words at which a report can change are few: the chances, and the first word of each outcome of a
draw. Between two of them all words do the same, which is checked at both ends of every interval. So
the chances that come out are exact counts of words, and owe nothing to the formulas of the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from sfumato.dp.local.frequency_oracle import Randomiser

WORD = 2**32
Cut = set[int] | int  # the words at which a new interval begins; or the one word that is given


def draws(*outcomes: int) -> set[int]:
    """The first word of every outcome of draws among so many."""
    return {-(-place * WORD // many) for many in outcomes for place in range(many)}


def law_by_words(randomiser: Randomiser, value: int, cuts: Sequence[Cut]) -> dict[bytes, Fraction]:
    """The chance of every report: the product of the intervals' shares of all words."""
    intervals = [_intervals(cut) for cut in cuts]
    law: dict[bytes, Fraction] = {}
    for choice in product(*intervals):
        first = np.array([[low] for low, _ in choice], dtype=np.uint32)
        last = np.array([[high - 1] for _, high in choice], dtype=np.uint32)
        said = {randomiser.randomise(np.array([value]), words).tobytes() for words in (first, last)}
        assert len(said) == 1, "a report changes inside of an interval"
        chance = Fraction(1)
        for (low, high), cut in zip(choice, cuts, strict=True):
            chance *= 1 if isinstance(cut, int) else Fraction(high - low, WORD)
        report = said.pop()
        law[report] = law.get(report, Fraction(0)) + chance
    return law


def _intervals(cut: Cut) -> list[tuple[int, int]]:
    if isinstance(cut, int):
        return [(cut, cut + 1)]
    return list(pairwise([*sorted({0} | cut), WORD]))
