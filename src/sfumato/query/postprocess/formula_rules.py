"""Rules for formulas: only released numbers of the same answer, constants and plain arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfumato.dp.refusal import Refused
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
    Expr,
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    Total,
    walk,
)
from sfumato.query.model import Aggregate, Formula, Output

# these verbs release lists or keys, not numbers
NO_NUMBERS: Final = ("top", "bounds", "first_above")
_ALLOWED: Final = (
    Ref, LiteralValue, Arithmetic, Floor, Clamp, Coalesce, Case, FunctionCall, Total,
    Compare, Among, IsNull, Not, All, AnyOf,
)  # fmt: skip


def is_number(output: Output) -> bool:
    """Check whether the output is a released number, as formulas and their operands must be."""
    if isinstance(output.of, Aggregate):
        return output.of.verb not in NO_NUMBERS
    return isinstance(output.of, Formula)


def check_formula(expr: Expr, kinds: Mapping[str, str]) -> None:
    """Refuse a formula unless it is arithmetic over released numbers.

    `kinds` maps each output name to its kind.
    """
    for part in walk(expr):
        if not isinstance(part, _ALLOWED):
            raise _outside("it contains a date or a text")
        if isinstance(part, Ref):
            _check_column(part.column, kinds)
        if any(constant.kind != "number" for constant in _constants(part)):
            raise _outside("all constants must be numbers")


def _check_column(name: str, kinds: Mapping[str, str]) -> None:
    kind = kinds.get(name)
    if kind == "number":
        return
    if kind is None:
        raise Refused(
            "unknown-column",
            f"A formula names {name!r}, which is not a number of the answer.",
            "A formula contains only aggregates. Write an aggregate of the column, such as "
            "SUM(x), or move the formula into the aggregate.",
            column=name,
        )
    raise _outside(f"{name!r} is a {kind}")


def _constants(part: Expr | Predicate) -> tuple[Constant, ...]:
    match part:
        case LiteralValue(constant=constant) | Compare(constant=constant):
            return (constant,)
        case Among(constants=constants):
            return constants
        case Clamp(lower=lower, upper=upper):
            return tuple(end for end in (lower, upper) if end is not None)
        case _:
            return ()


def _outside(why: str) -> Refused:
    return Refused(
        "not-in-language",
        f"A formula is arithmetic on the answer's own numbers: {why}.",
        "Write SUM(x) / COUNT(*), AVG(x) - AVG(y), ROUND(100.0 * COUNT(x) / COUNT(*), 1).",
    )
