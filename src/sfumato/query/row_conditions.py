"""What expressions and conditions say of one row that somebody has made up; never of a real one.

Twins need it: rows are made until they pass a researcher's own filters. Numbers are exact, dates
are ISO texts, and null is None, as SQL has it. Held to the engine by tests/core/twins.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.refusal import Bug
from sfumato.query.expression import (
    Constant,
    CurveName,
    Expr,
    Field,
    Part,
    Predicate,
    Sign,
    Since,
)
from sfumato.query.row_evaluation import Reading, holds_of, value_of
from sfumato.query.time_periods import first_of_period, period_of_text

Value = Fraction | str | bool | None
Row = Mapping[str, Value]


def constant_value(constant: Constant) -> Value:
    """Return what the constant is."""
    if constant.kind == "number":
        return constant.number
    return constant.text == "true" if constant.kind == "boolean" else constant.text


def value_on(expr: Expr, row: Row) -> Value:
    """Return what the expression gives on the row."""
    made: Value = value_of(expr, row, _EXACTLY)
    return made


def holds_on(predicate: Predicate, row: Row) -> bool | None:
    """Say whether the condition holds on the row; None where a null leaves it open."""
    return holds_of(predicate, row, _EXACTLY)


def _two(sign: Sign, left: Value, right: Value) -> Fraction | None:
    if not isinstance(left, Fraction) or not isinstance(right, Fraction):
        return None
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right


def _curve(name: CurveName, of: Fraction) -> Fraction:
    if name != "abs":
        raise Bug(f"{name} is not reckoned of rows")
    return abs(of)


def _of_time(expr: Since | Part, moment: Value) -> Value:
    if not isinstance(moment, str):
        return None
    if isinstance(expr, Part):
        return Fraction(_field(expr.field, moment))
    return first_of_period(expr.unit, period_of_text(expr.unit, moment))


def _field(field: Field, text: str) -> int:
    moment = datetime.fromisoformat(text)
    match field:
        case "quarter":
            return (moment.month + 2) // 3
        case "weekday":
            return moment.isoweekday()
        case _:
            return int(getattr(moment, field))


def _order(of: Expr, here: Any, constant: Constant) -> int:  # Any: checked to be of one type
    wanted: Any = _alike(of, constant)
    return int(here > wanted) - int(here < wanted)


def _alike(of: Expr, constant: Constant) -> Value:
    """Return the constant; beside a period of time, the period that it lies in."""
    if isinstance(of, Since) and constant.kind == "text":
        return first_of_period(of.unit, period_of_text(of.unit, constant.text))
    return constant_value(constant)


_EXACTLY: Final = Reading(
    number=constant_value,
    two=_two,
    curve=_curve,
    floor=lambda number: Fraction(number.__floor__()),
    of_time=_of_time,
    order=_order,
)
