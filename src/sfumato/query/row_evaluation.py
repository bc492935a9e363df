"""Evaluate expressions and conditions on one row, with SQL's NULL logic.

The row is either synthetic, with exact numbers (the end of this file), or released, with floats
(query/postprocess/released_conditions.py). The two differ in arithmetic and constants, so each
passes its own `Reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Final, assert_never

from sfumato.dp.refusal import Bug
from sfumato.query.expression import (
    All,
    Among,
    AnyOf,
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    DateField,
    DateTrunc,
    Expr,
    Field,
    Floor,
    FunctionCall,
    FunctionName,
    IsNull,
    LiteralValue,
    Not,
    Operator,
    Predicate,
    Ref,
    Sign,
    StartsWith,
    Total,
)
from sfumato.query.time_periods import first_of_period, period_of_text

# Any: the values of a row have the types of its Reading; NULL is None everywhere
Values = Mapping[str, Any]
HOLDS: Final[Mapping[Operator, tuple[int, ...]]] = {
    "=": (0,), "!=": (-1, 1), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1),
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """Functions that compute on one kind of row, synthetic or released.

    The evaluator handles NULL itself, so these functions never get one.
    """

    number: Callable[[Constant], Any]  # of a constant
    two: Callable[[Sign, Any, Any], Any]
    curve: Callable[[FunctionName, Any], Any]
    floor: Callable[[Any], Any]
    of_time: Callable[[DateTrunc | DateField, Any], Any]
    order: Callable[[Expr, Any, Constant], int]  # compares a value with a constant: -1, 0 or 1


def value_of(expr: Expr, row: Values, by: Reading) -> Any:
    """Return the value of the expression on the row; NULL is None."""
    match expr:
        case Ref(column=column):
            return row[column]
        case LiteralValue(constant=constant):
            return by.number(constant)
        case Arithmetic(sign=sign, left=left, right=right):
            a, b = value_of(left, row, by), value_of(right, row, by)
            return (
                None if a is None or b is None or (sign == "/" and b == 0) else by.two(sign, a, b)
            )
        case Coalesce(parts=parts):
            values = (value_of(part, row, by) for part in parts)
            return next((value for value in values if value is not None), None)
        case Case(whens=whens, otherwise=otherwise):
            for when, then in whens:
                if holds_of(when, row, by) is True:
                    return value_of(then, row, by)
            return None if otherwise is None else value_of(otherwise, row, by)
        case Total():
            return row[expr.called]
        case Floor() | Clamp() | DateTrunc() | DateField() | FunctionCall():
            of = value_of(expr.of, row, by)
            return None if of is None else _of_one(expr, of, by)
        case _:
            assert_never(expr)


def _of_one(
    expr: Floor | Clamp | DateTrunc | DateField | FunctionCall, of: Any, by: Reading
) -> Any:
    match expr:
        case Floor():
            return by.floor(of)
        case Clamp(lower=lower, upper=upper):
            if lower is not None and of < lower.number:
                return by.number(lower)
            return by.number(upper) if upper is not None and of > upper.number else of
        case FunctionCall(name=name):
            return by.curve(name, of)
        case DateTrunc() | DateField():
            return by.of_time(expr, of)


def holds_of(predicate: Predicate, row: Values, by: Reading) -> bool | None:
    """Check whether the condition holds on the row; None if it is NULL."""
    match predicate:
        case Not(predicate=inner):
            truth = holds_of(inner, row, by)
            return None if truth is None else not truth
        case All(predicates=parts):
            truths = [holds_of(part, row, by) for part in parts]
            return False if False in truths else None if None in truths else True
        case AnyOf(predicates=parts):
            truths = [holds_of(part, row, by) for part in parts]
            return True if True in truths else None if None in truths else False
        case IsNull(of=of):
            return value_of(of, row, by) is None
        case Compare() | Among() | StartsWith():
            value = value_of(predicate.of, row, by)
            return None if value is None else _simply(predicate, value, by)
        case _:
            assert_never(predicate)


def _simply(predicate: Compare | Among | StartsWith, value: Any, by: Reading) -> bool:
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            return by.order(of, value, constant) in HOLDS[operator]
        case Among(of=of, constants=constants):
            return any(by.order(of, value, constant) == 0 for constant in constants)
        case StartsWith(letters=letters):
            return str(value).startswith(letters)


# --- Evaluation on synthetic rows; never on real ones
#
# Synthetic data needs it: rows are generated until they pass a researcher's filters. Numbers are
# exact, dates are ISO texts, and NULL is None. tests/features/synthetic/test_schema_twin.py checks
# that the engine agrees.


Value = Fraction | str | bool | None
Row = Mapping[str, Value]


def constant_value(constant: Constant) -> Value:
    """Return the constant as the Python value that synthetic rows use."""
    if constant.kind == "number":
        return constant.number
    return constant.text == "true" if constant.kind == "boolean" else constant.text


def value_on(expr: Expr, row: Row) -> Value:
    """Return the value of the expression on a synthetic row."""
    made: Value = value_of(expr, row, _EXACTLY)
    return made


def holds_on(predicate: Predicate, row: Row) -> bool | None:
    """Check whether the condition holds on a synthetic row; None if it is NULL."""
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


def _curve(name: FunctionName, of: Fraction) -> Fraction:
    if name != "abs":
        raise Bug(f"{name} is not computed from rows")
    return abs(of)


def _of_time(expr: DateTrunc | DateField, moment: Value) -> Value:
    if not isinstance(moment, str):
        return None
    if isinstance(expr, DateField):
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
    """Return the constant's value in the form of the expression that it is compared with.

    For a truncated date, it is the first day or hour of the constant's period.
    """
    if isinstance(of, DateTrunc) and constant.kind == "text":
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
