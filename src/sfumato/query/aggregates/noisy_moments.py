"""Noisy moments about the public middle, and intervals from them: for variances and regressions.

A number from L to U becomes a whole number w from 0 to H, and y = 2w - H is twice its distance from
the middle. The moments are the sum of y, and the sum of the product w(H-w) = (H^2 - y^2)/4. For two
numbers, there is also the sum of the products of their y. Each number has its own middle, and all
sums are integers (soundness rule 20; noisy_moments.proof.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Refused
from sfumato.dp.sensitivity import of_centred_sum, of_count
from sfumato.query.aggregates.aggregate import (
    AskedAggregate,
    Estimate,
    Floats,
    Integers,
    NoisyPart,
    Part,
    Smooth,
)
from sfumato.query.aggregates.result_ranges import Range, exactly
from sfumato.query.aggregates.taylor_intervals import BOX, taylor_interval
from sfumato.query.expression import Arithmetic, Case, Expr, IsNull, Not
from sfumato.query.measure import Tally
from sfumato.query.number_types import LARGEST
from sfumato.query.typed_expression import ExpressionType, whole
from sfumato.vault.card.data_card import Card

FINEST: Final = 2**30  # most steps in which a value is stored
# most steps of a product; the rounding is then smaller than the noise
FINEST_PRODUCT: Final = 2**28
SUM_LIMIT: Final = 2**62  # plan.py refuses sums that could reach this limit
MIN_ROWS: Final = 2.0  # a sample variance needs two rows
NORMAL: Final = 1.96  # half of a normal 95 % interval, in standard deviations
PIECES: Final = 16  # pieces into which the range of plausible counts is cut, to tighten an interval


# --- what is added up --------------------------------------------------------------------------


@dataclass(frozen=True)
class Grid:
    """A rescaling of a bounded number x to a whole number w from 0 to `top`.

    x = lower + stride*w, in steps of the column, rounded.
    """

    side: ExpressionType
    name: str
    stride: int
    top: int

    @property
    def unit(self) -> float:
        """Return the size of half a stride in the number's own unit.

        It is the unit of y, which is twice the distance from the public middle.
        """
        return float(self.side.step * self.stride / 2)

    @property
    def middle(self) -> float:
        """Return the middle of the grid, from which the distances in all moments are measured."""
        return float(self.side.step * (self.side.lower + Fraction(self.stride * self.top, 2)))

    @property
    def step(self) -> float:
        """Return the smallest difference between two values of the number."""
        return float(self.side.step)

    @property
    def range(self) -> float:
        """Return the distance between the public bounds, in the number's own unit."""
        return float(self.side.step * (self.side.upper - self.side.lower))

    @property
    def is_rounded(self) -> bool:
        """Check whether values are rounded to the grid, by half a stride at most."""
        return self.stride > 1

    @property
    def whole(self) -> Expr:
        """Return the expression that computes a row's place on the grid, from 0 to `top`."""
        side = self.side
        above = side.physical
        if side.lower != 0:
            above = Arithmetic("-", above, whole(side.lower))
        return _rounded(above, self.stride)


def grid_of(asked: AskedAggregate, side: ExpressionType, name: str) -> Grid:
    """Return the finest grid for the number on which sums and products stay exact.

    It depends on public numbers only.
    """
    width = side.upper - side.lower
    if 2 * width > LARGEST:
        raise Refused(
            "numbers-too-large",
            f"The bounds of {name!r} are too far apart for an exact sum.",
            "Bound it more narrowly: LEAST(GREATEST(x, low), high), or use coarser steps.",
            column=name,
        )
    stride = -(-width // _finest(asked.card, FINEST))
    return Grid(side, name, stride, (width + stride // 2) // stride)


def _finest(card: Card, most: int) -> int:
    """Return the top of the finest grid on which the sum of all rows is exact.

    It is the largest whole number that each row may add to a sum.

    It is at most `most`, and smaller if the card allows many rows.
    """
    return min(most, (SUM_LIMIT - 1) // card.limits.rows)


def _rounded(value: Expr, divisor: int) -> Expr:
    """Return value / divisor as an expression, rounded to the nearest whole number.

    The operator "/" alone rounds down.
    """
    if divisor == 1:
        return value
    return Arithmetic("/", Arithmetic("+", value, whole(divisor // 2)), whole(divisor))


@dataclass(frozen=True)
class Moment:
    """A moment (a sum of values or of their products) as a released partial aggregate.

    `factor` converts the partial aggregate to the moment's unit. `rounding` is the largest rounding
    error per row.
    """

    part: Part
    factor: int = 1
    rounding: float = 0.0

    @property
    def reach(self) -> float:
        """Return the most that one row could change the partial aggregate without rounding."""
        return self.part.per_row + self.rounding


def count_of(value: Expr, says: str) -> Moment:
    """Return the moment that counts the rows in which the value is known."""
    return Moment(Part(says, Tally("values", value), of_count()))


def first_of(grid: Grid, other: Grid | None = None) -> Moment:
    """Return the moment that sums y = 2w - top over the rows where `other` is known.

    Here w is the number rescaled to 0 up to top. Without `other` and without rounding, AVG uses the
    same partial aggregate, so a query that asks for both pays for it once.
    """
    side, says = grid.side, f"sum of {grid.name} about its middle"
    if grid.is_rounded:
        value, offset = grid.whole, -grid.top
        says = f"sum of {grid.name}, rounded, about its middle"
    else:
        value, offset = side.physical, -(side.lower + side.upper)
    tally = Tally("sum", _where_known(value, other), scale=2, offset=offset)
    part = Part(says + _beside(other), tally, of_centred_sum(0, grid.top))
    return Moment(part, rounding=1.0 if grid.is_rounded else 0.0)


def second_of(asked: AskedAggregate, grid: Grid, other: Grid | None = None) -> Moment | None:
    """Return the moment that sums w(top-w), from which the sum of squares follows.

    Here w is the number x rescaled to 0 up to top. The result is None if x has only two values,
    because w(top-w) is then always zero.
    """
    most = grid.top**2 // 4
    if most == 0:
        return None
    divisor = -(-most // _finest(asked.card, FINEST_PRODUCT))
    top = (most + divisor // 2) // divisor
    product = Arithmetic("*", grid.whole, Arithmetic("-", whole(grid.top), grid.whole))
    value = _where_known(_rounded(product, divisor), other)
    part = Part(
        f"sum of squares of {grid.name} about its middle" + _beside(other),
        Tally("sum", value, scale=2, offset=-top),
        of_centred_sum(0, top),
    )
    missed = (divisor // 2) + ((grid.top + 1) / 2 if grid.is_rounded else 0)
    return Moment(part, divisor, 2 * missed / divisor)


def product_of(asked: AskedAggregate, one: Grid, other: Grid) -> Moment:
    """Return the moment that sums the products of two numbers, each centred at its own middle."""
    most = one.top * other.top
    divisor = -(-most // _finest(asked.card, FINEST_PRODUCT))
    tally = Tally("sum", both(one, other, divisor))
    says = f"sum of products of {one.name} and {other.name} about their middles"
    missed = float(divisor // 2)
    missed += sum(by.top + 1 for by, grid in ((one, other), (other, one)) if grid.is_rounded)
    return Moment(Part(says, tally, (most + divisor // 2) // divisor), divisor, missed / divisor)


def both(one: Grid, other: Grid, divisor: int = 1) -> Expr:
    """Return the product of two numbers, each centred at its public middle, over `divisor`.

    It is NULL if either number is NULL.
    """
    first, second = (
        Arithmetic("-", Arithmetic("*", whole(2), grid.whole), whole(grid.top))
        for grid in (one, other)
    )
    return _rounded(Arithmetic("*", first, second), divisor)


def _where_known(value: Expr, other: Grid | None) -> Expr:
    """Return the value, but NULL where the other number is NULL.

    So all moments of two numbers are sums over the same rows.
    """
    if other is None:
        return value
    return Case(((Not(IsNull(other.side.physical)), value),), None)


def _beside(other: Grid | None) -> str:
    return "" if other is None else f" where {other.name} is known"


# --- from noisy moments to an estimate -----------------------------------------------------------


@dataclass(frozen=True)
class Statistic:
    """A statistic, such as a variance or slope, as a function of the moments (count of rows first).

    A ridge (a small positive term) keeps the divisor of a point estimate away from zero. Intervals
    have no ridge. `bounds` returns the public range of the statistic for a number of rows.
    `otherwise` returns the value to show if the interval is infinite.
    """

    of: Callable[[Sequence[Range], Ridge], Range]
    bounds: Callable[[Floats], tuple[Floats, Floats]]
    otherwise: Callable[[Sequence[Floats]], Floats] | None = None


# arguments: a divisor, and the index of the moment with most of its noise
Ridge = Callable[[Range, int], Range]


def estimated(
    statistic: Statistic, moments: Sequence[Moment], parts: Sequence[NoisyPart]
) -> Estimate:
    """Estimate the statistic of each group, with std and interval, only from released values."""
    noises = [part.spread() for part in parts]
    values = [part.values.astype(np.float64) for part in parts]
    low, high = interval(statistic, moments, values, noises)
    values[0] = np.maximum(values[0], MIN_ROWS)
    lower, upper = statistic.bounds(values[0])
    unknown, half = np.isinf(low), (upper - lower) / 2
    value = _point(statistic, moments, values, noises)
    if statistic.otherwise is not None:
        value = np.where(unknown, np.clip(statistic.otherwise(values), lower, upper), value)
    std = _std(statistic, moments, values, noises)
    low, high = _within(statistic, _least_rows(parts[0].values, noises), low, high)
    std = np.minimum(np.where(_is_cut(value, lower, upper), _std_of(low, high, std), std), half)
    return Estimate(
        np.clip(value, low, high).tolist(),
        np.where(unknown, half, std).tolist(),
        low.tolist(),
        high.tolist(),
    )


def smooth_of(statistic: Statistic, moments: Sequence[Moment]) -> Smooth:
    """Return the statistic as a smooth function of its partial aggregates.

    A formula over several aggregates uses it to propagate their noise.
    """
    rounding = tuple(moment.rounding for moment in moments)
    return Smooth(lambda parts: statistic.of(parts, _no_ridge), rounding)


def _is_cut(value: Floats, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
    """Return a mask of the values at a public bound, where clamping may hide the noise."""
    return np.asarray((value <= lower) | (value >= upper))


def _std_of(low: Floats, high: Floats, least: Floats) -> Floats:
    """Return the std of a normal number with this 95 % interval, but not less than `least`."""
    return np.maximum((high - low) / (2 * NORMAL), least)


def _within(
    statistic: Statistic, least: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Clamp the interval to the values that the statistic can have for `least` or more rows."""
    lower, upper = statistic.bounds(np.maximum(least, MIN_ROWS))
    return np.clip(low, lower, upper), np.clip(high, lower, upper)


def interval(
    statistic: Statistic,
    moments: Sequence[Moment],
    values: Sequence[Floats],
    noises: Sequence[Noise],
) -> tuple[Floats, Floats]:
    """Return the 95 % interval of the statistic; it is infinite if there may be too few rows.

    It is the intersection of two intervals that hold jointly. One contains all values of the
    statistic for moments within a box. The other is the second-order interval of the moments' joint
    noise.
    """
    low, high = _of_box(statistic, moments, values, noises)
    least, most = taylor_interval(
        lambda parts: statistic.of(parts, _no_ridge),
        values,
        noises,
        rounding_of(moments, values[0] + margin_of(noises[0], len(noises))),
        noises[0].miss() * (BOX - 1) / BOX,
    )
    both = Range(least, most).common(Range(low, high))
    return both.low, both.high


def rounding_of(moments: Sequence[Moment], rows: Floats) -> list[Floats]:
    """Return the largest rounding error of each moment, for this many rows."""
    return [moment.rounding * np.maximum(rows, 0.0) for moment in moments]


def _of_box(
    statistic: Statistic,
    moments: Sequence[Moment],
    values: Sequence[Floats],
    noises: Sequence[Noise],
) -> tuple[Floats, Floats]:
    """Return the range of the statistic if the noise of every moment is within its own margin.

    The range is computed for each piece of the range of plausible row counts, which only narrows
    it.
    """
    least, margin = _least_rows(values[0], noises), margin_of(noises[0], len(noises))
    few = least < MIN_ROWS
    start = np.maximum(least, MIN_ROWS)
    width = (np.maximum(values[0] + margin, start) - start) / PIECES
    low, high = np.full(few.shape, np.inf), np.full(few.shape, -np.inf)
    for piece in range(PIECES):
        rows = Range(start + piece * width, start + (piece + 1) * width)
        made = statistic.of(_plausible(moments, values, noises, rows), _no_ridge)
        low, high = np.minimum(low, made.low), np.maximum(high, made.high)
    unknown = few | ~np.isfinite(low) | ~np.isfinite(high)
    return np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high)


def _least_rows(counted: Floats | Integers, noises: Sequence[Noise]) -> Floats:
    return counted.astype(np.float64) - margin_of(noises[0], len(noises))


def _plausible(
    moments: Sequence[Moment], values: Sequence[Floats], noises: Sequence[Noise], rows: Range
) -> list[Range]:
    """Return each moment's plausible range, from its noise, its rounding and the row count."""
    made = [rows]
    for moment, value, noise in list(zip(moments, values, noises, strict=True))[1:]:
        margin = margin_of(noise, len(noises)) + moment.rounding * rows.high
        most = moment.reach * rows.high
        made.append(Range(value - margin, value + margin).clipped(-most, most))
    return made


def _point(
    statistic: Statistic,
    moments: Sequence[Moment],
    values: Sequence[Floats],
    noises: Sequence[Noise],
) -> Floats:
    """Return the statistic of the released moments, clamped to its public range.

    A ridge (a small positive term) keeps divisors away from zero.
    """

    def ridge(divisor: Range, place: int) -> Range:
        noise = 2 * moments[place].factor * noises[place].std()
        is_some = divisor.low > 0
        more = noise**2 / np.where(is_some, divisor.low, 1.0)
        return exactly(np.where(is_some, divisor.low + more, divisor.low))

    rows = np.maximum(values[0], MIN_ROWS)
    made = statistic.of([exactly(value) for value in (rows, *values[1:])], ridge)
    return np.clip(made.low, *statistic.bounds(rows))


def _no_ridge(divisor: Range, _place: int) -> Range:
    return divisor


def _std(
    statistic: Statistic,
    moments: Sequence[Moment],
    values: Sequence[Floats],
    noises: Sequence[Noise],
) -> Floats:
    """Return the std of the point estimate by the delta method.

    Each moment is moved one std of its noise up and down. Half the change of the estimate is
    squared, and the squares are added.
    """
    total = np.zeros(values[0].shape)
    for place, noise in enumerate(noises):
        step = noise.std() * (np.arange(len(values)) == place)
        up, down = ([v + by for v, by in zip(values, d, strict=True)] for d in (step, -step))
        rise = _point(statistic, moments, up, noises) - _point(statistic, moments, down, noises)
        total += (rise / 2) ** 2
    return np.asarray(np.sqrt(total))


@lru_cache(maxsize=4096)
def margin_of(noise: Noise, parts: int) -> float:
    """Return the margin within which all of `parts` noises are simultaneously (Bonferroni).

    The margin uses one fifth (1/BOX) of the interval's probability of a miss. The other four fifths
    are for the interval of the joint noise.
    """
    return noise.within(1 - (1 - CONFIDENCE) / (BOX * parts))


def expected(
    statistic: Statistic,
    moments: Sequence[Moment],
    noises: Sequence[Noise],
    *,
    typical: Sequence[float],
) -> float:
    """Predict half the width of a group's 95 % interval, if the group's moments are `typical`."""
    values = [np.array([float(value)]) for value in typical]
    low, high = interval(statistic, moments, values, noises)
    low, high = _within(statistic, _least_rows(values[0], noises), low, high)
    return float(high[0] - low[0]) / 2
