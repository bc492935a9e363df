"""Randomised response to a yes-no question, with any two probabilities of reporting yes.

One probability is for people whose answer is yes, the other for everybody else. Answer 1 is yes, 0
is anything else, silence included. Proof: binary_response.proof.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.dp.local.frequency_oracle import Booleans, Floats, Parameters, Reports
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of, worst_ratio
from sfumato.dp.local.random_words import PARTS, Integers, Words, largest_probability_within
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class Binary:
    """Parameters: P(report yes) for a true yes and for anything else, in parts of 2**32."""

    yes: int
    other: int

    size: ClassVar[int] = 2
    words_per_report: ClassVar[int] = 1
    width: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 < self.other < self.yes < PARTS:
            raise Bug("a yes says yes more often than a no does, and neither says it always")

    @staticmethod
    def within(epsilon: Fraction) -> Binary:
        """Build the most accurate symmetric randomiser whose epsilon is at most this."""
        half = PARTS // 2
        bold = largest_probability_within(
            lambda part: Fraction(half + part, half - part), epsilon, half - 1
        )
        return Binary(half + bold, half - bold)

    @property
    def parameters(self) -> Parameters:
        """Return the kind and its two probabilities, as JSON."""
        return {"kind": "binary", "yes": self.yes, "other": self.other}

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for both answers."""
        chances = (Fraction(self.other, PARTS), Fraction(self.yes, PARTS))
        return {value: {1: chance, 0: 1 - chance} for value, chance in enumerate(chances)}

    @property
    def ratio(self) -> Fraction:
        """Return the largest likelihood ratio."""
        worst = worst_ratio(self.law)
        if worst is None:
            raise Bug("both answers can be said under both truths")
        return worst

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(report yes | yes) - P(report yes | no)."""
        return Fraction(self.yes - self.other, PARTS)

    @property
    def q(self) -> Floats:
        """Return P(report no | yes) and P(report yes | no)."""
        return np.array([(PARTS - self.yes) / PARTS, self.other / PARTS])

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise answers to 1 (yes) or 0 (no), with one random word each."""
        chances = np.array([self.other, self.yes], dtype=np.uint32)[values]
        return np.asarray(words[0] < chances).astype(np.uint8).reshape(-1, 1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return which reports are 0 or 1."""
        return np.asarray(reports[:, 0] < 2)

    def counts(self, reports: Reports) -> Integers:
        """Count the reports of no and of yes."""
        return np.bincount(reports[:, 0], minlength=2).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: they are the supports already."""
        return counts
