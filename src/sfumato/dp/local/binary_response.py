"""Randomised response to a yes-no question, with any two probabilities of reporting yes.

People whose answer is yes report yes with one probability, and everybody else with the other.
Answer 1 is yes. Answer 0 is anything else, including no answer (silence). Proof:
binary_response.proof.md.
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
    """Randomised response to a yes-no question: a person reports yes or no, partly at random.

    `yes` and `other` are the probabilities to report yes, for the answer yes and for any other
    answer, in parts of 2**32.
    """

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
        """Return the most accurate symmetric randomiser whose epsilon is at most `epsilon`."""
        half = PARTS // 2
        bold = largest_probability_within(
            lambda part: Fraction(half + part, half - part), epsilon, half - 1
        )
        return Binary(half + bold, half - bold)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `yes` and `other`."""
        return {"kind": "binary", "yes": self.yes, "other": self.other}

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for both answers; `ratio` compares them."""
        chances = (Fraction(self.other, PARTS), Fraction(self.yes, PARTS))
        return {value: {1: chance, 0: 1 - chance} for value, chance in enumerate(chances)}

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under the other.

        Its logarithm is the local epsilon.
        """
        worst = worst_ratio(self.law)
        if worst is None:
            raise Bug("both answers can be said under both truths")
        return worst

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(report yes | answer yes) - P(report yes | any other answer).

        Estimates divide by it: the share of yes is (share of yes reports - q) / (p - q).
        """
        return Fraction(self.yes - self.other, PARTS)

    @property
    def q(self) -> Floats:
        """Return P(report no | answer yes) and P(report yes | any other answer), in this order.

        They are the chances of a wrong report, which estimates of shares subtract.
        """
        return np.array([(PARTS - self.yes) / PARTS, self.other / PARTS])

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise answers to 1 (yes) or 0 (no), with one random word each."""
        chances = np.array([self.other, self.yes], dtype=np.uint32)[values]
        return np.asarray(words[0] < chances).astype(np.uint8).reshape(-1, 1)

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if it is 0 or 1."""
        return np.asarray(reports[:, 0] < 2)

    def counts(self, reports: Reports) -> Integers:
        """Return how many reports say no and how many say yes, in this order."""
        return np.bincount(reports[:, 0], minlength=2).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: a report supports the answer (0 or 1) that it names."""
        return counts
