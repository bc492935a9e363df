"""From numbers to the integers of a secure sum: clipped, rounded at random, the norm checked again.

What one update can move a sum is a bound on *integers*, so it is looked at after rounding: an
update that came out too long is rounded anew, and in the end cut towards zero, which makes no
number longer. Rounding is unbiased but for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.participant import bad_update

Numbers = NDArray[np.float64]
ATTEMPTS: Final = 16
CLIPS: Final = (Fraction(1, 10**30), Fraction(10**30))  # beyond, numbers' squares are no doubles
MOST_STEPS: Final = 1 << 40  # the norm in steps: what a float still tells apart from its neighbour
_COIN_BITS: Final = 53
_SPARE: Final = 11


@dataclass(frozen=True)
class Grid:
    """The norm to which an update is clipped, and in how many steps that norm is counted."""

    clip: Fraction
    steps: int
    size: int

    def __post_init__(self) -> None:
        if self.clip <= 0 or not 1 <= self.steps <= MOST_STEPS or self.size < 1:
            raise Bug("a grid has a norm above zero, 1 to 2**40 steps and a size")

    @property
    def most_squared(self) -> int:
        """Return the largest squared norm that a rounded update may have, in steps.

        Rounding adds a variance of at most a quarter to each number; with the term beside it, an
        update of the whole norm passes in more than a third of attempts (Kairouz, Liu, Steinke
        2021, at beta = exp(-1/2)). It is a limit that is checked, so nothing rests on the chance.
        """
        root = math.isqrt(self.size - 1) + 1
        return self.steps**2 + -(-self.size // 4) + self.steps + -(-root // 2)

    @property
    def most_absolute(self) -> int:
        """Return the largest sum of absolute values: of integers at most the squares'."""
        return min(self.most_squared, math.isqrt(self.size * self.most_squared) + 1)

    @property
    def most_each(self) -> int:
        """Return the largest that one integer can be."""
        return math.isqrt(self.most_squared)

    def rounded(self, update: Numbers, dice: Dice) -> NDArray[np.int64]:
        """Return the clipped update in steps, its squared norm at most `most_squared`."""
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
        """Return the update in steps, clipped (as exactly as floats can)."""
        if not isinstance(update, np.ndarray) or update.dtype.kind not in "fi":
            raise bad_update("It is not an array of real numbers.")
        if update.shape != (self.size,):
            raise bad_update(f"It has the shape {update.shape}, and the round's is ({self.size},).")
        numbers = update.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise bad_update("It holds numbers that are not finite.")
        largest = float(np.abs(numbers).max())
        if largest == 0:
            return numbers
        length = largest * float(np.linalg.norm(numbers / largest))  # 1e308 squared overflows
        clip = float(self.clip)
        factor = self.steps / clip if length <= clip else self.steps / length
        return np.asarray(numbers * factor)

    def numbers(self, total: NDArray[np.int64]) -> Numbers:
        """Return a sum of rounded updates as numbers."""
        return np.asarray(total * (float(self.clip) / self.steps))


def _at_random(scaled: Numbers, dice: Dice) -> NDArray[np.int64]:
    """Return each number rounded up with the chance of its fraction, else down."""
    low = np.floor(scaled)
    words = np.frombuffer(dice.draw(8 * scaled.size), dtype="<u8") >> np.uint64(_SPARE)
    is_up = words.astype(np.float64) < (scaled - low) * 2.0**_COIN_BITS
    return low.astype(np.int64) + is_up


def squared_norm(values: NDArray[np.int64]) -> int:
    """Return the sum of squares, exactly."""
    most = int(np.abs(values).max(initial=0))
    if most * most * values.size < 1 << 63:
        return int(np.dot(values, values))
    return sum(value * value for value in values.tolist())


@dataclass(frozen=True)
class PeopleGrid:
    """The norm to which each person's part is clipped, in steps; parts are added, then rounded.

    The sum is rounded to the nearest step, so a person moves each number by their own part and by
    less than one step of rounding; another step is given away for what sums of doubles are off by.
    """

    clip: Fraction
    steps: int
    size: int
    people: int  # the most that one site may have, from its card

    def __post_init__(self) -> None:
        if self.steps < 1 or self.size < 1 or self.people < 1:
            raise Bug("a grid has steps, a size and people")
        if not CLIPS[0] <= self.clip <= CLIPS[1]:
            raise Bug("a norm is above zero, from 1e-30 to 1e30")
        if self.steps * self.people > MOST_STEPS:
            raise Bug("the sum of so many people in such small steps is more than a double tells")

    @property
    def most_squared(self) -> int:
        """Return the largest squared norm by which one person can move the integers."""
        return (self.steps + 2 * (math.isqrt(self.size - 1) + 1)) ** 2

    @property
    def most_absolute(self) -> int:
        """Return the largest sum of absolute values by which one person can move them."""
        return min(self.most_squared, math.isqrt(self.size * self.most_squared) + 1)

    @property
    def most_each(self) -> int:
        """Return the largest that one integer can be."""
        return self.steps * self.people + 1

    def person(self, gradient: Numbers) -> NDArray[np.int64]:
        """Return one person's gradient clipped and in whole steps; one that is not finite is zero.

        Whole numbers add up exactly, so a person's part is the same whoever else is there.
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

    def rounded(self, update: Numbers, dice: Dice) -> NDArray[np.int64]:
        """Return the sum of clipped parts in steps; what cannot be such a sum is refused."""
        del dice  # nothing is left to chance
        if update.shape != (self.size,) or not np.isfinite(update).all():
            raise bad_update("It is no sum of clipped parts.")
        found = np.rint(update * (self.steps / float(self.clip))).astype(np.int64)
        return np.clip(found, -self.most_each, self.most_each)

    def numbers(self, total: NDArray[np.int64]) -> Numbers:
        """Return a sum in steps as numbers."""
        return np.asarray(total * (float(self.clip) / self.steps))
