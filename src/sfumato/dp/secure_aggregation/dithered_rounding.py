"""Dithered rounding of exact sums of clipped vectors; the dither is independent of the data.

Rounding a sum to the nearest step can increase a person's effect on each number by a whole step. In
the worst case that adds the square root of the number of numbers to the norm, as much as the
clipping norm itself. With a uniform dither, the rounding errors are independent and unbiased. The
squared norm is then close to that before rounding, except with a probability that delta includes
(dp/learning/exact_arithmetic.proof.md).
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

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.participant import bad_update

UNIT_BITS: Final = 30  # inputs are integers in units of 2**-30
MAX_UNITS: Final = 1 << 62
_WORD: Final = 8


@dataclass(frozen=True)
class DitheredGrid:
    """The integer grid to which a site rounds its exact sum of clipped vectors.

    `clip` is a person's clipping norm. A grid step has 2**shift units, and one unit is 2**-30.
    """

    clip: Fraction
    shift: int
    size: int
    people: int  # most clipped parts in one site's sum, from its data card
    chance: Fraction  # probability that a person's effect exceeds `most_squared`

    def __post_init__(self) -> None:
        if self.clip <= 0 or not 0 <= self.shift <= UNIT_BITS or self.size < 1 or self.people < 1:
            raise Bug("a grid has a norm above zero, a shift, a size and people")
        if not 0 < self.chance < 1:
            raise Bug("a chance is inside (0, 1)")
        if self.clip * self.people * (1 << UNIT_BITS) >= MAX_UNITS:
            raise Bug("the sum of so many people does not fit into 62 bits")

    @property
    def steps(self) -> Fraction:
        """Return a person's clipping norm `clip`, converted to grid steps."""
        return self.clip * (1 << UNIT_BITS) / (1 << self.shift)

    @cached_property
    def most_squared(self) -> int:
        """Return a bound of the squared L2 sensitivity of the rounded sum to one person.

        It holds except with probability `chance`, because the dither is random. It uses Hoeffding's
        inequality twice: for the squares of the rounding errors, and for their product with the
        person's vector. Each rounding error is at most one step.
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
        """Return a bound of the L1 sensitivity of the rounded sum to one person.

        It holds except with probability `chance`, because the dither is random.
        """
        return min(self.most_squared, math.isqrt(self.size * self.most_squared) + 1)

    @property
    def most_each(self) -> int:
        """Return the largest absolute value that one number of the rounded sum can have."""
        return math.ceil(self.steps * self.people) + 1

    def rounded(self, update: NDArray[np.int64], dice: RandomSource) -> NDArray[np.int64]:
        """Round a site's exact sum to grid steps, with a random dither.

        Each number rounds up with probability of its fractional part.
        """
        if update.shape != (self.size,) or update.dtype != np.int64:
            raise bad_update("It is not a sum of clipped parts.")
        words = np.frombuffer(dice.draw(_WORD * self.size), dtype="<u8")
        dither = (words & np.uint64((1 << self.shift) - 1)).astype(np.int64)
        return np.asarray((update + dither) >> self.shift)

    def numbers(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert a sum in grid steps back to real numbers, in the unit of the update."""
        return np.asarray(total * 2.0 ** (self.shift - UNIT_BITS))
