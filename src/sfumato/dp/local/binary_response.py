"""Randomised response with any two chances: so often a yes is said by a yes, so often by a no.

Proof: binary_response.proof.md. Two answers only: 1 is yes, 0 is anything else, silence included.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of, worst_ratio
from sfumato.dp.local.random_words import PARTS, Integers, Words, boldest
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class Binary:
    """The chances that yes is said, in parts of 2**32: by a yes, and by anyone else."""

    yes: int
    other: int

    size: ClassVar[int] = 2
    words: ClassVar[int] = 1
    width: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 < self.other < self.yes < PARTS:
            raise Bug("a yes says yes more often than a no does, and neither says it always")

    @staticmethod
    def within(epsilon: Fraction) -> Binary:
        """Return the symmetric pair of chances that tells most within this epsilon."""
        half = PARTS // 2
        bold = boldest(lambda part: Fraction(half + part, half - part), epsilon, half - 1)
        return Binary(half + bold, half - bold)

    @property
    def parameters(self) -> Parameters:
        """Return the kind and its two chances."""
        return {"kind": "binary", "yes": self.yes, "other": self.other}

    @property
    def law(self) -> Law:
        """Return the chance of everything said under both answers."""
        chances = (Fraction(self.other, PARTS), Fraction(self.yes, PARTS))
        return {value: {1: chance, 0: 1 - chance} for value, chance in enumerate(chances)}

    @property
    def ratio(self) -> Fraction:
        """Return the largest ratio of chances."""
        worst = worst_ratio(self.law)
        if worst is None:
            raise Bug("both answers can be said under both truths")
        return worst

    @property
    def epsilon(self) -> Fraction:
        """Return what a report costs."""
        return epsilon_of(self.ratio)

    @property
    def contrast(self) -> Fraction:
        """Return how much likelier a yes says yes than a no does."""
        return Fraction(self.yes - self.other, PARTS)

    @property
    def by_chance(self) -> Floats:
        """Return how often a yes says no, and a no says yes."""
        return np.array([(PARTS - self.yes) / PARTS, self.other / PARTS])

    def say(self, values: Integers, words: Words) -> Reports:
        """Return 1 for yes and 0 for no; the word is compared with the chance of its answer."""
        chances = np.array([self.other, self.yes], dtype=np.uint32)[values]
        return np.asarray(words[0] < chances).astype(np.uint8).reshape(-1, 1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Say which are 0 or 1."""
        return np.asarray(reports[:, 0] < 2)

    def counts(self, reports: Reports) -> Integers:
        """Return how often no and yes were said."""
        return np.bincount(reports[:, 0], minlength=2).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts."""
        return counts
