"""VAR_SAMP(x) and STDDEV_SAMP(x), divided by n - 1; VAR_POP(x) and STDDEV_POP(x), divided by n.

Let y be twice the distance from the public middle, and S1 and S2 the noisy sums of y and of y^2.
The variance is (S2 - S1^2/n)/(n - 1), times the square of half a step. It is clamped to the range
that n numbers between the bounds can have (noisy_moments.proof.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.query.aggregates.aggregate import (
    AggregateKind,
    AskedAggregate,
    Estimate,
    Floats,
    NoisyPart,
    Part,
    Smooth,
    check_number,
    check_sides,
)
from sfumato.query.aggregates.noisy_moments import (
    Grid,
    Moment,
    Ridge,
    Statistic,
    count_of,
    estimated,
    expected,
    first_of,
    grid_of,
    second_of,
    smooth_of,
)
from sfumato.query.aggregates.result_ranges import Range, about

SAMPLE: Final = 1  # subtracted from the number of rows, to get a sample's divisor
WHOLE: Final = 0  # subtracted for a whole population: nothing
Change = Callable[[Range], Range]


# --- its operands ---------------------------------------------------------------------------


def check_spread(asked: AskedAggregate) -> None:
    """Refuse an operand that is not a number, has no bounds, or has only one possible value."""
    for one in per_operand(asked):
        check_number(one, one.operand)
        if one.operand.lower >= one.operand.upper:
            name = one.in_words()
            raise Refused(
                "type-mismatch",
                f"{name!r} is the same number for everyone.",
                "Leave this variance out: it is always 0.",
                column=name,
            )
        grid_of(one, one.operand, one.in_words())


def per_operand(asked: AskedAggregate) -> tuple[AskedAggregate, ...]:
    """Split an aggregate of several operands into one aggregate for each operand."""
    pairs = zip(asked.aggregate.operands, asked.operands, strict=True)
    return tuple(
        replace(asked, aggregate=replace(asked.aggregate, operands=(of,)), operands=(side,))
        for of, side in pairs
    )


def grids_of(asked: AskedAggregate) -> tuple[Grid, ...]:
    """Return the grid of whole numbers to which each operand is rescaled."""
    return tuple(grid_of(one, one.operand, one.in_words()) for one in per_operand(asked))


# --- the statistics ----------------------------------------------------------------------------


def squares(grid: Grid, second: Moment | None, rows: Range, part: Range | None) -> Range:
    """Return the range of the sum of y^2, computed from the released sum of w(H-w).

    Here w is the number rescaled to 0 up to H, and y = 2w - H. So y^2 = H^2 - 4w(H-w).
    """
    if second is None or part is None:  # two possible values only, so top and y^2 are 1
        return rows.scaled(grid.top**2)
    middle = grid.top**2 - 2 * second.factor * second.part.per_row
    return rows.scaled(middle).minus(part.scaled(2 * second.factor))


def most_variance(grid: Grid, rows: Floats, less: int = SAMPLE) -> Floats:
    """Return the largest variance that `rows` numbers within the public bounds can have.

    `less` is subtracted from the divisor: 1 for a sample variance, 0 for a population variance.
    """
    return np.asarray(grid.range**2 / 4 * rows / (rows - less))


def _check(asked: AskedAggregate) -> None:
    check_sides(asked, 1)
    check_spread(asked)


def _moments(asked: AskedAggregate, grid: Grid) -> tuple[Moment, ...]:
    count = count_of(grid.side.physical, f"count of {grid.name}")
    second = second_of(asked, grid)
    return (count, first_of(grid), *([second] if second is not None else []))


def _parts(asked: AskedAggregate) -> tuple[Part, ...]:
    (grid,) = grids_of(asked)
    return tuple(moment.part for moment in _moments(asked, grid))


def _statistic(grid: Grid, moments: Sequence[Moment], change: Change, less: int) -> Statistic:
    second = moments[2] if len(moments) > 2 else None

    def of(ranges: Sequence[Range], _ridge: Ridge) -> Range:
        rows, first = ranges[0], ranges[1]
        total = squares(grid, second, rows, ranges[2] if second is not None else None)
        spread = about(total, first, first, rows).over(rows.shifted(-less))
        return change(spread.scaled(grid.unit**2))

    def bounds(rows: Floats) -> tuple[Floats, Floats]:
        most = most_variance(grid, rows, less)
        made = change(Range(np.zeros(most.shape), most))
        return made.low, made.high

    return Statistic(of, bounds)


def _verb(change: Change, less: int, says: str) -> AggregateKind:
    def finish(asked: AskedAggregate, parts: Sequence[NoisyPart]) -> Estimate:
        (grid,) = grids_of(asked)
        moments = _moments(asked, grid)
        return estimated(_statistic(grid, moments, change, less), moments, parts)

    def margin(asked: AskedAggregate, noises: Sequence[Noise], size: int | None) -> float | None:
        """Predict half the 95 % interval, for numbers uniform over the upper half of their range.

        The number of rows is an assumption of the asker or the card, never read from the rows.
        """
        if size is None:
            return None
        (grid,) = grids_of(asked)
        moments = _moments(asked, grid)
        typical = [size, size * grid.top / 2, *(typical_second(grid, m, size) for m in moments[2:])]
        return expected(_statistic(grid, moments, change, less), moments, noises, typical=typical)

    def said(asked: AskedAggregate) -> str:
        return f"the {says} of {asked.in_words()}"

    def smooth(asked: AskedAggregate) -> Smooth:
        (grid,) = grids_of(asked)
        moments = _moments(asked, grid)
        return smooth_of(_statistic(grid, moments, change, less), moments)

    return AggregateKind(_check, _parts, finish, margin, said, smooth=smooth)


def typical_second(grid: Grid, second: Moment, size: int) -> float:
    """Return the second moment to assume when an error is predicted, before any row is read.

    The assumed numbers are uniform over the upper half of their range. Then the mean of y^2 is a
    third of its maximum, with y twice the distance from the middle.
    """
    middle = grid.top**2 - 2 * second.factor * second.part.per_row
    return size * (middle - grid.top**2 / 3) / (2 * second.factor)


def _unchanged(spread: Range) -> Range:
    return spread


def _root(spread: Range) -> Range:
    return spread.root()


VARIANCE = _verb(_unchanged, SAMPLE, "sample variance (VAR_SAMP)")
DEVIATION = _verb(_root, SAMPLE, "sample standard deviation (STDDEV_SAMP)")
POPULATION_VARIANCE = _verb(_unchanged, WHOLE, "population variance (VAR_POP)")
POPULATION_DEVIATION = _verb(_root, WHOLE, "population standard deviation (STDDEV_POP)")
