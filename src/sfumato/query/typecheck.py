"""Type checking: the type of an expression on a card, with its public bounds, step and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Bug, Refused
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    DateField,
    DateTrunc,
    Expr,
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    Total,
    Unit,
)
from sfumato.query.number_types import (
    SIGNS,
    absolute,
    as_number,
    clamped,
    common_step,
    floored,
    number_between,
    scaled,
    with_zero_origin,
)
from sfumato.query.time_periods import period_of_day
from sfumato.query.typed_expression import ExpressionType, Scope, number, whole

FIELDS_BETWEEN: Final = {
    "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "weekday": (1, 7), "hour": (0, 23),
}  # fmt: skip


def typecheck(expr: Expr, scope: Scope) -> ExpressionType:
    """Return the type of an expression over rows, with its public bounds; or refuse."""
    match expr:
        case Ref(column=column):
            return scope.find(column)
        case LiteralValue(constant=constant):
            return _literal(constant)
        case Arithmetic(sign=sign, left=left, right=right):
            sides = typecheck(left, scope), typecheck(right, scope)
            what = "- (or comparing two columns)" if sign == "-" else sign
            return SIGNS[sign](*(as_number(side, what) for side in sides))
        case Floor(of=of):
            return floored(as_number(typecheck(of, scope), "FLOOR"))
        case Clamp(of=of, lower=lower, upper=upper):
            return clamped(as_number(typecheck(of, scope), "LEAST and GREATEST"), lower, upper)
        case Coalesce(parts=parts):
            return _coalesce([typecheck(part, scope) for part in parts])
        case Case(whens=whens, otherwise=otherwise):
            conditions = [scope.condition(p) for p, _ in whens]
            values = [typecheck(e, scope) for _, e in whens]
            return _case(
                conditions, values, None if otherwise is None else typecheck(otherwise, scope)
            )
        case DateTrunc(unit=unit, of=of):
            return _since(unit, typecheck(of, scope))
        case DateField(field=field, of=of):
            return _part(expr, field, typecheck(of, scope))
        case FunctionCall(name="abs", of=of):
            return absolute(as_number(typecheck(of, scope), "ABS"))
        case FunctionCall(name=name):
            raise not_of_rows(name.upper())
        case Total():
            raise not_of_rows("A total over the answer's rows")


def typecheck_plain(of: Expr, scope: Scope) -> ExpressionType:
    """Return the type of the expression; a number's constant offset (`origin`) becomes zero."""
    side = typecheck(of, scope)
    return with_zero_origin(side) if side.is_number else side


def not_of_rows(what: str) -> Refused:
    """Return the refusal of a function that takes released numbers but was applied to rows."""
    return Refused(
        "not-in-language",
        f"{what} takes numbers of the answer, not rows, because rows are added up exactly.",
        "Apply it to an aggregate, as in SQRT(AVG(x)), or group rows by bins or CASE.",
    )


def _literal(constant: Constant) -> ExpressionType:
    if constant.kind == "number":
        step = abs(constant.number) or Fraction(1)
        units = int(constant.number / step)
        return ExpressionType("number", whole(units), units, units, step, is_bounded=True)
    if constant.kind == "boolean":
        keys = (Constant.of(False), Constant.of(True))
        code = whole(int(constant.text == "true"))
        return ExpressionType("boolean", LiteralValue(constant), keys=keys, code=code)
    return ExpressionType("text", LiteralValue(constant), keys=(constant,), code=whole(0))


# --- CASE and COALESCE -------------------------------------------------------------------------


def _coalesce(parts: Sequence[ExpressionType]) -> ExpressionType:
    if all(part.is_number for part in parts):
        return _united(_in_step(parts), lambda several: Coalesce(tuple(several)))
    _same_kind(parts)
    keys = _united_keys(parts)
    physical = Coalesce(tuple(part.physical for part in parts))
    if keys is None:
        return ExpressionType(parts[0].kind, physical)
    whens = [(_is_there(part), _code_in(part, keys)) for part in parts[:-1]]
    code: Expr = Case(tuple(whens), _code_in(parts[-1], keys))
    return ExpressionType(parts[0].kind, physical, keys=keys, code=code)


def _is_there(part: ExpressionType) -> Predicate:
    return Not(IsNull(part.physical))


def _case(
    conditions: Sequence[Predicate],
    values: Sequence[ExpressionType],
    otherwise: ExpressionType | None,
) -> ExpressionType:
    every = [*values] if otherwise is None else [*values, otherwise]

    def chosen(several: Sequence[Expr]) -> Expr:
        pairs = tuple(zip(conditions, several[: len(conditions)], strict=True))
        return Case(pairs, several[-1] if otherwise is not None else None)

    if all(value.is_number for value in every):
        return _united(_in_step(every), chosen)
    _same_kind(every)
    keys = _united_keys(every)
    physical = chosen([value.physical for value in every])
    if keys is None:
        return ExpressionType(every[0].kind, physical)
    code = chosen([_code_in(value, keys) for value in every])
    return ExpressionType(every[0].kind, physical, keys=keys, code=code)


def _in_step(parts: Sequence[ExpressionType]) -> list[ExpressionType]:
    parts = [with_zero_origin(part) for part in parts]
    step = common_step(*(part.step for part in parts))
    return [scaled(part, step) for part in parts]


def _united(
    parts: Sequence[ExpressionType], made: Callable[[Sequence[Expr]], Expr]
) -> ExpressionType:
    physical = made([part.physical for part in parts])
    lower, upper = min(p.lower for p in parts), max(p.upper for p in parts)
    return number_between(physical, lower, upper, parts[0].step, *parts)


def _same_kind(parts: Sequence[ExpressionType]) -> None:
    if len({part.kind for part in parts}) > 1 or any(part.unit for part in parts):
        raise Refused(
            "type-mismatch",
            "The branches or arguments of one expression have different types.",
            "Use values of one type, for example only numbers.",
        )


def _united_keys(parts: Sequence[ExpressionType]) -> tuple[Constant, ...] | None:
    if any(part.keys is None for part in parts):
        return None
    return tuple(dict.fromkeys(key for part in parts for key in part.keys or ()))


def _code_in(part: ExpressionType, keys: Sequence[Constant]) -> Expr:
    """Return an operand's key index as an expression, renumbered for a longer list of keys.

    CASE and COALESCE merge the key lists of their operands into one list.
    """
    if part.code is None or part.keys is None:
        raise Bug("a finite type without codes")
    at = {key: place for place, key in enumerate(keys)}
    places = [at[key] for key in part.keys]
    if places == list(range(len(places))):
        return part.code
    if isinstance(part.code, LiteralValue):
        return whole(places[int(part.code.constant.number)])
    return Case(
        tuple((Compare(part.code, "=", number(i)), whole(p)) for i, p in enumerate(places)), None
    )


# --- time --------------------------------------------------------------------------------------


def _since(unit: Unit, of: ExpressionType) -> ExpressionType:
    if of.kind not in ("date", "timestamp") or of.unit is not None:
        raise Refused(
            "type-mismatch",
            f"A {unit} is part of a date, and this is a {of.kind}.",
            "Use a column of type date or timestamp.",
        )
    if unit == "hour" and of.kind == "date":
        raise Refused("type-mismatch", "A date has no hours.", "Use day, week, month or year.")
    physical = DateTrunc(unit, of.physical)
    made = ExpressionType(of.kind, physical, unit=unit)
    if not of.is_bounded:
        return made
    low, high = period_of_day(unit, of.lower), period_of_day(unit, of.upper)
    return replace(made, lower=low, upper=high + (23 if unit == "hour" else 0), is_bounded=True)


def _part(expr: Expr, field: str, of: ExpressionType) -> ExpressionType:
    if of.kind not in ("date", "timestamp") or of.unit is not None:
        raise Refused(
            "type-mismatch",
            f"A {field} is part of a date, and this is a {of.kind}.",
            "Use a column of type date or timestamp.",
        )
    if field == "hour" and of.kind == "date":
        raise Refused("type-mismatch", "A date has no hours.", "Use day, month or year.")
    if not isinstance(expr, DateField):
        raise Bug("a field of time that is none")
    physical = DateField(expr.field, of.physical)
    if field == "year":
        return _year(physical, of)
    low, high = FIELDS_BETWEEN[field]
    return ExpressionType("integer", physical, low, high, is_bounded=True)


def _year(physical: Expr, of: ExpressionType) -> ExpressionType:
    low, high = 1, 9999
    if of.is_bounded:
        low, high = (period_of_day("year", day) + 1970 for day in (of.lower, of.upper))
    clamped = Clamp(physical, number(low), number(high))
    return ExpressionType("integer", clamped, low, high, is_bounded=of.is_bounded)
