"""Ranges of numbers, one per group of the answer, and interval arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """The range of a number in each group; the range of a result contains all possible results."""

    low: Floats
    high: Floats

    def plus(self, other: Range) -> Range:
        """Return the range of the sum of two numbers, given the range of each."""
        return Range(self.low + other.low, self.high + other.high)

    def minus(self, other: Range) -> Range:
        """Return the range of the difference of two numbers, given the range of each."""
        return Range(self.low - other.high, self.high - other.low)

    def scaled(self, factor: float) -> Range:
        """Return the range of the number times a constant."""
        ends = self.low * factor, self.high * factor
        return Range(*ends) if factor >= 0 else Range(ends[1], ends[0])

    def shifted(self, by: float) -> Range:
        """Return the range of the number plus a constant."""
        return Range(self.low + by, self.high + by)

    def times(self, other: Range) -> Range:
        """Return the range of the product of two numbers, given the range of each."""
        ends = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Range(np.minimum.reduce(ends), np.maximum.reduce(ends))

    def squared(self) -> Range:
        """Return the range of the number's square."""
        ends = self.low**2, self.high**2
        has_zero = (self.low <= 0) & (self.high >= 0)
        return Range(np.where(has_zero, 0.0, np.minimum(*ends)), np.maximum(*ends))

    def root(self) -> Range:
        """Return the range of the number's square root; numbers below zero count as zero."""
        return Range(np.sqrt(np.maximum(self.low, 0)), np.sqrt(np.maximum(self.high, 0)))

    def inverse(self) -> Range:
        """Return the range of 1/x; NaN in groups where x may be zero."""
        known = (self.low > 0) | (self.high < 0)
        low, high = np.where(known, self.low, np.nan), np.where(known, self.high, np.nan)
        return Range(1 / high, 1 / low)

    def common(self, other: Range) -> Range:
        """Return the intersection of this range and `other`; where it is empty, return `other`."""
        low, high = np.maximum(self.low, other.low), np.minimum(self.high, other.high)
        is_some = low <= high
        return Range(np.where(is_some, low, other.low), np.where(is_some, high, other.high))

    def known_where(self, is_known: NDArray[np.bool_]) -> Range:
        """Return the range, but infinite in the groups where `is_known` is False."""
        return Range(np.where(is_known, self.low, -np.inf), np.where(is_known, self.high, np.inf))

    def over(self, divisor: Range) -> Range:
        """Return the range of the quotient; infinite where the divisor may be zero or below."""
        known = divisor.low > 0
        ends = 1 / np.where(known, divisor.high, 1.0), 1 / np.where(known, divisor.low, 1.0)
        made = self.times(Range(*ends))
        return Range(np.where(known, made.low, -np.inf), np.where(known, made.high, np.inf))

    def clipped(self, low: Floats, high: Floats) -> Range:
        """Return the range of the number, clamped to public bounds."""
        return Range(np.clip(self.low, low, high), np.clip(self.high, low, high))


def _product(one: Floats, other: Floats) -> Floats:
    """Multiply two ends of ranges; zero times infinity is zero, as infinity is never attained."""
    with np.errstate(invalid="ignore"):
        return np.where((one == 0) | (other == 0), 0.0, one * other)


def exactly(value: Floats) -> Range:
    """Return the range that contains this number only."""
    return Range(value, value)


def about(first: Range, one: Range, other: Range, rows: Range) -> Range:
    """Return the range of the sum of (x - mean x)(y - mean y) over a number of rows.

    `first` is the range of the sum of x*y, and `one` and `other` are those of the sums of x and y.
    The result is first - one*other/rows.
    """
    product = one.squared() if one is other else one.times(other)
    return first.minus(product.times(rows.inverse()))
