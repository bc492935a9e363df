"""Randomised response with two coins: every yes is plausibly deniable (Warner 1965).

If the first coin is heads, the report is the truth. Otherwise the report is the second coin. Both
probabilities are multiples of 2**-32, and the code always flips both coins. So the code draws from
exactly the distribution of the proof (two_coins.proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.likelihood_ratio import Law, epsilon_of, worst_ratio
from sfumato.dp.local.proportion_intervals import intervals, into_shares
from sfumato.dp.local.random_words import PARTS, largest_probability_within
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug

Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """The estimated share of true yes answers, with its variance and confidence interval."""

    share: Fraction  # unbiased, so it may be below 0 or above 1
    variance: Fraction
    low: float
    high: float

    @property
    def std(self) -> float:
        """Return the standard deviation of the estimated share."""
        return sqrt(self.variance)


@dataclass(frozen=True)
class TwoCoins:
    """Randomised response to a yes-no question with two coins: tell the truth or the second coin.

    `truth` and `yes` are the probabilities of heads of the first and the second coin, in parts of
    2**32.
    """

    truth: int  # first coin; heads: report the true answer
    yes: int  # second coin, used if the first is tails; heads: report yes

    def __post_init__(self) -> None:
        if not (0 < self.truth < PARTS and 0 < self.yes < PARTS):
            raise Bug("a coin that always falls on one side hides nobody, or tells nothing")

    @staticmethod
    def within(epsilon: Fraction) -> TwoCoins:
        """Return the most accurate coins with epsilon at most `epsilon`; the second coin is fair.

        With probability t of the truth, the likelihood ratio is (1 + t) / (1 - t). So t is
        tanh(epsilon / 2), rounded down. Bisection finds t without computing an exponential, however
        large epsilon is.
        """
        truth = largest_probability_within(
            lambda part: Fraction(PARTS + part, PARTS - part), epsilon
        )
        return TwoCoins(truth, PARTS // 2)

    def chance(self, truth: bool) -> Fraction:
        """Return the probability to report yes for a true yes (`truth` is True) or a true no."""
        told, coin = Fraction(self.truth, PARTS), Fraction(self.yes, PARTS)
        return told * truth + (1 - told) * coin

    @property
    def law(self) -> Law:
        """Return the exact probability of each report for both true answers."""
        return {t: {True: self.chance(t), False: 1 - self.chance(t)} for t in (True, False)}

    @property
    def epsilon(self) -> Fraction:
        """Return the local epsilon: the largest log-likelihood ratio, rounded up to 1e-9."""
        ratio = worst_ratio(self.law)
        if ratio is None:
            raise Bug("both coins fall on both sides, so everything can be said")
        return epsilon_of(ratio)

    def randomise(self, truths: Booleans, dice: RandomSource) -> Booleans:
        """Randomise true yes-no answers with two coins each.

        The code flips both coins for everybody, whatever the answer.
        """
        words = np.frombuffer(dice.draw(8 * truths.size), dtype="<u4").reshape(2, *truths.shape)
        is_told = words[0].astype(np.int64) < self.truth
        says_yes = words[1].astype(np.int64) < self.yes
        said: Booleans = (is_told & truths) | (~is_told & says_yes)
        return said

    say = randomise  # the name of version 0.1

    def observed(self, share: Fraction) -> Fraction:
        """Return the share of yes reports to expect, given the share of true yes answers."""
        return share * self.chance(True) + (1 - share) * self.chance(False)

    def behind(self, observed: Fraction) -> Fraction:
        """Return the share of true yes answers that is behind an expected share of yes reports.

        It is the inverse of `observed`.
        """
        return (observed - self.chance(False)) / self._contrast

    def variance(self, share: Fraction, people: int) -> Fraction:
        """Return the variance of the estimated share, for a random sample of `people`."""
        seen = self.observed(share)
        return seen * (1 - seen) / (people * self._contrast**2)

    def estimate(self, yes: int, people: int, confidence: float = 0.95) -> Estimate:
        """Estimate the share of true yes answers from the number of yes reports.

        The confidence interval is limited to 0 to 1.
        """
        if not 0 <= yes <= people or people < 2:
            raise Bug("an estimate needs two answers, and no more yes than answers")
        seen = Fraction(yes, people)
        ends = intervals(np.array([yes]), people, confidence)
        low, high = into_shares(*(np.array([self._behind(float(end[0]))]) for end in ends))
        return Estimate(
            share=self.behind(seen),
            variance=seen * (1 - seen) / ((people - 1) * self._contrast**2),
            low=float(low[0]),
            high=float(high[0]),
        )

    @property
    def _contrast(self) -> Fraction:
        return self.chance(True) - self.chance(False)

    def _behind(self, observed: float) -> float:
        return float(self.behind(Fraction(observed)))


FAIR: Final = TwoCoins(PARTS // 2, PARTS // 2)  # two fair coins: epsilon is ln 3
