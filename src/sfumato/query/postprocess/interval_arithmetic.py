"""Interval arithmetic: enclose a formula whose units are each within an interval.

The interval of a unit may have an infinite end, and so may the formula's. A divisor that reaches
zero from one side gives a half line. An enclosure contains the values of the formula where the
formula is not NULL. It also says where the formula may be NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.query.aggregates.aggregate import Floats
from sfumato.query.aggregates.result_ranges import Range, exactly
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Expr,
    Floor,
    FunctionCall,
    Ref,
    Sign,
    Total,
)
from sfumato.query.postprocess.linear_forms import Linear, Unit, divisor_of, linear_form
from sfumato.query.postprocess.scalar_functions import CURVE
from sfumato.query.public_ranges import least_positive

Mask = NDArray[np.bool_]
ROUNDING: Final = 1e-9  # relative; exceeds the float error between a value and its interval


@dataclass(frozen=True)
class Enclosure:
    """The range of a formula in each group, and whether the formula may be NULL there."""

    range: Range
    may_be_null: Mask

    def with_range(self, made: Range) -> Enclosure:
        """Return the same enclosure with another range; where it may be NULL does not change."""
        return Enclosure(made, self.may_be_null)


@dataclass(frozen=True)
class Units:
    """The intervals of a formula's units (its largest pieces), and which outputs are noisy sums."""

    ranges: Mapping[Unit, Range]
    nulls: Mapping[Unit, Mask]  # only units that may be NULL
    sums: Mapping[str, Linear]
    cells: int

    @property
    def never(self) -> Mask:
        """Return a mask that is False in every group: the value is never NULL."""
        return np.zeros(self.cells, dtype=np.bool_)


def interval_of_formula(expr: Expr, of: Units) -> Enclosure:
    """Return the range that encloses the expression in each group, and where it may be NULL."""
    form = linear_form(expr, of.sums)
    if isinstance(form, Linear) and form.is_constant:
        return Enclosure(exactly(np.full(of.cells, float(form.constant))), of.never)
    if form is not None:
        return _unit(form, of)
    if isinstance(expr, Arithmetic | FunctionCall) and expr in of.ranges:
        return _unit(expr, of)
    match expr:
        case Ref(column=column):
            return _unit(column, of)
        case Arithmetic(sign=sign, left=left, right=right):
            return _of_two(
                sign, interval_of_formula(left, of), interval_of_formula(divisor_of(right), of)
            )
        case Total():
            return _unit(expr, of)
        case FunctionCall(name=name, of=inner):
            made = _domain(expr, interval_of_formula(inner, of), of)
            nulls = made.may_be_null | CURVE[name].may_be_null(made.range)
            return Enclosure(_ordered(CURVE[name].ends(made.range)), nulls)
        case Floor(of=inner):
            made = interval_of_formula(inner, of)
            return made.with_range(Range(np.floor(made.range.low), np.floor(made.range.high)))
        case Clamp(of=inner, lower=lower, upper=upper):
            made = interval_of_formula(inner, of)
            low = -np.inf if lower is None else float(lower.number)
            high = np.inf if upper is None else float(upper.number)
            ends = np.full(of.cells, low), np.full(of.cells, high)
            return made.with_range(made.range.clipped(*ends))
        case Coalesce(parts=parts):
            return _first_known([interval_of_formula(part, of) for part in parts])
        case Case():
            return _any_branch(expr, of)
        case _:
            raise Bug("a formula that nobody checked")


def _any_branch(expr: Case, of: Units) -> Enclosure:
    branches = [interval_of_formula(then, of) for _, then in expr.whens]
    branches += [] if expr.otherwise is None else [interval_of_formula(expr.otherwise, of)]
    nulls = [branch.may_be_null for branch in branches]
    missing = np.full(of.cells, expr.otherwise is None)
    hull = _hull([branch.range for branch in branches])
    return Enclosure(hull, np.logical_or.reduce([missing, *nulls]))


def _unit(unit: Unit, of: Units) -> Enclosure:
    return Enclosure(of.ranges[unit], of.nulls.get(unit, of.never))


def _of_two(sign: Sign, left: Enclosure, right: Enclosure) -> Enclosure:
    nulls = left.may_be_null | right.may_be_null
    match sign:
        case "+":
            return Enclosure(_ordered(left.range.plus(right.range)), nulls)
        case "-":
            return Enclosure(_ordered(left.range.minus(right.range)), nulls)
        case "*":
            return Enclosure(left.range.times(right.range), nulls)
        case _:
            zero = (right.range.low <= 0) & (right.range.high >= 0)
            return Enclosure(left.range.times(_reciprocal(right.range)), nulls | zero)


def _reciprocal(of: Range) -> Range:
    """Return the range of 1/x for every x in the range except zero."""
    with np.errstate(divide="ignore"):
        low, high = 1 / of.high, 1 / of.low
    low = np.where(of.high > 0, np.abs(low), np.where(of.high == 0, -np.inf, low))
    high = np.where(of.low < 0, -np.abs(high), np.where(of.low == 0, np.inf, high))
    straddles = (of.low < 0) & (of.high > 0)
    nothing = (of.low == 0) & (of.high == 0)
    open_ = straddles | nothing
    return Range(np.where(open_, -np.inf, low), np.where(open_, np.inf, high))


def _domain(curve: FunctionCall, inner: Enclosure, of: Units) -> Enclosure:
    """Return the enclosure of a function's argument, limited to where the function has a value.

    A sum of whole numbers has a least positive value, so the argument of LN begins there.
    """
    form = linear_form(curve.of, of.sums)
    if curve.name != "ln" or not isinstance(form, Linear):
        return inner
    least = least_positive(form)
    if least is None:
        return inner
    nulls = inner.may_be_null | (inner.range.low <= 0)
    low = np.maximum(inner.range.low, float(least))
    return Enclosure(Range(low, np.maximum(inner.range.high, low)), nulls)


def _first_known(parts: Sequence[Enclosure]) -> Enclosure:
    """Return the enclosure of COALESCE, whose value is the first operand that is not NULL."""
    made = parts[0]
    for part in parts[1:]:
        other = _hull([made.range, part.range])
        low = np.where(made.may_be_null, other.low, made.range.low)
        high = np.where(made.may_be_null, other.high, made.range.high)
        made = Enclosure(Range(low, high), made.may_be_null & part.may_be_null)
    return made


def _hull(ranges: Sequence[Range]) -> Range:
    return Range(
        np.minimum.reduce([one.low for one in ranges]),
        np.maximum.reduce([one.high for one in ranges]),
    )


def _ordered(made: Range) -> Range:
    """Return the range with infinite ends in place of NaN ends, as from infinity minus infinity."""
    low = np.where(np.isnan(made.low), -np.inf, made.low)
    return Range(low, np.where(np.isnan(made.high), np.inf, made.high))


def with_value(tight: Range, wide: Range, values: Floats) -> Range:
    """Extend the tight range to the released value, if the wide range contains the value.

    A public range may exclude a value that is all noise, such as SUM(x) / COUNT(*) with a count
    below zero. An interval that is extended to its value does not hold less often. A value outside
    the wide range was computed in another way than its interval, and stays outside.
    """
    slack = ROUNDING * np.maximum(1.0, np.abs(values))
    # comparisons with NaN give False
    is_held = (values >= wide.low - slack) & (values <= wide.high + slack)
    low = np.where(is_held, np.minimum(tight.low, values), tight.low)
    return Range(low, np.where(is_held, np.maximum(tight.high, values), tight.high))
