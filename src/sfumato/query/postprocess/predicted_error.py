"""How far off a formula will be, before it is paid: by the noise and an assumed size alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sfumato.query.aggregates.aggregate import AskedAggregate, Mechanism, NoisyPart, Part
from sfumato.query.aggregates.registry import aggregate_of
from sfumato.query.expression import Total
from sfumato.query.model import Formula
from sfumato.query.plan import Plan
from sfumato.query.postprocess.formula_errors import FormulaErrors
from sfumato.query.postprocess.formulas import interval_of
from sfumato.query.postprocess.linear_forms import Linear, linear_form
from sfumato.query.postprocess.totals import Rows, totals_in


def predicted_margin(
    plan: Plan, formula: Formula, noises: Sequence[Mechanism], size: int | None
) -> float | None:
    """Return half the interval of a cell of that many people, infinite if it cannot be told.

    A sum has the same everywhere. All else is of values that are a quarter off the middle of their
    bounds, as a mean is; None where a size is needed and nobody gave one, or where it hangs on
    more than a size.
    """
    rows = {total: _public_rows(plan, total) for total in totals_in(formula.expr)}
    known = {total: found for total, found in rows.items() if found is not None}
    if len(known) < len(rows):
        return None
    of = FormulaErrors(plan, formula, _assumed(plan, noises, size or 1), known)
    form = linear_form(formula.expr, of.sums)
    is_even = isinstance(form, Linear)
    if not is_even and (size is None or not all(_is_foreseen(of, unit) for unit in of.flat.units)):
        return None
    with np.errstate(all="ignore"):  # what is not finite is unknown
        held = interval_of(of, np.full(1, np.nan))
        half = float(held.high[0] - held.low[0]) / 2
    return half if math.isfinite(half) else math.inf


def _public_rows(plan: Plan, total: Total) -> Rows | None:
    """Return which rows a total will be of; None where private keys leave that open."""
    by = {o.of for o in plan.question.outputs if o.name in total.by}
    sizes = [key.key.size for key in plan.keys if key.of not in by]
    if any(key.key.size is None for key in plan.keys):
        return None
    return Rows(np.zeros(1, dtype=np.int64), math.prod(size or 1 for size in sizes))


def _is_foreseen(of: FormulaErrors, unit: object) -> bool:
    return not isinstance(unit, str) or of.aggregates[unit].verb == "mean"


def _assumed(plan: Plan, noises: Sequence[Mechanism], size: int) -> list[NoisyPart]:
    """Return each part of one cell as it would be; only sums, counts and means are looked at."""
    values = [0.0] * len(plan.parts)
    for asked in plan.asked:
        if aggregate_of(asked.aggregate.verb).unit is None and asked.aggregate.verb != "mean":
            continue
        for place in plan.parts_of(asked.aggregate):
            values[place] = _value(asked, plan.parts[place].part, size)
    pairs = zip(values, noises, strict=True)
    return [NoisyPart(np.array([value]), noise) for value, noise in pairs]


def _value(asked: AskedAggregate, part: Part, size: int) -> float:
    tally = part.tally
    if tally.kind != "sum":
        return float(size)
    side = asked.side
    usual = Fraction(side.lower + 3 * side.upper, 4)
    each = tally.scale * usual + tally.offset
    if tally.clamp is not None:
        each = min(max(each, Fraction(tally.clamp[0])), Fraction(tally.clamp[1]))
    return float(each * size)
