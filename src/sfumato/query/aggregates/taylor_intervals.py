"""Second-order Taylor intervals: the error of a smooth function of noisy partial aggregates.

Proof: taylor_intervals.proof.md.

A Taylor number holds a value with its first and second derivatives at the released numbers. A
quotient keeps its numerator and denominator. As in Fieller's method, a value theta is plausible if
noise explains why numerator - theta*denominator is not zero. The distribution of that noise is
exact to the first order. The root mean square of the second order is added to it. If the second
order is not small, the interval is infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.ratio_of_sums import MAX_NOISES, edge, is_within
from sfumato.dp.mechanisms.noise import Noise
from sfumato.query.aggregates.result_ranges import Floats, Range, exactly

BOX: Final = 5  # 1/BOX of the probability of a miss is for the enclosure that is intersected
# largest allowed ratio of the second-order error to the first-order error
MAX_CURVATURE: Final = 1 / 3
Made = Callable[[Sequence["Taylor"]], Range]


@dataclass(frozen=True)
class Taylor(Range):
    """A number per group, with its first and second derivatives by the noisy partial aggregates.

    `low` and `high` both hold the number. `slopes` are the first derivatives, [parts, groups].
    `second_derivatives` is [parts, parts, groups]. `margins` holds the margin of each part's noise.
    The logarithm, root and reciprocal of a number that may be zero are NaN.
    """

    slopes: Floats
    second_derivatives: Floats
    margins: Floats

    @property
    def is_above_zero(self) -> NDArray[np.bool_]:
        """Return a mask of the groups in which the number exceeds zero by more than its noise."""
        return np.asarray(self.low > np.sqrt(np.sum((self.slopes * self.margins) ** 2, axis=0)))

    def plus(self, other: Range) -> Taylor:
        """Return the sum of both numbers, with its derivatives."""
        if isinstance(other, Quotient) and not isinstance(self, Quotient):
            return other.plus(self)
        one = _beside(other, self)
        return self._made(
            self.low + one.low,
            self.slopes + one.slopes,
            self.second_derivatives + one.second_derivatives,
        )

    def minus(self, other: Range) -> Taylor:
        """Return the difference of both numbers, with its derivatives."""
        return self.plus(other.scaled(-1.0))

    def scaled(self, factor: float) -> Taylor:
        """Return the number times a constant, with its derivatives."""
        return self._made(self.low * factor, self.slopes * factor, self.second_derivatives * factor)

    def shifted(self, by: float) -> Taylor:
        """Return the number plus a constant, with its derivatives."""
        return self._made(self.low + by, self.slopes, self.second_derivatives)

    def times(self, other: Range) -> Taylor:
        """Return the product of both numbers, with its derivatives."""
        if isinstance(other, Quotient) and not isinstance(self, Quotient):
            return other.times(self)
        one = _beside(other, self)
        slopes = self.slopes * one.low + one.slopes * self.low
        bends = (
            self.second_derivatives * one.low
            + one.second_derivatives * self.low
            + _crossed(self.slopes, one.slopes)
        )
        return self._made(self.low * one.low, slopes, bends)

    def squared(self) -> Taylor:
        """Return the square of the number, with its derivatives."""
        return self.times(self)

    def root(self) -> Taylor:
        """Return the square root of the number; NaN unless it is surely above zero."""
        known = np.where(self.is_above_zero, self.low, np.nan)
        made = np.sqrt(known)
        return self._bent(made, 0.5 / made, -0.25 / (made * known), Range.root)

    def inverse(self) -> Taylor:
        """Return the reciprocal of the number; NaN unless it is surely above zero."""
        made = 1 / np.where(self.is_above_zero, self.low, np.nan)
        return self._curved(made, -(made**2), 2 * made**3)

    def over(self, divisor: Range) -> Taylor:
        """Return the quotient of both numbers, which keeps its numerator and denominator."""
        below = _beside(divisor, self)
        made = self.times(below.inverse())
        return Quotient(
            made.low, made.high, made.slopes, made.second_derivatives, self.margins, self, below
        )

    def logarithm(self) -> Taylor:
        """Return the natural logarithm of the number; NaN unless it is surely above zero."""
        known = np.where(self.is_above_zero, self.low, np.nan)
        return self._bent(np.log(known), 1 / known, -1 / known**2, _logarithms)

    def exponential(self) -> Taylor:
        """Return the exponential of the number, with its derivatives."""
        made = np.exp(self.low)
        return self._bent(made, made, made, _powers)

    def clipped(self, low: Floats, high: Floats) -> Taylor:
        """Return the number unchanged: without noise, it is within its public bounds anyway."""
        del low, high
        return self

    def known_where(self, is_known: NDArray[np.bool_]) -> Taylor:
        """Return the number, but NaN in the groups where the mask `is_known` is False."""
        return self._made(
            np.where(is_known, self.low, np.nan), self.slopes, self.second_derivatives
        )

    def _bent(self, value: Floats, first: Floats, second: Floats, ends: Ends) -> Taylor:
        """Apply an increasing function to the number, given the function's value and derivatives.

        `first` and `second` are its derivatives at the number. `ends` is the function itself, which
        is applied to the two ends of an interval.
        """
        made = self._curved(value, first, second)
        return Increasing(
            made.low, made.high, made.slopes, made.second_derivatives, self.margins, self, ends
        )

    def _made(self, value: Floats, slopes: Floats, bends: Floats) -> Taylor:
        return Taylor(value, value, slopes, bends, self.margins)

    def _curved(self, value: Floats, first: Floats, second: Floats) -> Taylor:
        cross = self.slopes[:, None] * self.slopes[None]
        return self._made(
            value, self.slopes * first, self.second_derivatives * first + cross * second
        )


Ends = Callable[[Range], Range]  # applies an increasing function to both ends


@dataclass(frozen=True)
class Increasing(Taylor):
    """An increasing function of a number, such as its logarithm.

    The interval of the number is mapped by the function at both ends.
    """

    of: Taylor
    ends: Ends


@dataclass(frozen=True)
class Quotient(Taylor):
    """A quotient that keeps its numerator and denominator, as Fieller's method needs."""

    top: Taylor
    bottom: Taylor

    def plus(self, other: Range) -> Taylor:
        """Return the sum as a quotient with this quotient's divisor.

        If `other` is a quotient too, it becomes a plain number, because only one divisor is kept.
        """
        one = _beside(other, self)
        return self.top.plus(_plain(one).times(self.bottom)).over(self.bottom)

    def times(self, other: Range) -> Taylor:
        """Return the product as a quotient with this quotient's divisor.

        If `other` is a quotient too, it becomes a plain number, because only one divisor is kept.
        """
        return self.top.times(_plain(_beside(other, self))).over(self.bottom)

    def scaled(self, factor: float) -> Taylor:
        """Return the quotient times a constant."""
        made = super().scaled(factor)
        top = self.top.scaled(factor)
        return Quotient(
            made.low,
            made.high,
            made.slopes,
            made.second_derivatives,
            self.margins,
            top,
            self.bottom,
        )

    def shifted(self, by: float) -> Taylor:
        """Return the quotient plus a constant."""
        return self.top.plus(self.bottom.scaled(by)).over(self.bottom)

    def known_where(self, is_known: NDArray[np.bool_]) -> Taylor:
        """Return the quotient, but NaN in the groups where `is_known` is False."""
        return self.top.known_where(is_known).over(self.bottom)


def parts_at(values: Sequence[Floats], reach: Sequence[float]) -> list[Taylor]:
    """Return the released partial aggregates as Taylor numbers, each with its noise margin.

    `reach` holds the noise margin of each partial aggregate.
    """
    count, cells = len(values), values[0].size
    far = np.array(reach, dtype=np.float64)[:, None]
    made = []
    for place, value in enumerate(values):
        slopes = np.zeros((count, cells))
        slopes[place] = 1.0
        made.append(Taylor(value, value, slopes, np.zeros((count, count, cells)), far))
    return made


def taylor_interval(
    of: Made,
    values: Sequence[Floats],
    noises: Sequence[Noise],
    rounding: Sequence[Floats],
    miss: Fraction,
) -> tuple[Floats, Floats]:
    """Return the interval of a function of noisy numbers, which misses with probability `miss`.

    In groups where no finite interval can be proved, both ends are infinite.

    Args:
        of: The function of the noisy partial aggregates.
        values: The released partial aggregates.
        noises: The noise in each partial aggregate, all of one kind.
        rounding: The largest rounding error of each partial aggregate.
        miss: The probability that the interval misses the true number.
    """
    count, cells = len(values), values[0].size
    unknown = Range(np.full(cells, -np.inf), np.full(cells, np.inf))
    if count > MAX_NOISES:
        return unknown.low, unknown.high
    law = Law(tuple(noises), np.array(rounding), miss)
    with np.errstate(all="ignore"):  # values that are not finite count as unknown
        made = of(parts_at(values, list(law.far * law.stds[:, 0])))
        if not isinstance(made, Taylor):
            return unknown.low, unknown.high
        found = _interval(made, law)
    return found.low, found.high


@dataclass(frozen=True)
class Law:
    """An error model of the partial aggregates: noise, rounding, and the probability of a miss."""

    noises: tuple[Noise, ...]
    rounding: Floats
    miss: Fraction

    @property
    def stds(self) -> Floats:
        """Return the standard deviation of each noise, as a column of an array."""
        more = np.sqrt(2) if self.noises[0].kind == "laplace" else 1.0
        return np.array([noise.width() * more for noise in self.noises])[:, None]

    @property
    def far(self) -> float:
        """Return how many standard deviations bound the noise of a sum of partial aggregates.

        The noise exceeds the bound with probability `miss` at most.
        """
        if self.noises[0].kind == "laplace":
            return float(np.log(1 / float(self.miss)) / np.sqrt(2))
        return NormalDist().inv_cdf(float(1 - self.miss / 2))

    def second_order(self, of: Taylor) -> Floats:
        """Return the root mean square second-order error where the first-order one is largest."""
        slopes, bends = (
            of.slopes * self.stds,
            of.second_derivatives * self.stds[:, None] * self.stds[None],
        )
        total = np.sqrt(np.sum(slopes**2, axis=0))
        along = slopes / np.where(total > 0, total, 1.0)
        turned = np.einsum("ijc,jc->ic", bends, along)
        ahead, squares = np.sum(along * turned, axis=0), np.sum(turned**2, axis=0)
        mean = (self.far**2 - 1) * ahead + np.einsum("iic->c", bends)
        beside = np.sum(bends**2, axis=(0, 1)) - 2 * squares + ahead**2
        across = self.far**2 * (squares - ahead**2)
        return np.asarray(np.sqrt(mean**2 / 4 + across + np.maximum(beside, 0.0) / 2))

    def first_order(self, of: Taylor) -> Floats:
        """Return the approximate margin of a number's error to the first order of the noise."""
        return np.asarray(self.far * np.sqrt(np.sum((of.slopes * self.stds) ** 2, axis=0)))

    def widths(self, of: Taylor, divisor: Taylor) -> tuple[Floats, Floats]:
        """Return the approximate distances from a quotient to the two ends of its interval.

        The distances are NaN if noise may make the divisor zero. For normal noise, they are the
        roots of a quadratic equation (Fieller).
        """
        slopes, other = of.slopes * self.stds, divisor.slopes * self.stds
        surely = np.maximum(divisor.low - self.second_order(divisor), 0.0)
        square = surely**2 - self.first_order(divisor) ** 2
        square = np.where(square > 0, square, np.nan)
        turn = self.far**2 * np.sum(slopes * other, axis=0)
        far = np.sqrt(turn**2 + square * (self.first_order(of) + self.second_order(of)) ** 2)
        return (-turn - far) / square, (far - turn) / square

    def rounded(self, of: Taylor) -> Floats:
        """Return the largest effect of rounding on a number, for all slopes within the noise."""
        moved = np.einsum("ijc,jz->ic", np.abs(of.second_derivatives), self.far * self.stds)
        return np.asarray(np.sum(self.rounding * (np.abs(of.slopes) + moved), axis=0))


def _interval(of: Taylor, law: Law) -> Range:
    """Return the interval of a number: all values theta that noise alone makes plausible.

    A quotient top/bottom has the value theta if noise explains why top - theta*bottom isn't zero.
    """
    if isinstance(of, Increasing):
        return of.ends(_interval(of.of, law))
    top, bottom = (of.top, of.bottom) if isinstance(of, Quotient) else (of, _one(of))
    value = top.low / bottom.low
    widths = law.widths(_less(top, value, bottom), bottom)
    there = [_less(top, value + width, bottom) for width in widths]
    known = np.isfinite(sum(widths)) & (widths[1] > widths[0])
    known &= law.second_order(bottom) <= MAX_CURVATURE * bottom.low
    for one in there:
        known &= law.second_order(one) <= MAX_CURVATURE * law.first_order(one)
    cells = np.flatnonzero(known)
    top, bottom = _of_cells(top, cells), _of_cells(bottom, cells)
    low, high = (
        _end(top, bottom, law, width[cells], (law.second_order(one) + law.rounded(one))[cells])
        for width, one in zip(widths, there, strict=True)
    )
    found = np.isfinite(low) & np.isfinite(high)
    ends = np.full((2, value.size), [[-np.inf], [np.inf]])
    ends[:, cells[found]] = low[found], high[found]
    return Range(*ends)


def _end(top: Taylor, bottom: Taylor, law: Law, width: Floats, more: Floats) -> Floats:
    """Return one end of the interval of the quotient top/bottom, searched near distance `width`.

    `more` is the margin for second-order error and rounding.
    """

    def is_plausible(theta: Floats) -> NDArray[np.bool_]:
        one = _less(top, theta, bottom)
        return is_within(np.abs(one.low) - more, list(np.abs(one.slopes)), law.noises, law.miss)

    return edge(is_plausible, top.low / bottom.low, width)


def _of_cells(of: Taylor, cells: NDArray[np.int64]) -> Taylor:
    """Return the number in these groups (cells) only, with second derivatives of zero.

    The search for an interval's ends does not need second derivatives.
    """
    nothing = np.zeros((*of.second_derivatives.shape[:2], 1))
    return Taylor(of.low[cells], of.low[cells], of.slopes[:, cells], nothing, of.margins)


def _less(top: Taylor, times: Floats, bottom: Taylor) -> Taylor:
    value, slopes = top.low - times * bottom.low, top.slopes - times * bottom.slopes
    return Taylor(
        value,
        value,
        slopes,
        top.second_derivatives - times * bottom.second_derivatives,
        top.margins,
    )


def _one(like: Taylor) -> Taylor:
    return _beside(exactly(np.ones(like.low.shape)), like)


def _plain(of: Taylor) -> Taylor:
    """Return a quotient or function as a plain Taylor number, without its divisor or argument."""
    return Taylor(of.low, of.high, of.slopes, of.second_derivatives, of.margins)


def _logarithms(of: Range) -> Range:
    return Range(np.log(np.maximum(of.low, 0.0)), np.log(np.maximum(of.high, 0.0)))


def _powers(of: Range) -> Range:
    return Range(np.exp(of.low), np.exp(of.high))


def _crossed(one: Floats, other: Floats) -> Floats:
    """Return the symmetrised outer product of two slope vectors, in each group.

    It is a part of the second derivatives of a product.
    """
    made = one[:, None] * other[None]
    return np.asarray(made + made.swapaxes(0, 1))


def _beside(other: Range, like: Taylor) -> Taylor:
    """Return the other operand as a Taylor number; a plain range gets zero derivatives."""
    if isinstance(other, Taylor):
        return other
    slopes, bends = np.zeros(like.slopes.shape), np.zeros(like.second_derivatives.shape)
    return Taylor(other.low, other.high, slopes, bends, like.margins)
