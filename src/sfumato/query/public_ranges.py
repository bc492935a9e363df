"""Public ranges of sums and quotients: bounds that hold for all rows within their own bounds.

A released sum adds up rows, and the card bounds what one row adds. A quotient of two such sums is
between the least and the largest quotient of one row, whatever the noise. This is the mediant
inequality: sum t / sum b is a mean of the t / b, weighted by the b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import Final

from sfumato.dp.refusal import Bug
from sfumato.query.plan import Plan
from sfumato.query.postprocess.linear_forms import Form, Linear

Gives = Mapping[int, Fraction]  # index of a part -> what one row, or one person, adds to it
EVERYTHING: Final = (-math.inf, math.inf)
_PER_ROW: Final = ("rows", "values", "sum")


def public_range(form: Form, plan: Plan) -> tuple[float, float]:
    """Return the public range of a sum or quotient over all rows; an end may be infinite."""
    if isinstance(form, Linear):
        return _of_sum(form, plan)
    return _of_quotient(form.top, form.bottom, plan)


def least_positive(form: Linear) -> Fraction | None:
    """Return the least positive value of a weighted sum of whole numbers; None for a constant."""
    if form.is_constant:
        return None
    weights = [weight for _, weight in form.weights]
    below = math.lcm(*(weight.denominator for weight in weights))
    grid = Fraction(math.gcd(*(int(weight * below) for weight in weights)), below)
    return form.constant % grid or grid


def _of_sum(form: Linear, plan: Plan) -> tuple[float, float]:
    given = [
        sum((weight * one.get(part, 0) for part, weight in form.weights), Fraction(0))
        for one in _gives(plan, [part for part, _ in form.weights])
    ]
    low = float(form.constant) if min(given) >= 0 else -math.inf
    high = float(form.constant) if max(given) <= 0 else math.inf
    return low, high


def _of_quotient(top: Linear, bottom: Linear, plan: Plan) -> tuple[float, float]:
    parts = sorted({part for part, _ in (*top.weights, *bottom.weights)})
    above, below = dict(top.weights), dict(bottom.weights)
    pairs = [
        (
            sum((above.get(part, 0) * by for part, by in one.items()), Fraction(0)),
            sum((below.get(part, 0) * by for part, by in one.items()), Fraction(0)),
        )
        for one in _gives(plan, parts)
    ]
    pairs.append((top.constant, bottom.constant))
    if all(b <= 0 for _, b in pairs):
        pairs = [(-t, -b) for t, b in pairs]
    if any(b < 0 for _, b in pairs):
        return EVERYTHING
    known = [t / b for t, b in pairs if b]
    loose = [t for t, b in pairs if not b]
    low = -math.inf if any(t < 0 for t in loose) else float(min(known, default=-math.inf))
    high = math.inf if any(t > 0 for t in loose) else float(max(known, default=math.inf))
    return low, high


def _gives(plan: Plan, parts: Iterable[int]) -> list[Gives]:
    """Return the extreme amounts that one row can add to the partial aggregates.

    Each entry is one combination of lowest and highest amounts. Partial aggregates that are counted
    or clamped per person have entries of their own.
    """
    apart: list[Gives] = []
    choices: dict[object, list[dict[int, Fraction]]] = {}
    always: dict[int, Fraction] = {}
    for place in parts:
        tally = plan.parts[place].part.tally
        if tally.kind == "rows":
            always[place] = Fraction(1)
        elif tally.kind in _PER_ROW and tally.clamp is None:
            _null, *known = choices.setdefault(tally.value, [{}, {}, {}])  # lowest and highest
            for one, bound in zip(known, _bounds(plan, place), strict=True):
                one[place] = bound
        else:
            clamps = (1, 1) if tally.clamp is None else tally.clamp
            apart += [{place: Fraction(end)} for end in clamps]
    rows = [
        {**always, **{part: by for one in taken for part, by in one.items()}}
        for taken in product(*choices.values())
    ]
    return [*apart, *rows]


def _bounds(plan: Plan, place: int) -> tuple[Fraction, Fraction]:
    """Return the smallest and the largest amount that a row adds to the partial aggregate.

    A row without a value (NULL) is not considered.
    """
    tally = plan.parts[place].part.tally
    if tally.kind == "values":
        return Fraction(1), Fraction(1)
    sides = (side for asked in plan.asked for side in asked.operands)
    side = next((side for side in sides if side.physical == tally.value), None)
    if side is None:
        raise Bug("a sum of what nobody asked")
    ends = tally.scale * side.lower + tally.offset, tally.scale * side.upper + tally.offset
    return Fraction(min(ends)), Fraction(max(ends))
