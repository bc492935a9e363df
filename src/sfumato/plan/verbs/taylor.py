"""Second-order Taylor intervals: how far a smooth number of noisy parts is off (taylor.proof.md).

A number is carried with its slopes and its curvature over a whole box of what the parts may be, by
interval arithmetic. What the slopes say is judged by the law of the weighted sum of the noises, and
only what bends is bounded by the box: the interval is nearly as narrow as that of a linear number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.noise.kind import Noise
from sfumato.core.quotient import MOST_SUMMED, sum_quantile
from sfumato.plan.verbs.ranges import Range
from sfumato.plan.verbs.verb import Floats

BOX: Final = 5  # of the chance to miss, one part in so many is that of leaving the box
Made = Callable[[Sequence["Taylor"]], Range]


@dataclass(frozen=True)
class Taylor(Range):
    """Over a box, per cell: a number, its slope along each part, and how these slopes change.

    Arrays of slopes are [parts, cells], of bends [parts, parts, cells].
    """

    slopes: Range
    bends: Range

    @property
    def value(self) -> Range:
        """Return the range of the number."""
        return Range(self.low, self.high)

    def plus(self, other: Range) -> Range:
        """Return the sum."""
        one = _beside(other, self)
        slopes, bends = self.slopes.plus(one.slopes), self.bends.plus(one.bends)
        return _with(self.value.plus(one.value), slopes, bends)

    def minus(self, other: Range) -> Range:
        """Return the difference."""
        return self.plus(other.scaled(-1.0))

    def scaled(self, factor: float) -> Range:
        """Return the multiple."""
        return _with(
            self.value.scaled(factor), self.slopes.scaled(factor), self.bends.scaled(factor)
        )

    def shifted(self, by: float) -> Range:
        """Return the sum with one number."""
        return _with(self.value.shifted(by), self.slopes, self.bends)

    def times(self, other: Range) -> Range:
        """Return the product."""
        one = _beside(other, self)
        slopes = self.slopes.times(one.value).plus(one.slopes.times(self.value))
        bends = self.bends.times(one.value).plus(one.bends.times(self.value))
        return _with(
            self.value.times(one.value), slopes, bends.plus(_crossed(self.slopes, one.slopes))
        )

    def squared(self) -> Range:
        """Return the square."""
        return self._bent(self.value.squared(), self.value.scaled(2.0), _constant(2.0))

    def root(self) -> Range:
        """Return the root; of what may be zero or less nothing is known."""
        known = Range(np.where(self.low > 0, self.low, np.nan), self.high)
        made = known.root()
        first = made.inverse().scaled(0.5)
        return self._bent(made, first, first.times(known.inverse()).scaled(-0.5))

    def inverse(self) -> Range:
        """Return one over it; of what may be zero nothing is known."""
        made = self.value.inverse()
        square = made.squared()
        return self._bent(made, square.scaled(-1.0), square.times(made).scaled(2.0))

    def over(self, divisor: Range) -> Range:
        """Return the quotient."""
        return self.times(divisor.inverse())

    def logarithm(self) -> Range:
        """Return the natural logarithm; of what may be zero or less nothing is known."""
        known = Range(np.where(self.low > 0, self.low, np.nan), self.high)
        first = known.inverse()
        return self._bent(Range(np.log(known.low), np.log(known.high)), first,
                          first.squared().scaled(-1.0))  # fmt: skip

    def exponential(self) -> Range:
        """Return e to that power."""
        made = Range(np.exp(self.low), np.exp(self.high))
        return self._bent(made, made, made)

    def clipped(self, low: Floats, high: Floats) -> Range:
        """Return the number itself: the true one is within public bounds anyway."""
        del low, high
        return self

    def known_where(self, is_known: NDArray[np.bool_]) -> Range:
        """Return the number, and nothing known of it elsewhere."""
        unknown = np.where(is_known, 0.0, np.nan)
        value = Range(self.low + unknown, self.high + unknown)
        return _with(value, self.slopes, self.bends)

    def _bent(self, value: Range, first: Range, second: Range) -> Range:
        """Return a function of it, given with its first and second derivative over the range."""
        slopes, cross = self.slopes.times(first), _crossed(self.slopes, self.slopes).scaled(0.5)
        return _with(value, slopes, self.bends.times(first).plus(cross.times(second)))


def part_of_box(place: int, count: int, box: Range) -> Taylor:
    """Return a part of so many, over its side of the box."""
    slopes = np.zeros((count, box.low.size))
    slopes[place] = 1.0
    flat = np.zeros((count, count, box.low.size))
    return Taylor(box.low, box.high, Range(slopes, slopes), Range(flat, flat))


def taylor_interval(
    of: Made,
    values: Sequence[Floats],
    noises: Sequence[Noise],
    rounding: Sequence[Floats],
    miss: Fraction,
) -> tuple[Floats, Floats]:
    """Return the number's interval at that chance to miss; all numbers if unknown.

    Args:
        of: What the number is of the parts.
        values: The released parts.
        noises: What is in them, of one kind.
        rounding: How far each part is off besides.
        miss: The chance that the interval misses, of which one part in BOX is that of the box.
    """
    count, cells = len(values), values[0].size
    nothing = np.full(cells, np.inf)
    if count > MOST_SUMMED:
        return -nothing, nothing
    sides = [
        noise.within(1 - miss / (BOX * count)) + off
        for noise, off in zip(noises, rounding, strict=True)
    ]
    boxes = [Range(v - side, v + side) for v, side in zip(values, sides, strict=True)]
    with np.errstate(all="ignore"):  # what is not finite is unknown
        here = of([part_of_box(p, count, Range(v, v)) for p, v in enumerate(values)])
        there = of([part_of_box(p, count, box) for p, box in enumerate(boxes)])
        if not isinstance(here, Taylor) or not isinstance(there, Taylor):
            return -nothing, nothing
        return _about(here, there, (np.array(sides), np.array(rounding)), noises, miss)


def _about(
    here: Taylor,
    there: Taylor,
    sides: tuple[Floats, Floats],
    noises: Sequence[Noise],
    miss: Fraction,
) -> tuple[Floats, Floats]:
    side, rounding = sides
    bends = _size(there.bends)
    moved = np.einsum("ijc,jc->ic", bends, side)
    # a mean of several draws counts as one draw as wide (blend.proof.md)
    slopes = np.minimum(_size(there.slopes), _size(here.slopes) + moved)
    scales = [w * noise.width() for w, noise in zip(slopes, noises, strict=True)]
    reach = sum_quantile(scales, noises[0].kind, miss * (BOX - 1) / BOX)
    unit = np.sum(slopes * (1.0 + rounding), axis=0)  # a unit of each discrete noise is given away
    half = reach + unit + np.einsum("ic,ic->c", moved, side) / 2
    known = np.isfinite(half) & np.isfinite(here.low)
    low, high = here.low - half, here.high + half
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)


def _size(of: Range) -> Floats:
    made = np.maximum(np.abs(of.low), np.abs(of.high))
    return np.where(np.isnan(made), np.inf, made)


def _crossed(one: Range, other: Range) -> Range:
    """Return the products of all pairs of slopes, both ways."""
    rows = Range(one.low[:, None], one.high[:, None])
    made = rows.times(Range(other.low[None], other.high[None]))
    return Range(made.low + made.low.swapaxes(0, 1), made.high + made.high.swapaxes(0, 1))


def _beside(other: Range, like: Taylor) -> Taylor:
    """Return a number beside another; one without slopes has none anywhere."""
    if isinstance(other, Taylor):
        return other
    slopes, bends = np.zeros(like.slopes.low.shape), np.zeros(like.bends.low.shape)
    return Taylor(other.low, other.high, Range(slopes, slopes), Range(bends, bends))


def _with(value: Range, slopes: Range, bends: Range) -> Taylor:
    return Taylor(value.low, value.high, slopes, bends)


def _constant(value: float) -> Range:
    return Range(np.array([value]), np.array([value]))
