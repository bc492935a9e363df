"""Exact sums of clipped parts, put on a coarser grid by a dither that hangs on no row.

Rounding a sum to the nearest step may move every number by a whole step more than a person does: at
worst a root of the size, as much as the clip itself. With a uniform dither the moves are
independent and right on average, so the squared norm is close to what it should be but for a
chance that is counted in delta (dp/learning/exact_arithmetic.proof.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.participant import bad_update

UNIT_BITS: Final = 30  # what is rounded comes in whole units of 2**-30
MOST_UNITS: Final = 1 << 62
_WORD: Final = 8


@dataclass(frozen=True)
class DitheredGrid:
    """The norm of a person's part, and the steps, of 2**shift units each, that it is counted in."""

    clip: Fraction
    shift: int
    size: int
    people: int  # so many parts of that norm a site's sum may have, from its card
    chance: Fraction  # that the dither moves a person's part farther than `most_squared`

    def __post_init__(self) -> None:
        if self.clip <= 0 or not 0 <= self.shift <= UNIT_BITS or self.size < 1 or self.people < 1:
            raise Bug("a grid has a norm above zero, a shift, a size and people")
        if not 0 < self.chance < 1:
            raise Bug("a chance lies inside (0, 1)")
        if self.clip * self.people * (1 << UNIT_BITS) >= MOST_UNITS:
            raise Bug("the sum of so many people does not fit into 62 bits")

    @property
    def steps(self) -> Fraction:
        """Return the clip in steps."""
        return self.clip * (1 << UNIT_BITS) / (1 << self.shift)

    @cached_property
    def most_squared(self) -> int:
        """Return the squared norm by which one person moves the integers, but for `chance`.

        By Hoeffding, once for the moves' squares and once for their product with the part; and
        never more than a whole step in every number.
        """
        with localcontext(Context(prec=40)):
            far = Decimal(2 * self.chance.denominator) / Decimal(self.chance.numerator)
            length = Decimal(math.ceil(self.steps * 1024)) / 1024
            rare = far.ln() * Decimal("1.000001")
            beside = (self.size * rare / 2).sqrt() + length * (2 * rare).sqrt()
            likely = length**2 + Decimal(self.size) / 4 + beside
            sure = (length + Decimal(self.size).sqrt()) ** 2
            return math.ceil(min(likely, sure)) + 1

    @property
    def most_absolute(self) -> int:
        """Return the largest sum of absolute values by which one person can move them."""
        return min(self.most_squared, math.isqrt(self.size * self.most_squared) + 1)

    @property
    def most_each(self) -> int:
        """Return the largest that one integer can be."""
        return math.ceil(self.steps * self.people) + 1

    def rounded(self, update: NDArray[np.int64], dice: Dice) -> NDArray[np.int64]:
        """Return the sum in steps, each number rounded up with the chance of its fraction."""
        if update.shape != (self.size,) or update.dtype != np.int64:
            raise bad_update("It is no sum of clipped parts.")
        words = np.frombuffer(dice.draw(_WORD * self.size), dtype="<u8")
        dither = (words & np.uint64((1 << self.shift) - 1)).astype(np.int64)
        return np.asarray((update + dither) >> self.shift)

    def numbers(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a sum in steps as numbers."""
        return np.asarray(total * 2.0 ** (self.shift - UNIT_BITS))
