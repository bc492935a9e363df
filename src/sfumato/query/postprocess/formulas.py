"""Evaluate formulas on released values: value, standard deviation and interval.

This is post-processing. A sum of noisy partial aggregates has the exact error of its own noise. A
quotient has a Fieller-type interval within its public range. A formula of several such units gets
an enclosure. The interval of each of n units misses with 1/n of the probability, so all hold
jointly. The formula's interval contains everything that the units can give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.confidence.ratio_of_sums import is_known
from sfumato.dp.confidence.sum_of_draws import std_of_sum
from sfumato.dp.mechanisms.noise import CONFIDENCE
from sfumato.dp.refusal import Bug
from sfumato.query.aggregates.aggregate import Floats
from sfumato.query.aggregates.result_ranges import Range
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Expr,
    Floor,
    FunctionCall,
    LiteralValue,
    Ref,
    Total,
)
from sfumato.query.postprocess.formula_errors import FormulaErrors, formula_units
from sfumato.query.postprocess.interval_arithmetic import interval_of_formula, with_value
from sfumato.query.postprocess.linear_forms import Linear, Ratio, Unit, divisor_of, linear_form
from sfumato.query.postprocess.released_conditions import evaluate_released
from sfumato.query.postprocess.scalar_functions import CURVE, ScalarFunction
from sfumato.query.postprocess.totals import with_totals


def evaluate_formula(
    errors: FormulaErrors, columns: Mapping[str, Sequence[object]]
) -> tuple[list[object], list[float | None], list[object]]:
    """Evaluate a formula: the value, standard deviation and interval of each group.

    They are None where they are unknown. `columns` maps output names to released values.
    """
    expr = errors.formula.expr
    columns = with_totals(columns, errors.rows)
    names = [*sorted(errors.aggregates), *(total.called for total in errors.rows)]
    rows = zip(*(columns[name] for name in names), strict=True)
    values = [evaluate_released(expr, dict(zip(names, row, strict=True))) for row in rows]
    with np.errstate(all="ignore"):  # values that are not finite count as unknown
        held = interval_of(errors, formula_units(values, np.nan))
        std = _std(errors.flat, values)
    bars = [[low, high] for low, high in zip(held.low.tolist(), held.high.tolist(), strict=True)]
    known = [
        s if value is not None and math.isfinite(s) else None
        for value, s in zip(values, std.tolist(), strict=True)
    ]
    return values, known, list(bars)


def interval_of(of: FormulaErrors, values: Floats) -> Range:
    """Return the formula's interval; an end is infinite if nothing is known about it.

    Every group has an interval, even if its value is NULL. If only groups with favourable noise had
    one, the intervals would hold less often than claimed.
    """
    expr = of.formula.expr
    if isinstance(linear_form(expr, of.sums), Linear):
        return interval_of_formula(expr, of.wide).range
    tight, wide = (
        interval_of_formula(expr, of.tight).range,
        interval_of_formula(expr, of.wide).range,
    )
    return with_value(tight, wide, values)


# --- the standard deviation -------------------------------------------------------------------


def _std(of: FormulaErrors, values: Sequence[object]) -> Floats:
    """Return the std of the formula's noise: exact for a sum, otherwise to first order.

    It is NaN if the formula has no derivative, or if the pieces' noise is not independent.
    """
    unknown = np.full(len(values), np.nan)
    slopes = _slopes(of.formula.expr, of)
    if slopes is None:
        return unknown
    by_part: dict[int, Floats] = {}
    total = np.zeros(len(values))
    alone = [unit for unit in slopes if isinstance(unit, str)]
    for name in alone:
        deviations = formula_units(of.estimate(name).std, np.nan)
        total = total + (slopes[name] * deviations) ** 2
    if _share_parts(
        alone, [unit for unit in slopes if isinstance(unit, Linear | Ratio | Total)], of
    ):
        return unknown
    for unit, slope in slopes.items():
        if isinstance(unit, Total):
            total = total + (slope * _of_other_rows(unit, of)) ** 2
        if isinstance(unit, Linear | Ratio | Total):
            for part, weight in _weights(unit, of).items():
                by_part[part] = by_part.get(part, np.zeros(len(values))) + slope * weight
    for part, moves in by_part.items():
        total = total + (moves * of.noise(part).std()) ** 2
    return np.asarray(np.sqrt(total))


def _of_other_rows(unit: Total, of: FormulaErrors) -> Floats:
    """Return, for each group, the std of a total's noise from all other rows that it sums."""
    ((part, weight),) = of.part_of(unit).weights
    noise = of.noise(part)
    return of.rows[unit].each(lambda count: abs(float(weight)) * std_of_sum(noise, count - 1))


def _share_parts(
    alone: Sequence[str], forms: Sequence[Linear | Ratio | Total], of: FormulaErrors
) -> bool:
    """Check whether two pieces of the formula share noise in a way for which no std is known.

    They do if an aggregate with its own std and another unit use the same partial aggregate. So do
    two totals that add up the same partial aggregate.
    """
    taken: list[int] = []
    for name in alone:
        taken += dict.fromkeys(of.plan.parts_of(of.aggregates[name]))
    for form in forms:
        taken += [p for p in _parts_of(form, of) if p in taken]
    totals = [p for form in forms if isinstance(form, Total) for p in _parts_of(form, of)]
    return len(set(taken)) < len(taken) or len(set(totals)) < len(totals)


def _parts_of(form: Linear | Ratio | Total, of: FormulaErrors) -> tuple[int, ...]:
    if isinstance(form, Total):
        form = of.part_of(form)
    return form.parts if isinstance(form, Ratio) else tuple(part for part, _ in form.weights)


def _weights(unit: Linear | Ratio | Total, of: FormulaErrors) -> dict[int, Floats]:
    """Return the derivative of a unit by each partial aggregate, in each group.

    For a total, it is the derivative by the group's own partial aggregate alone.
    """
    cells = np.ones(of.cells)
    if isinstance(unit, Total):
        unit = of.part_of(unit)
    if isinstance(unit, Linear):
        return {part: float(weight) * cells for part, weight in unit.weights}
    top, bottom = of.values(unit.top), of.values(unit.bottom)
    quotient = of.quotient(unit, 1 - CONFIDENCE)
    divisor = np.where(is_known(bottom, quotient), bottom, np.nan)
    shares = zip(unit.parts, quotient.top, quotient.bottom, strict=True)
    return {part: (t - top / divisor * b) / divisor for part, t, b in shares}


def _slopes(expr: Expr, of: FormulaErrors) -> dict[Unit, Floats] | None:
    """Return the formula's derivative with respect to each unit, at the released values.

    Return None for a formula with FLOOR, clamping or CASE, which need not have a derivative.
    """
    value = _slope(expr, of)
    return None if value is None else value[1]


# the value, and its derivative with respect to each unit
_Slope = tuple[Floats, dict[Unit, Floats]]


def _slope(expr: Expr, of: FormulaErrors) -> _Slope | None:
    form = linear_form(expr, of.sums)
    if isinstance(form, Linear):
        value = of.values(form)
        return value, {} if form.is_constant else {form: np.ones(value.shape)}
    if isinstance(form, Ratio):
        value = of.values(form.top) / of.values(form.bottom)
        return value, {form: np.ones(value.shape)}
    match expr:
        case Ref(column=column):
            value = formula_units(of.estimate(column).values, np.nan)
            return value, {column: np.ones(value.shape)}
        case Arithmetic(sign=sign, left=left, right=right):
            right = divisor_of(right)
            pair = _slope(left, of), _slope(right, of)
            if pair[0] is None or pair[1] is None:
                return None
            if sign in "*/" and pair[1][1]:
                flat = _may_be_zero(right, of)
                if sign == "*":
                    flat &= _may_be_zero(left, of)
                return _both(sign, pair[0], (np.where(flat, np.nan, pair[1][0]), pair[1][1]))
            return _both(sign, pair[0], pair[1])
        case Total():
            value = of.total(expr)
            return value, {expr: np.ones(value.shape)}
        case FunctionCall(name=name, of=inner):
            made = _slope(inner, of)
            return (
                None
                if made is None
                else _bent(CURVE[name], made, interval_of_formula(inner, of.wide).range)
            )
        case Coalesce(parts=parts):
            made = _slope(parts[0], of)
            nulls = interval_of_formula(parts[0], of.wide).may_be_null
            return None if made is None else (np.where(nulls, np.nan, made[0]), made[1])
        case LiteralValue() | Floor() | Clamp() | Case():
            return None
        case _:
            raise Bug("a formula that nobody checked")


def _bent(curve: ScalarFunction, inner: _Slope, held: Range) -> _Slope:
    """Apply a function to a value with derivatives, by the chain rule.

    `inner` holds the value and its derivative by each unit. `held` is the range that contains it.
    """
    value, moves = inner
    slope = curve.slope(value, held)
    shown = [np.nan if (y := curve.value(x)) is None else y for x in value.tolist()]
    return np.array(shown), {unit: by * slope for unit, by in moves.items()}


def _may_be_zero(expr: Expr, of: FormulaErrors) -> NDArray[np.bool_]:
    """Return a mask of the groups in which a factor may be zero.

    There a first-order error would be too small, so the std is unknown.
    """
    held = interval_of_formula(expr, of.wide).range
    return np.asarray(~((held.low > 0) | (held.high < 0)))


def _both(sign: str, left: _Slope, right: _Slope) -> _Slope:
    (a, da), (b, db) = left, right
    ones = np.ones(a.shape)
    value, by_a, by_b = {
        "+": (a + b, ones, ones),
        "-": (a - b, ones, -ones),
        "*": (a * b, b, a),
        "/": (a / b, 1 / b, -a / b**2),
    }[sign]
    made = {unit: slope * by_a for unit, slope in da.items()}
    for unit, slope in db.items():
        made[unit] = made.get(unit, np.zeros(a.shape)) + slope * by_b
    return value, made
