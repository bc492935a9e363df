"""Guess a person from a private sum, knowing everybody else and what such numbers are like.

The release is what a private mean is made of: the clamped values less the middle of the declared
range, added up, with the platform's noise for one person more or less. The attacker subtracts all
others; what is left is the person's own value plus noise. Of all guesses they name the one with the
most behind it, between that and what they believed before. As this is the best that anybody can do
with the belief, a better defence is never credited with a worse attacker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.platform_noise import private_sums
from sfumato.lab.success_intervals import hit_rate_bound

FloatArray = NDArray[np.float64]
Whole = NDArray[np.int64]
STEPS: Final = 60  # of the declared range: heights of 140 to 200 are whole centimetres
SLACK: Final = 1e-9  # of a comparison of floats that were whole steps


@dataclass(frozen=True)
class Attacker:
    """Who knows the declared range, the epsilon, and everybody but the one they are after."""

    bounds: tuple[float, float]
    epsilon: float
    within: float  # a guess counts as right from this near

    @property
    def step(self) -> float:
        """Return the grid on which values are added up."""
        return (self.bounds[1] - self.bounds[0]) / STEPS

    @property
    def reach(self) -> int:
        """Return how many steps one person can move the sum."""
        return STEPS // 2

    def steps(self, values: Sequence[float]) -> Whole:
        """Return the clamped values as whole steps from the middle of the range."""
        clamped = np.clip(np.asarray(values, dtype=np.float64), *self.bounds)
        found: Whole = np.floor((clamped - self.bounds[0]) / self.step + 0.5).astype(np.int64)
        return found - self.reach

    def releases(self, values: Sequence[float], dice: np.random.Generator, *, runs: int) -> Whole:
        """Return that many independent private sums of all the values."""
        total = np.full(runs, self.steps(values).sum(), dtype=np.int64)
        return private_sums(total, sensitivity=self.reach, epsilon=self.epsilon, dice=dice)

    def guesses(self, releases: Whole, values: Sequence[float]) -> FloatArray:
        """Return a guess for everybody, each by who knows all the others; a row for each run."""
        own = self.steps(values)
        left = releases[:, np.newaxis] - (own.sum() - own)
        return self._guess_of(left)

    def bound(self, values: Sequence[float]) -> float:
        """Return how often this attacker can be right at most, over these people, by theory.

        Take the person away, and this very attacker is right by luck alone. The release with the
        person makes that more likely by no more than epsilon allows.
        """
        blind = self.chances(values, np.zeros(len(values), dtype=np.int64))
        return float(np.mean([hit_rate_bound(self.epsilon, one) for one in blind]))

    def chances(self, values: Sequence[float], added: Whole) -> FloatArray:
        """Return each person's exact chance of being guessed, where they added so much."""
        near = self._is_near(np.asarray(values, dtype=np.float64))
        places = np.arange(-self.reach, self.reach + 1)
        return np.array(
            [self._law(places - shift) @ hit for shift, hit in zip(added, near, strict=True)]
        )

    def _is_near(self, truths: FloatArray) -> NDArray[np.bool_]:
        far: FloatArray = np.abs(self._table[np.newaxis, :] - truths[:, np.newaxis])
        return far <= self.within + SLACK

    def _guess_of(self, left: Whole) -> FloatArray:
        guesses: FloatArray = self._table[np.clip(left, -self.reach, self.reach) + self.reach]
        return guesses

    def _law(self, moves: Whole) -> FloatArray:
        """Return the chances of these moves of the noise; the ends stand for all beyond them."""
        a = math.exp(-self.epsilon / self.reach)
        chances: FloatArray = (1 - a) / (1 + a) * a ** np.abs(moves).astype(np.float64)
        chances[0] = _up_to(int(moves[0]), a)
        chances[-1] = _up_to(-int(moves[-1]), a)
        return chances

    @cached_property
    def _table(self) -> FloatArray:
        """Return the guess for each number of steps that can be left, from the lowest up.

        Beyond the range, every value explains what is left by the same noise more, so that the
        guess stays that of the end.
        """
        places = np.arange(-self.reach, self.reach + 1)
        apart = np.abs(places[:, np.newaxis] - places[np.newaxis, :])
        weights = np.exp(-apart * self.epsilon / self.reach) * belief(places / self.reach)
        best = np.argmax(_windows(weights, math.floor(self.within / self.step + SLACK)), axis=1)
        middle = (self.bounds[0] + self.bounds[1]) / 2
        table: FloatArray = middle + places[best] * self.step
        return table


def belief(places: FloatArray) -> FloatArray:
    """Return what is believed of values before: a bell over the range, three widths to an end."""
    bell: FloatArray = np.exp(-((3 * places) ** 2) / 2)
    return bell


def _up_to(move: int, a: float) -> float:
    """Return the chance of a move of at most this: discrete Laplace noise, a = exp(-1/scale)."""
    if move <= 0:
        return a ** (-move) / (1 + a)
    return 1 - a ** (move + 1) / (1 + a)


def _windows(weights: FloatArray, reach: int) -> FloatArray:
    """Return, for every place of every row, all the weight as near as this."""
    padded = np.pad(weights, ((0, 0), (reach + 1, reach)))
    summed = np.cumsum(padded, axis=1)
    windows: FloatArray = summed[:, 2 * reach + 1 :] - summed[:, : -2 * reach - 1]
    return windows
