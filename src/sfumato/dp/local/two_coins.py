"""Randomised response with two coins: nobody can hold a yes against its giver (Warner 1965).

The first coin says whether the truth is told; if not, the second coin answers in its place. Both
are whole numbers of 2**-32, and both are always thrown, so what is drawn is what is proved
(two_coins.proof.md).
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
from sfumato.dp.local.random_words import PARTS, boldest
from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug

Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """The share of a yes behind randomised answers, with what the coins leave in doubt."""

    share: Fraction  # right on average, so it may lie below 0 or above 1
    variance: Fraction
    low: float
    high: float

    @property
    def std(self) -> float:
        """Return the standard deviation of the share."""
        return sqrt(self.variance)


@dataclass(frozen=True)
class TwoCoins:
    """Two coins by the chance of their heads, in parts of 2**32."""

    truth: int  # heads of the first: the truth is told
    yes: int  # heads of the second: yes is said in its place

    def __post_init__(self) -> None:
        if not (0 < self.truth < PARTS and 0 < self.yes < PARTS):
            raise Bug("a coin that always falls on one side hides nobody, or tells nothing")

    @staticmethod
    def within(epsilon: Fraction) -> TwoCoins:
        """Return the coins that tell the truth as often as this epsilon allows; the second fair.

        The ratio of a yes is (1 + t) / (1 - t), so t is tanh(epsilon / 2), rounded down; it is
        searched for, as no power has to be taken for that, however large epsilon is.
        """
        truth = boldest(lambda part: Fraction(PARTS + part, PARTS - part), epsilon)
        return TwoCoins(truth, PARTS // 2)

    def chance(self, truth: bool) -> Fraction:
        """Return the chance that yes is said under this truth."""
        told, coin = Fraction(self.truth, PARTS), Fraction(self.yes, PARTS)
        return told * truth + (1 - told) * coin

    @property
    def law(self) -> Law:
        """Return the chance of everything said under every truth."""
        return {t: {True: self.chance(t), False: 1 - self.chance(t)} for t in (True, False)}

    @property
    def epsilon(self) -> Fraction:
        """Return what one answer costs: the exact largest log-ratio, rounded up to billionths."""
        ratio = worst_ratio(self.law)
        if ratio is None:
            raise Bug("both coins fall on both sides, so everything can be said")
        return epsilon_of(ratio)

    def say(self, truths: Booleans, dice: Dice) -> Booleans:
        """Return what each person says; both coins are thrown for everybody, whatever the truth."""
        words = np.frombuffer(dice.draw(8 * truths.size), dtype="<u4").reshape(2, *truths.shape)
        is_told = words[0].astype(np.int64) < self.truth
        says_yes = words[1].astype(np.int64) < self.yes
        said: Booleans = (is_told & truths) | (~is_told & says_yes)
        return said

    def observed(self, share: Fraction) -> Fraction:
        """Return the share of a yes to expect, where this share of all truths is yes."""
        return share * self.chance(True) + (1 - share) * self.chance(False)

    def behind(self, observed: Fraction) -> Fraction:
        """Return the share of true yes that would give this share of a yes: the algebra back."""
        return (observed - self.chance(False)) / self._contrast

    def variance(self, share: Fraction, people: int) -> Fraction:
        """Return the variance of the estimate from that many people, drawn by chance."""
        seen = self.observed(share)
        return seen * (1 - seen) / (people * self._contrast**2)

    def estimate(self, yes: int, people: int, confidence: float = 0.95) -> Estimate:
        """Return the share behind that many yes, its variance, and its interval in 0 to 1."""
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
