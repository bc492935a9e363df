"""Clip updates and round them to integers for a secure sum, with stochastic rounding.

The sensitivity of the sum is a bound on *integer* vectors, so the code checks the norm after
rounding. It rounds an update again if its norm is too large. After 16 attempts it truncates the
update towards zero, which never increases the norm. Apart from these two corrections, the rounding
is unbiased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.participant import bad_update

Numbers = NDArray[np.float64]
ATTEMPTS: Final = 16
CLIPS: Final = (Fraction(1, 10**30), Fraction(10**30))  # outside, squares over- or underflow
MAX_STEPS: Final = 1 << 40  # largest norm in steps for which floats are precise enough
_COIN_BITS: Final = 53
_SPARE: Final = 11


@dataclass(frozen=True)
class Grid:
    """The integer grid to which a site's update is clipped and rounded.

    `clip` is the clipping norm of the update, and `steps` the number of grid steps in that norm.
    """

    clip: Fraction
    steps: int
    size: int

    def __post_init__(self) -> None:
        if self.clip <= 0 or not 1 <= self.steps <= MAX_STEPS or self.size < 1:
            raise Bug("a grid has a norm above zero, 1 to 2**40 steps and a size")

    @property
    def most_squared(self) -> int:
        """Return the largest allowed squared L2 norm of a rounded update, in squared grid steps.

        Rounding adds a variance of at most 1/4 to each number. With this margin, an update of the
        full norm passes in more than a third of attempts (Kairouz, Liu, Steinke 2021, at beta =
        exp(-1/2)). The code checks the limit, so privacy does not depend on that probability.
        """
        root = math.isqrt(self.size - 1) + 1
        return self.steps**2 + -(-self.size // 4) + self.steps + -(-root // 2)

    @property
    def most_absolute(self) -> int:
        """Return the largest L1 norm of a rounded update, in grid steps.

        For integers, the L1 norm is at most the squared L2 norm.
        """
        return min(self.most_squared, math.isqrt(self.size * self.most_squared) + 1)

    @property
    def most_each(self) -> int:
        """Return the largest absolute value of one number of a rounded update, in grid steps."""
        return math.isqrt(self.most_squared)

    def rounded(self, update: Numbers, dice: RandomSource) -> NDArray[np.int64]:
        """Clip an update and round it stochastically to grid steps.

        The squared norm of the result is at most `most_squared`.
        """
        scaled = self._scaled(update)
        for _ in range(ATTEMPTS):
            found = _at_random(scaled, dice)
            if squared_norm(found) <= self.most_squared:
                return found
        found = np.trunc(scaled).astype(np.int64)
        if squared_norm(found) > self.most_squared:
            raise Bug("an update that was cut towards zero is longer than its clip")
        return found

    def _scaled(self, update: Numbers) -> Numbers:
        """Check a site's update, clip its norm to `clip`, and scale it to grid steps, as floats."""
        if not isinstance(update, np.ndarray) or update.dtype.kind not in "fi":
            raise bad_update("It is not an array of real numbers.")
        if update.shape != (self.size,):
            raise bad_update(
                f"It has the shape {update.shape}, but the round needs ({self.size},)."
            )
        numbers = update.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise bad_update("It has numbers that are not finite.")
        largest = float(np.abs(numbers).max())
        if largest == 0:
            return numbers
        length = largest * float(np.linalg.norm(numbers / largest))  # 1e308 squared overflows
        clip = float(self.clip)
        factor = self.steps / clip if length <= clip else self.steps / length
        return np.asarray(numbers * factor)

    def numbers(self, total: NDArray[np.int64]) -> Numbers:
        """Convert a sum of rounded updates from grid steps back to real numbers."""
        return np.asarray(total * (float(self.clip) / self.steps))


def _at_random(scaled: Numbers, rng: RandomSource) -> NDArray[np.int64]:
    """Round stochastically: up with probability equal to the fractional part, otherwise down."""
    low = np.floor(scaled)
    words = np.frombuffer(rng.draw(8 * scaled.size), dtype="<u8") >> np.uint64(_SPARE)
    is_up = words.astype(np.float64) < (scaled - low) * 2.0**_COIN_BITS
    return low.astype(np.int64) + is_up


def squared_norm(values: NDArray[np.int64]) -> int:
    """Return the exact sum of squares of an integer vector: its squared L2 norm."""
    most = int(np.abs(values).max(initial=0))
    if most * most * values.size < 1 << 63:
        return int(np.dot(values, values))
    return sum(value * value for value in values.tolist())


@dataclass(frozen=True)
class PeopleGrid:
    """The integer grid for a site's sum of one clipped vector per person.

    The code clips each person's vector, then rounds the sum to the nearest step. So a person
    changes each number by their own vector plus less than one step. The sensitivity includes one
    more step for the float error of the sum.
    """

    clip: Fraction
    steps: int
    size: int
    people: int  # most people of one site, from its data card

    def __post_init__(self) -> None:
        if self.steps < 1 or self.size < 1 or self.people < 1:
            raise Bug("a grid has steps, a size and people")
        if not CLIPS[0] <= self.clip <= CLIPS[1]:
            raise Bug("a norm is above zero, from 1e-30 to 1e30")
        if self.steps * self.people > MAX_STEPS:
            raise Bug("the sum of so many people in such small steps is more than a double tells")

    @property
    def most_squared(self) -> int:
        """Return the squared L2 sensitivity of the rounded sum to one person, in squared steps."""
        return (self.steps + 2 * (math.isqrt(self.size - 1) + 1)) ** 2

    @property
    def most_absolute(self) -> int:
        """Return the L1 sensitivity of the rounded sum to one person, in grid steps."""
        return min(self.most_squared, math.isqrt(self.size * self.most_squared) + 1)

    @property
    def most_each(self) -> int:
        """Return the largest absolute value of one number of the rounded sum, in grid steps."""
        return self.steps * self.people + 1

    def person(self, gradient: Numbers) -> NDArray[np.int64]:
        """Clip one person's gradient and round it to grid steps.

        A gradient becomes zero if it is not finite, has another shape, or is too long after
        rounding. Sums of integers are exact, so a person's contribution does not depend on other
        people.
        """
        nothing = np.zeros(self.size, dtype=np.int64)
        if gradient.shape != (self.size,) or not np.isfinite(gradient).all():
            return nothing
        largest = float(np.abs(gradient).max())
        if largest == 0:
            return nothing
        length = largest * float(np.linalg.norm(gradient / largest))  # 1e308 squared overflows
        factor = self.steps / max(length, float(self.clip))
        found = np.rint(gradient * factor).astype(np.int64)
        return found if squared_norm(found) <= self.most_squared else nothing

    def rounded(self, update: Numbers, dice: RandomSource) -> NDArray[np.int64]:
        """Round a site's sum of its people's clipped vectors to grid steps.

        An array of another shape, or with numbers that are not finite, is refused.
        """
        del dice  # this rounding is deterministic
        if update.shape != (self.size,) or not np.isfinite(update).all():
            raise bad_update("It is not a sum of clipped parts.")
        found = np.rint(update * (self.steps / float(self.clip))).astype(np.int64)
        return np.clip(found, -self.most_each, self.most_each)

    def numbers(self, total: NDArray[np.int64]) -> Numbers:
        """Convert a sum in grid steps back to real numbers."""
        return np.asarray(total * (float(self.clip) / self.steps))
