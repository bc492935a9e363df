"""Types of numeric expressions: whole steps, with bounds carried through every operation.

A number that could exceed 2**61 in any intermediate result is refused. So no engine can overflow,
and the claimed sensitivity is the true one (soundness rule 14).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Bug, Refused
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Compare,
    Constant,
    Expr,
    LiteralValue,
)
from sfumato.query.typed_expression import ExpressionType, number, whole

LARGEST: Final = 2**61  # the largest whole number in an intermediate result
FINEST: Final = Fraction(1, 10**100)  # the finest step; its inverse is the coarsest step
# least number of steps of a quotient, up to the largest quotient of two columns
QUOTIENT_STEPS: Final = 10**6


def as_number(side: ExpressionType, what: str) -> ExpressionType:
    if not side.is_number:
        raise Refused(
            "type-mismatch",
            f"{what} takes numbers, and one of its arguments is a {side.kind}.",
            "Use a column of type integer or number. A text or a date can be compared with a "
            "constant.",
        )
    return side


def with_zero_origin(side: ExpressionType) -> ExpressionType:
    """Return the same number without an origin: the constant offset becomes part of its steps."""
    if side.origin == 0:
        return side
    step = common_step(side.step, side.origin)
    fine, start = scaled(replace(side, origin=Fraction(0)), step), int(side.origin / step)
    moved = Arithmetic("+", fine.physical, whole(start))
    return check_exact(
        replace(fine, physical=moved, lower=fine.lower + start, upper=fine.upper + start)
    )


def _is_constant(side: ExpressionType) -> bool:
    return isinstance(side.physical, LiteralValue)


def _moved(side: ExpressionType, by: Fraction) -> ExpressionType:
    """Return the type of the number plus a constant; only the offset (`origin`) changes."""
    return replace(side, origin=side.origin + by, keys=None, code=None, kind="number")


def _value(side: ExpressionType) -> Fraction:
    """Return the number that a constant expression has in every row, from its type."""
    return side.lower * side.step + side.origin


def check_exact(made: ExpressionType) -> ExpressionType:
    """Return the type unchanged; refuse it if its sums could not be computed exactly."""
    if not FINEST <= made.step <= 1 / FINEST:
        raise _too_large()
    if max(abs(made.lower), abs(made.upper)) > LARGEST:
        if not made.is_bounded:
            raise Refused(
                "no-bounds",
                "A number without declared bounds cannot be used in arithmetic.",
                "Bound it first: LEAST(GREATEST(x, low), high).",
            )
        raise _too_large()
    return made


def _too_large() -> Refused:
    return Refused(
        "numbers-too-large",
        "The expression can have values that are too large for an exact sum.",
        "Bound it first: LEAST(GREATEST(x, low), high), or use coarser steps.",
    )


def _times(of: Expr, factor: int) -> Expr:
    return of if factor == 1 else Arithmetic("*", of, whole(factor))


def scaled(side: ExpressionType, step: Fraction) -> ExpressionType:
    """Return the same number counted in a finer step, which must divide its own step."""
    factor = side.step / step
    if factor.denominator != 1:
        raise Bug("a number was scaled to a step that does not divide its own")
    by = int(factor)
    return check_exact(
        replace(
            side,
            physical=_times(side.physical, by),
            lower=side.lower * by,
            upper=side.upper * by,
            step=step,
            keys=None,
            code=None,
        )
    )


def common_step(*steps: Fraction) -> Fraction:
    """Return the largest step of which all given steps are whole multiples."""
    below = math.lcm(*(step.denominator for step in steps))
    return Fraction(math.gcd(*(int(step * below) for step in steps)), below)


def _sum(left: ExpressionType, right: ExpressionType) -> ExpressionType:
    if _is_constant(right):
        return _moved(left, _value(right))
    if _is_constant(left):
        return _moved(right, _value(left))
    left, right = with_zero_origin(left), with_zero_origin(right)
    step = common_step(left.step, right.step)
    a, b = scaled(left, step), scaled(right, step)
    return check_exact(
        number_between(
            Arithmetic("+", a.physical, b.physical), a.lower + b.lower, a.upper + b.upper, step,
            a, b,
        )
    )  # fmt: skip


def _difference(left: ExpressionType, right: ExpressionType) -> ExpressionType:
    if _is_constant(right):
        return _moved(left, -_value(right))
    left, right = with_zero_origin(left), with_zero_origin(right)
    step = common_step(left.step, right.step)
    a, b = scaled(left, step), scaled(right, step)
    return check_exact(
        number_between(
            Arithmetic("-", a.physical, b.physical), a.lower - b.upper, a.upper - b.lower, step,
            a, b,
        )
    )  # fmt: skip


def _product(left: ExpressionType, right: ExpressionType) -> ExpressionType:
    left, right = with_zero_origin(left), with_zero_origin(right)
    ends = [x * y for x in (left.lower, left.upper) for y in (right.lower, right.upper)]
    step = left.step * right.step
    physical = _physical_product(left, right)
    return check_exact(number_between(physical, min(ends), max(ends), step, left, right))


def _physical_product(left: ExpressionType, right: ExpressionType) -> Expr:
    if right.lower == right.upper == 1 and isinstance(right.physical, LiteralValue):
        return left.physical
    if left.lower == left.upper == 1 and isinstance(left.physical, LiteralValue):
        return right.physical
    return Arithmetic("*", left.physical, right.physical)


def _quotient(left: ExpressionType, right: ExpressionType) -> ExpressionType:
    """Return the type of left / right.

    It is NULL if right is zero, exact for a constant divisor, and otherwise rounded half up.
    """
    if _is_constant(right):
        return _over_constant(with_zero_origin(left), _value(right))
    left, right = with_zero_origin(left), with_zero_origin(right)
    least = min(abs(right.lower), abs(right.upper)) if right.lower * right.upper > 0 else 1
    ratio = check_exact(replace(left, step=left.step / right.step)).step
    most = Fraction(max(abs(left.lower), abs(left.upper), 1), least) * ratio
    step = Fraction(10) ** math.floor(math.log10(most / QUOTIENT_STEPS))
    up, down = (ratio / step).numerator, (ratio / step).denominator
    top = _times(left.physical, 2 * up)
    bottom = _times(right.physical, down)
    large = 2 * up * max(abs(left.lower), abs(left.upper))
    large += 2 * down * max(abs(right.lower), abs(right.upper))
    if large > LARGEST:
        check_exact(replace(left, lower=-large, upper=large))
    physical = Arithmetic("/", Arithmetic("+", top, bottom), Arithmetic("*", bottom, whole(2)))
    reach = math.ceil(most / step)
    return number_between(physical, -reach, reach, step, left, right)


def _over_constant(left: ExpressionType, by: Fraction) -> ExpressionType:
    if by == 0:
        raise Refused(
            "type-mismatch",
            "The question divides by the constant zero.",
            "Divide by a number other than zero.",
        )
    made = replace(left, step=left.step / abs(by), keys=None, code=None, kind="number")
    if by < 0:
        turned = Arithmetic("-", whole(0), left.physical)
        made = replace(made, physical=turned, lower=-left.upper, upper=-left.lower)
    return check_exact(made)  # otherwise a step that is divided often would not fit in a float


def number_between(
    physical: Expr, lower: int, upper: int, step: Fraction, *sides: ExpressionType
) -> ExpressionType:
    bounded = all(side.is_bounded for side in sides)
    return ExpressionType("number", physical, lower, upper, step, is_bounded=bounded)


SIGNS: Final[dict[str, Callable[[ExpressionType, ExpressionType], ExpressionType]]] = {
    "+": _sum, "-": _difference, "*": _product, "/": _quotient,
}  # fmt: skip


def floored(side: ExpressionType) -> ExpressionType:
    side = with_zero_origin(side)
    up, down = side.step.numerator, side.step.denominator
    times = check_exact(
        replace(side, lower=side.lower * up, upper=side.upper * up, step=side.step / up)
    )
    physical = _times(side.physical, up)
    if down == 1:
        return replace(times, physical=physical, step=Fraction(1), keys=None, code=None)
    return number_between(
        Arithmetic("/", physical, whole(down)),
        times.lower // down,
        times.upper // down,
        Fraction(1),
        side,
    )


def absolute(side: ExpressionType) -> ExpressionType:
    """Return the type of the absolute value; a number that can't be negative stays unchanged.

    An unchanged number keeps the expressions of even powers short.
    """
    side = with_zero_origin(side)
    if side.lower >= 0:
        return side
    turned = Arithmetic("-", whole(0), side.physical)
    physical = Case(((Compare(side.physical, "<", number(0)), turned),), side.physical)
    ends = abs(side.lower), abs(side.upper)
    least = 0 if side.lower <= 0 <= side.upper else min(ends)
    return number_between(physical, least, max(ends), side.step, side)


def clamped(side: ExpressionType, lower: Constant | None, upper: Constant | None) -> ExpressionType:
    side = with_zero_origin(side)
    ends = [c for c in (lower, upper) if c is not None]
    if any(c.kind != "number" for c in ends):
        raise Refused(
            "type-mismatch",
            "A bound in LEAST(GREATEST(x, low), high) is not a number.",
            "Write numbers, as in LEAST(GREATEST(x, 0), 100).",
        )
    step = common_step(side.step, *(abs(c.number) for c in ends if c.number != 0))
    fine = scaled(side, step)
    low = fine.lower if lower is None else int(lower.number / step)
    high = fine.upper if upper is None else int(upper.number / step)
    if lower is None:
        low = min(low, high)
    if upper is None:
        high = max(low, high)
    if low > high:
        raise Refused(
            "type-mismatch",
            "The lower bound in LEAST(GREATEST(x, low), high) is above the upper bound.",
            "Swap the bounds.",
        )
    physical = Clamp(
        fine.physical,
        None if lower is None else number(low),
        None if upper is None else number(high),
    )
    return ExpressionType(
        "number",
        physical,
        min(max(fine.lower, low), high),
        max(min(fine.upper, high), low),
        step,
        is_bounded=side.is_bounded or len(ends) == 2,
    )
