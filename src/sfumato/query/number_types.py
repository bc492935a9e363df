"""Types of numeric expressions: whole steps, with bounds carried through every operation.

A number that could pass 2**61 in any intermediate result is refused. So no engine can overflow, and
the claimed sensitivity is the true one (soundness rule 14).
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
    Literally,
)
from sfumato.query.typed_expression import Typed, number, whole

LARGEST: Final = 2**61  # the largest whole number in an intermediate result
FINEST: Final = Fraction(1, 10**100)  # the finest step; its inverse is the coarsest
QUOTIENT_STEPS: Final = 10**6  # at least, up to the largest quotient of two columns


def as_number(side: Typed, what: str) -> Typed:
    if not side.is_number:
        raise Refused(
            "type-mismatch",
            f"{what} takes numbers, and one of them is a {side.kind}.",
            "Use a column of type integer or number; a text or a date is compared with a constant.",
        )
    return side


def plain(side: Typed) -> Typed:
    """Return the same number with an origin of zero."""
    if side.origin == 0:
        return side
    step = common_step(side.step, side.origin)
    fine, start = scaled(replace(side, origin=Fraction(0)), step), int(side.origin / step)
    moved = Arithmetic("+", fine.physical, whole(start))
    return within_reach(
        replace(fine, physical=moved, lower=fine.lower + start, upper=fine.upper + start)
    )


def _is_constant(side: Typed) -> bool:
    return isinstance(side.physical, Literally)


def _moved(side: Typed, by: Fraction) -> Typed:
    """Return the number plus a constant, which changes only its origin."""
    return replace(side, origin=side.origin + by, keys=None, code=None, kind="number")


def _value(side: Typed) -> Fraction:
    """Return the value of a constant."""
    return side.lower * side.step + side.origin


def within_reach(made: Typed) -> Typed:
    """Return the number; refuse it if its sums could not be computed exactly."""
    if not FINEST <= made.step <= 1 / FINEST:
        raise _too_large()
    if max(abs(made.lower), abs(made.upper)) > LARGEST:
        if not made.is_bounded:
            raise Refused(
                "no-bounds",
                "A number without declared bounds cannot be reckoned with.",
                "Bound it first: LEAST(GREATEST(x, low), high).",
            )
        raise _too_large()
    return made


def _too_large() -> Refused:
    return Refused(
        "numbers-too-large",
        "The expression can grow beyond what is added up exactly.",
        "Bound it on the way: LEAST(GREATEST(x, low), high), or use coarser steps.",
    )


def _times(of: Expr, factor: int) -> Expr:
    return of if factor == 1 else Arithmetic("*", of, whole(factor))


def scaled(side: Typed, step: Fraction) -> Typed:
    """Return the same number counted in a finer step, which must divide its own."""
    factor = side.step / step
    if factor.denominator != 1:
        raise Bug("a number was scaled to a step that does not divide its own")
    by = int(factor)
    return within_reach(
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
    """Return the largest step of which all given steps are multiples."""
    below = math.lcm(*(step.denominator for step in steps))
    return Fraction(math.gcd(*(int(step * below) for step in steps)), below)


def _sum(left: Typed, right: Typed) -> Typed:
    if _is_constant(right):
        return _moved(left, _value(right))
    if _is_constant(left):
        return _moved(right, _value(left))
    left, right = plain(left), plain(right)
    step = common_step(left.step, right.step)
    a, b = scaled(left, step), scaled(right, step)
    return within_reach(
        number_between(
            Arithmetic("+", a.physical, b.physical), a.lower + b.lower, a.upper + b.upper, step,
            a, b,
        )
    )  # fmt: skip


def _difference(left: Typed, right: Typed) -> Typed:
    if _is_constant(right):
        return _moved(left, -_value(right))
    left, right = plain(left), plain(right)
    step = common_step(left.step, right.step)
    a, b = scaled(left, step), scaled(right, step)
    return within_reach(
        number_between(
            Arithmetic("-", a.physical, b.physical), a.lower - b.upper, a.upper - b.lower, step,
            a, b,
        )
    )  # fmt: skip


def _product(left: Typed, right: Typed) -> Typed:
    left, right = plain(left), plain(right)
    ends = [x * y for x in (left.lower, left.upper) for y in (right.lower, right.upper)]
    step = left.step * right.step
    physical = _physical_product(left, right)
    return within_reach(number_between(physical, min(ends), max(ends), step, left, right))


def _physical_product(left: Typed, right: Typed) -> Expr:
    if right.lower == right.upper == 1 and isinstance(right.physical, Literally):
        return left.physical
    if left.lower == left.upper == 1 and isinstance(left.physical, Literally):
        return right.physical
    return Arithmetic("*", left.physical, right.physical)


def _quotient(left: Typed, right: Typed) -> Typed:
    """Return left / right: NULL if right is zero, exact for a constant, else rounded half up."""
    if _is_constant(right):
        return _over_constant(plain(left), _value(right))
    left, right = plain(left), plain(right)
    least = min(abs(right.lower), abs(right.upper)) if right.lower * right.upper > 0 else 1
    ratio = within_reach(replace(left, step=left.step / right.step)).step
    most = Fraction(max(abs(left.lower), abs(left.upper), 1), least) * ratio
    step = Fraction(10) ** math.floor(math.log10(most / QUOTIENT_STEPS))
    up, down = (ratio / step).numerator, (ratio / step).denominator
    top = _times(left.physical, 2 * up)
    bottom = _times(right.physical, down)
    large = 2 * up * max(abs(left.lower), abs(left.upper))
    large += 2 * down * max(abs(right.lower), abs(right.upper))
    if large > LARGEST:
        within_reach(replace(left, lower=-large, upper=large))
    physical = Arithmetic("/", Arithmetic("+", top, bottom), Arithmetic("*", bottom, whole(2)))
    reach = math.ceil(most / step)
    return number_between(physical, -reach, reach, step, left, right)


def _over_constant(left: Typed, by: Fraction) -> Typed:
    if by == 0:
        raise Refused(
            "type-mismatch", "This divides by zero.", "Divide by a number other than zero."
        )
    made = replace(left, step=left.step / abs(by), keys=None, code=None, kind="number")
    if by < 0:
        turned = Arithmetic("-", whole(0), left.physical)
        made = replace(made, physical=turned, lower=-left.upper, upper=-left.lower)
    return within_reach(made)  # else a step that is divided often would be no float


def number_between(physical: Expr, lower: int, upper: int, step: Fraction, *sides: Typed) -> Typed:
    bounded = all(side.is_bounded for side in sides)
    return Typed("number", physical, lower, upper, step, is_bounded=bounded)


SIGNS: Final[dict[str, Callable[[Typed, Typed], Typed]]] = {
    "+": _sum, "-": _difference, "*": _product, "/": _quotient,
}  # fmt: skip


def floored(side: Typed) -> Typed:
    side = plain(side)
    up, down = side.step.numerator, side.step.denominator
    times = within_reach(
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


def size_of(side: Typed) -> Typed:
    """Return the absolute value; a number that can't be negative is returned unchanged.

    This keeps powers short.
    """
    side = plain(side)
    if side.lower >= 0:
        return side
    turned = Arithmetic("-", whole(0), side.physical)
    physical = Case(((Compare(side.physical, "<", number(0)), turned),), side.physical)
    ends = abs(side.lower), abs(side.upper)
    least = 0 if side.lower <= 0 <= side.upper else min(ends)
    return number_between(physical, least, max(ends), side.step, side)


def clamped(side: Typed, lower: Constant | None, upper: Constant | None) -> Typed:
    side = plain(side)
    ends = [c for c in (lower, upper) if c is not None]
    if any(c.kind != "number" for c in ends):
        raise Refused("type-mismatch", "A bound is not a number.", "Give numbers as bounds.")
    step = common_step(side.step, *(abs(c.number) for c in ends if c.number != 0))
    fine = scaled(side, step)
    low = fine.lower if lower is None else int(lower.number / step)
    high = fine.upper if upper is None else int(upper.number / step)
    if lower is None:
        low = min(low, high)
    if upper is None:
        high = max(low, high)
    if low > high:
        raise Refused("type-mismatch", "The lower bound is above the upper.", "Swap the bounds.")
    physical = Clamp(
        fine.physical,
        None if lower is None else number(low),
        None if upper is None else number(high),
    )
    return Typed(
        "number",
        physical,
        min(max(fine.lower, low), high),
        max(min(fine.upper, high), low),
        step,
        is_bounded=side.is_bounded or len(ends) == 2,
    )
