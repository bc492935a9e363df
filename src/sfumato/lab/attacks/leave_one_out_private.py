"""Guess a person from a private sum with the optimal (Bayesian) attacker, who knows all others.

The release is the sum behind a private mean: the clamped values minus the middle of the declared
range, plus the platform's noise. The noise covers one person added or removed. The attacker
subtracts all others, which leaves the person's value plus noise. The guess is the one with the
largest posterior probability under the attacker's prior. No attacker with this prior is better, so
a weak attack never makes a defence look good.
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
from sfumato.lab.success_rate_bounds import hit_rate_bound

FloatArray = NDArray[np.float64]
Whole = NDArray[np.int64]
# number of grid steps in the declared range; for heights of 140 to 200, a step is a centimetre
STEPS: Final = 60
SLACK: Final = 1e-9  # tolerance for comparing floats that are whole grid steps


@dataclass(frozen=True)
class Attacker:
    """An attacker who knows the declared range, the epsilon, and everybody but the target."""

    bounds: tuple[float, float]
    epsilon: float
    within: float  # a guess with at most this error is right

    @property
    def step(self) -> float:
        """Return the width of a grid step, to which values are rounded before they are summed."""
        return (self.bounds[1] - self.bounds[0]) / STEPS

    @property
    def reach(self) -> int:
        """Return the sensitivity of the sum, in grid steps: the most that one person changes it."""
        return STEPS // 2

    def steps(self, values: Sequence[float]) -> Whole:
        """Return the clamped values as whole steps from the middle of the range."""
        clamped = np.clip(np.asarray(values, dtype=np.float64), *self.bounds)
        found: Whole = np.floor((clamped - self.bounds[0]) / self.step + 0.5).astype(np.int64)
        return found - self.reach

    def releases(self, values: Sequence[float], dice: np.random.Generator, *, runs: int) -> Whole:
        """Draw `runs` independent private sums of all values."""
        total = np.full(runs, self.steps(values).sum(), dtype=np.int64)
        return private_sums(total, sensitivity=self.reach, epsilon=self.epsilon, dice=dice)

    def guesses(self, releases: Whole, values: Sequence[float]) -> FloatArray:
        """Return the attacker's guess of each person's value, one row for each released sum.

        For each guess, the attacker knows all other people.
        """
        own = self.steps(values)
        left = releases[:, np.newaxis] - (own.sum() - own)
        return self._guess_of(left)

    def bound(self, values: Sequence[float]) -> float:
        """Return the highest success rate that theory allows, averaged over these people.

        If the person's row is removed, the attacker is right by luck alone. The release with the
        row raises that chance by no more than epsilon allows.
        """
        blind = self.chances(values, np.zeros(len(values), dtype=np.int64))
        return float(np.mean([hit_rate_bound(self.epsilon, one) for one in blind]))

    def chances(self, values: Sequence[float], added: Whole) -> FloatArray:
        """Return each person's exact chance that their value is guessed right.

        The person adds `added` steps to the private sum: their own value, or 0 without their row.
        """
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
        """Return the probability of each of these consecutive noise values, in grid steps.

        The first value stands for all values below it too, and the last for all above it.
        """
        a = math.exp(-self.epsilon / self.reach)
        chances: FloatArray = (1 - a) / (1 + a) * a ** np.abs(moves).astype(np.float64)
        chances[0] = _up_to(int(moves[0]), a)
        chances[-1] = _up_to(-int(moves[-1]), a)
        return chances

    @cached_property
    def _table(self) -> FloatArray:
        """Compute the attacker's best guess for every possible remainder, from the lowest up.

        A remainder, in grid steps, is the noisy sum minus all other people's values. Beyond the
        declared range, every value needs the same additional noise. So the best guess there is that
        of the range's end.
        """
        places = np.arange(-self.reach, self.reach + 1)
        apart = np.abs(places[:, np.newaxis] - places[np.newaxis, :])
        weights = np.exp(-apart * self.epsilon / self.reach) * belief(places / self.reach)
        best = np.argmax(_windows(weights, math.floor(self.within / self.step + SLACK)), axis=1)
        middle = (self.bounds[0] + self.bounds[1]) / 2
        table: FloatArray = middle + places[best] * self.step
        return table


def belief(places: FloatArray) -> FloatArray:
    """Return the attacker's prior weight of each value: a normal curve over the declared range.

    `places` are the values from -1 to 1. The range has three standard deviations on each side.
    """
    bell: FloatArray = np.exp(-((3 * places) ** 2) / 2)
    return bell


def _up_to(move: int, a: float) -> float:
    """Return the chance that discrete Laplace noise is at most `move` grid steps.

    `a` is exp(-epsilon / sensitivity), the factor by which the chance falls with each step.
    """
    if move <= 0:
        return a ** (-move) / (1 + a)
    return 1 - a ** (move + 1) / (1 + a)


def _windows(weights: FloatArray, reach: int) -> FloatArray:
    """Return the sums of each row's weights over windows: up to `reach` positions on both sides.

    A window's sum is in proportion to the chance that a guess in its middle is right.
    """
    padded = np.pad(weights, ((0, 0), (reach + 1, reach)))
    summed = np.cumsum(padded, axis=1)
    windows: FloatArray = summed[:, 2 * reach + 1 :] - summed[:, : -2 * reach - 1]
    return windows
