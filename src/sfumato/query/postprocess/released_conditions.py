"""Post-processing: evaluate formulas and conditions on released values, with SQL's NULL logic.

It costs nothing. NULL stays NULL. Division by zero and numbers that are too large give NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Never

from sfumato.dp.refusal import Bug
from sfumato.query.expression import Constant, DateField, DateTrunc, Expr, Predicate, Sign
from sfumato.query.postprocess.scalar_functions import CURVE, LARGEST, Number
from sfumato.query.row_evaluation import Reading, Values, holds_of, value_of
from sfumato.vault.card.card_json import plain_number

_SIGNS: Final[Mapping[Sign, Callable[[Number, Number], Number]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def evaluate_released(expr: Expr, row: Values) -> Any:
    """Return the value of the expression on a row of released values, by output name."""
    return value_of(expr, row, _SHOWN)


def holds(predicate: Predicate, row: Values) -> bool | None:
    """Check whether the condition holds on a row of released values; None if it is NULL."""
    return holds_of(predicate, row, _SHOWN)


@lru_cache(maxsize=1024)
def _number(constant: Constant) -> Number:
    return plain_number(constant.number)


def _two(sign: Sign, left: Number, right: Number) -> Number | None:
    try:
        made = _SIGNS[sign](left, right)
    except OverflowError:
        return None
    return made if abs(made) <= LARGEST else None


def _of_time(expr: DateTrunc | DateField, _value: object) -> Never:
    raise Bug(f"a formula that nobody checked: {type(expr).__name__}")


def _order(_of: Expr, value: Any, constant: Constant) -> int:  # Any: a released JSON value
    if constant.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        number = Fraction(repr(value))  # the number as it is shown
        return (number > constant.number) - (number < constant.number)
    if constant.kind == "boolean" and isinstance(value, bool):
        wanted = constant.text == "true"
        return (value > wanted) - (value < wanted)
    if constant.kind == "text" and isinstance(value, str):
        return (value > constant.text) - (value < constant.text)
    raise Bug("a released value is not of the type that the plan promised")


_SHOWN: Final = Reading(
    number=_number,
    two=_two,
    curve=lambda name, of: CURVE[name].value(of),
    floor=math.floor,
    of_time=_of_time,
    order=_order,
)
