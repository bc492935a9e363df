"""COVAR_SAMP(y, x), CORR(y, x), REGR_SLOPE(y, x) and REGR_INTERCEPT(y, x), over two numbers.

All moments are over the rows in which both numbers are known. The covariance divides by n - 1. If
noise can explain the whole variance of x, a slope or a correlation is 0, and its interval is the
whole public range. A released divisor C with noise of std s is stabilised by the ridge s^2/C
(soundness rule 20).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.dp.mechanisms.noise import Noise
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Estimate,
    Floats,
    NoisyPart,
    Part,
    Smooth,
    check_sides,
)
from sfumato.query.aggregates.noisy_moments import (
    Grid,
    Moment,
    Ridge,
    Statistic,
    both,
    count_of,
    estimated,
    expected,
    first_of,
    product_of,
    second_of,
    smooth_of,
)
from sfumato.query.aggregates.result_ranges import Range, about
from sfumato.query.aggregates.variance import (
    SAMPLE,
    WHOLE,
    check_spread,
    grids_of,
    most_variance,
    squares,
    typical_second,
)
from sfumato.query.expression import canonical_order


@dataclass(frozen=True)
class Pair:
    """The two operands y and x, and their moments: row count, then the sums of y, x and products.

    Sums of squares follow, if the statistic needs them.
    """

    y: Grid
    x: Grid
    moments: tuple[Moment, ...]
    # the numbers whose squares are summed, each with the index of that sum
    squared: tuple[tuple[Grid, int], ...]

    def products(self, ranges: Sequence[Range]) -> Range:
        """Return the range of the sum of (y - mean y)(x - mean x), from the moments' ranges."""
        rows, y, x, product = ranges[:4]
        return about(product.scaled(self.moments[3].factor), y, x, rows)

    def squares(self, of: Grid, ranges: Sequence[Range], ridge: Ridge) -> Range:
        """Return the range of a number's sum of squared deviations from its mean, plus a ridge.

        The ridge is a small positive term that keeps a divisor away from zero.
        """
        rows, first = ranges[0], ranges[1 if of is self.y else 2]
        places = [place for grid, place in self.squared if grid is of]
        if not places:
            return about(squares(of, None, rows, None), first, first, rows)
        (place,) = places
        total = squares(of, self.moments[place], rows, ranges[place])
        return ridge(about(total, first, first, rows), place)


Squared = Callable[[Grid, Grid], tuple[Grid, ...]]  # returns which of y and x need a sum of squares


def _pair(asked: AskedAggregate, squared: Squared) -> Pair:
    y, x = grids_of(asked)
    one, other = sorted((y, x), key=lambda grid: (grid.name, canonical_order(grid.side.physical)))
    counted = count_of(both(one, other), f"count of {one.name} and {other.name} together")
    moments = [counted, first_of(y, x), first_of(x, y), product_of(asked, one, other)]
    places = []
    for grid in squared(y, x):
        second = second_of(asked, grid, x if grid is y else y)
        if second is not None:
            places.append((grid, len(moments)))
            moments.append(second)
    return Pair(y, x, tuple(moments), tuple(places))


# --- the statistics ----------------------------------------------------------------------------


def _covariance(pair: Pair) -> Statistic:
    return _of_products(pair, SAMPLE)


def _population_covariance(pair: Pair) -> Statistic:
    return _of_products(pair, WHOLE)


def _of_products(pair: Pair, less: int) -> Statistic:
    def of(ranges: Sequence[Range], _ridge: Ridge) -> Range:
        made = pair.products(ranges).over(ranges[0].shifted(-less))
        return made.scaled(pair.y.unit * pair.x.unit)

    def bounds(rows: Floats) -> tuple[Floats, Floats]:
        most = np.sqrt(most_variance(pair.y, rows, less) * most_variance(pair.x, rows, less))
        return -most, most

    return Statistic(of, bounds)


def _correlation(pair: Pair) -> Statistic:
    def of(ranges: Sequence[Range], ridge: Ridge) -> Range:
        y, x = (pair.squares(grid, ranges, ridge) for grid in (pair.y, pair.x))
        return pair.products(ranges).over(y.root().times(x.root()))

    return Statistic(of, _always(-1.0, 1.0), _nothing)


def _slope(pair: Pair) -> Statistic:
    most = _most_slope(pair)
    return Statistic(
        lambda ranges, ridge: _rise(pair, ranges, ridge), _always(-most, most), _nothing
    )


def _intercept(pair: Pair) -> Statistic:
    y, x = pair.y, pair.x
    most_slope = _most_slope(pair)
    far = max(abs(x.side.lower), abs(x.side.upper)) * x.step
    centre = float(y.side.step * (y.side.lower + y.side.upper)) / 2
    most = y.range / 2 + most_slope * far

    def of(ranges: Sequence[Range], ridge: Ridge) -> Range:
        rise = _rise(pair, ranges, ridge)
        means = (
            ranges[place].over(ranges[0]).scaled(grid.unit).shifted(grid.middle)
            for place, grid in ((1, y), (2, x))
        )
        height, along = next(means), next(means)
        known = np.isfinite(rise.low)
        steep = np.full(known.shape, most_slope)
        made = rise.clipped(-steep, steep).times(along).scaled(-1.0).plus(height)
        return made.known_where(known)

    def level(values: Sequence[Floats]) -> Floats:
        mean = y.middle + y.unit * values[1] / values[0]
        return np.asarray(np.clip(mean, centre - y.range / 2, centre + y.range / 2))

    return Statistic(of, _always(centre - most, centre + most), level)


def _rise(pair: Pair, ranges: Sequence[Range], ridge: Ridge) -> Range:
    made = pair.products(ranges).over(pair.squares(pair.x, ranges, ridge))
    return made.scaled(pair.y.unit / pair.x.unit)


def _most_slope(pair: Pair) -> float:
    """Return the steepest possible slope, in units of y per unit of x.

    A regression slope is a mean of slopes between pairs of rows, whose x differ by at least one
    step.
    """
    return pair.y.range / pair.x.step


def _always(low: float, high: float) -> Callable[[Floats], tuple[Floats, Floats]]:
    return lambda rows: (np.full(rows.shape, low), np.full(rows.shape, high))


def _nothing(values: Sequence[Floats]) -> Floats:
    return np.zeros(values[0].shape)


# --- as aggregate functions --------------------------------------------------------------------


def _check(asked: AskedAggregate) -> None:
    check_sides(asked, 2)
    check_spread(asked)


def _verb(statistic: Callable[[Pair], Statistic], squared: Squared, says: str) -> AggregateKind:
    def parts(asked: AskedAggregate) -> tuple[Part, ...]:
        return tuple(moment.part for moment in _pair(asked, squared).moments)

    def finish(asked: AskedAggregate, noisy: Sequence[NoisyPart]) -> Estimate:
        pair = _pair(asked, squared)
        return estimated(statistic(pair), pair.moments, noisy)

    def margin(asked: AskedAggregate, noises: Sequence[Noise], size: int | None) -> float | None:
        if size is None:
            return None
        pair = _pair(asked, squared)
        return expected(statistic(pair), pair.moments, noises, typical=_typical(pair, size))

    def said(asked: AskedAggregate) -> str:
        y, x = grids_of(asked)
        return says.format(y.name, x.name)

    def smooth(asked: AskedAggregate) -> Smooth:
        pair = _pair(asked, squared)
        return smooth_of(statistic(pair), pair.moments)

    return AggregateKind(_check, parts, finish, margin, said, smooth=smooth)


def _typical(pair: Pair, size: int) -> list[float]:
    """Return the moments to assume when an error is predicted, before any row is read.

    The assumed y and x are uniform over the upper halves of their ranges, with correlation 1/2. The
    number of rows is an assumption of the asker or the card.
    """
    reach = pair.y.top * pair.x.top
    product = size * reach * (1 / 4 + 1 / 24) / pair.moments[3].factor
    seconds = [typical_second(grid, pair.moments[place], size) for grid, place in pair.squared]
    return [size, size * pair.y.top / 2, size * pair.x.top / 2, product, *seconds]


COVARIANCE = _verb(_covariance, lambda _y, _x: (), "the sample covariance of {} and {}")
POPULATION_COVARIANCE = _verb(
    _population_covariance, lambda _y, _x: (), "the population covariance of {} and {}"
)
CORRELATION = _verb(_correlation, lambda y, x: (y, x), "the correlation of {} and {}")
SLOPE = _verb(_slope, lambda _y, x: (x,), "the slope of {} by {}")
INTERCEPT = _verb(_intercept, lambda _y, x: (x,), "the value of {} where {} is 0, on a line")
