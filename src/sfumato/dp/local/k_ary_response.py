"""k-ary randomised response: report the true answer, or a uniform draw among all k answers.

The draw can also give the true answer. Proof: k_ary_response.proof.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.dp.local.frequency_oracle import (
    Booleans,
    Floats,
    Parameters,
    Reports,
    as_rows,
    bytes_for,
    numbers,
)
from sfumato.dp.local.likelihood_ratio import Law, epsilon_of
from sfumato.dp.local.random_words import (
    MAX_OUTCOMES,
    PARTS,
    Integers,
    Words,
    among,
    below,
    largest_probability_within,
    words_each,
)
from sfumato.dp.refusal import Bug


@dataclass(frozen=True)
class KAry:
    """k-ary randomised response: a person reports one of `size` answers, partly at random.

    `truth` is the probability of a truthful report, in parts of 2**32.
    """

    size: int
    truth: int

    words_per_report: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not (2 <= self.size <= MAX_OUTCOMES and 0 < self.truth < PARTS):
            raise Bug("there are two answers at least, and the truth is told at times")

    @staticmethod
    def within(size: int, epsilon: Fraction) -> KAry:
        """Return the most accurate k-ary response whose epsilon is at most `epsilon`."""
        return KAry(
            size, largest_probability_within(lambda truth: KAry(size, truth).ratio, epsilon)
        )

    @property
    def width(self) -> int:
        """Return the length of a report in bytes: enough for the largest answer number."""
        return bytes_for(self.size - 1)

    @property
    def parameters(self) -> Parameters:
        """Return the JSON parameters of the randomiser: its kind, `size` and `truth`."""
        return {"kind": "k-ary", "size": self.size, "truth": self.truth}

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for each answer."""
        told, noise = Fraction(self.truth, PARTS), self._noise
        return {
            value: {said: told * (said == value) + noise[said] for said in range(self.size)}
            for value in range(self.size)
        }

    @property
    def ratio(self) -> Fraction:
        """Return how many times likelier a report can be under one answer than under another.

        Its logarithm is the local epsilon. The worst report is the one to which the fewest random
        words lead.
        """
        least = PARTS // self.size  # random words that lead to the rarest outcome
        return 1 + Fraction(self.truth * PARTS, (PARTS - self.truth) * least)

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon of one report: the logarithm of `ratio`, rounded up to 1e-9."""
        return epsilon_of(self.ratio)

    @property
    def p_minus_q(self) -> Fraction:
        """Return P(report v | answer v) - P(report v | another answer), for any answer v.

        It is truth / 2**32. Estimates of shares divide by it.
        """
        return Fraction(self.truth, PARTS)

    @property
    def q(self) -> Floats:
        """Return for each answer the probability that another answer's report names it.

        An estimate subtracts this chance from the share of reports that name the answer.
        """
        return words_each(self.size) / PARTS * ((PARTS - self.truth) / PARTS)

    def randomise(self, values: Integers, words: Words) -> Reports:
        """Randomise each answer number to a report: the true answer number, or a random one.

        Every report consumes two random words, whatever the outcome.
        """
        size = self.width
        drawn = among(words[1], self.size).astype(f"<u{size}")
        return as_rows(
            np.where(below(words[0], self.truth), values.astype(f"<u{size}"), drawn), size
        )

    def are_valid(self, reports: Reports) -> Booleans:
        """Return a boolean mask: a report is valid if it is the number of an answer."""
        return np.asarray(numbers(reports) < self.size)

    def counts(self, reports: Reports) -> Integers:
        """Count how many reports name each answer."""
        return np.bincount(numbers(reports), minlength=self.size).astype(np.int64)

    def supports(self, counts: Integers) -> Integers:
        """Return the counts unchanged: a report supports the answer that it names."""
        return counts

    @property
    def _noise(self) -> list[Fraction]:
        left = Fraction(PARTS - self.truth, PARTS)
        return [left * Fraction(int(words), PARTS) for words in words_each(self.size)]
