"""Expressions and conditions of SQL, each node with a reader that knows all it can carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from sfumato.core.expression import (
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
    Field,
    Floor,
    IsNull,
    Literally,
    Not,
    Operator,
    Part,
    Predicate,
    Ref,
    Sign,
    Since,
    StartsWith,
    Unit,
)
from sfumato.plan.sql_leaves import column_of, constant_of, is_constant, only, outside
from sfumato.plan.sql_text import MAX_DEPTH, too_large

MAX_AMONG: Final = 500
MAX_WHENS: Final = 100
_CONDITIONS: Final = "Use =, <>, <, <=, >, >=, IN, BETWEEN, LIKE 'x%', IS NULL, AND, OR, NOT."
_EXPRESSIONS: Final = (
    "Use columns, constants, + - * /, FLOOR, LEAST, GREATEST, COALESCE, CASE, date_trunc, extract."
)


def expression(node: exp.Expr, depth: int = 0) -> Expr:
    """Return the expression, or refuse with its place in the text."""
    if depth > MAX_DEPTH:
        raise too_large(f"{MAX_DEPTH} levels of expressions")
    if is_constant(node):
        return Literally(constant_of(node))
    reader = _READERS.get(type(node))
    if reader is None:
        hint = _HINTS.get(type(node), _EXPRESSIONS)
        raise outside(node, "this expression is not answered", hint)
    return reader(node, depth + 1)


def predicate(node: exp.Expr, depth: int = 0) -> Predicate:
    """Return the condition, or refuse with its place in the text."""
    if depth > MAX_DEPTH:
        raise too_large(f"{MAX_DEPTH} levels of conditions")
    match node:
        case exp.And() | exp.Or():
            parts = tuple(predicate(part, depth + 1) for part in _chain(node, type(node)))
            return All(parts) if type(node) is exp.And else AnyOf(parts)
        case exp.Not():
            only(node, {"this"})
            return Not(predicate(node.this, depth + 1))
        case exp.Paren():
            only(node, {"this"})
            return predicate(node.this, depth + 1)
        case exp.Column():
            return Compare(Ref(column_of(node)), "=", Constant.of(True))
        case _:
            return _simple(node, depth + 1)


# --- expressions ------------------------------------------------------------------------------


def _ref(node: exp.Expr, _depth: int) -> Expr:
    return Ref(column_of(node))


def _paren(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this"})
    return expression(node.this, depth)


def _arithmetic(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "expression", "typed", "safe"})
    sign = _ARITHMETIC[type(node)]
    return Arithmetic(sign, expression(node.this, depth), expression(node.expression, depth))


def _negative(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this"})
    return Arithmetic("-", Literally(Constant.of(0)), expression(node.this, depth))


def _floor(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this"})
    return Floor(expression(node.this, depth))


def _bound(node: exp.Expr, depth: int) -> Expr:
    """Read LEAST(x, c) and GREATEST(x, c); null stays null."""
    only(node, {"this", "expressions", "ignore_nulls"})
    sides = [node.this, *node.expressions]
    values = [side for side in sides if not is_constant(side)]
    bounds = [constant_of(side) for side in sides if is_constant(side)]
    if len(values) != 1 or len(bounds) != 1:
        raise outside(
            node, "this takes one expression and one number", "Write LEAST(GREATEST(x, 0), 100)."
        )
    of = expression(values[0], depth)
    lower, upper = (None, bounds[0]) if type(node) is exp.Least else (bounds[0], None)
    has_other = isinstance(of, Clamp) and (of.lower is None) == (of.upper is not None)
    if isinstance(of, Clamp) and has_other and (of.lower is None) != (lower is None):
        pair = of.lower or lower, of.upper or upper
        if pair[0] is not None and pair[1] is not None and _is_in_order(pair[0], pair[1]):
            return Clamp(of.of, *pair)
    return Clamp(of, lower, upper)


def _is_in_order(lower: Constant, upper: Constant) -> bool:
    return lower.kind == upper.kind == "number" and lower.number <= upper.number


def _coalesce(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "expressions"})
    return Coalesce(tuple(expression(part, depth) for part in [node.this, *node.expressions]))


def _case(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "ifs", "default"})
    whens = node.args["ifs"]
    if len(whens) > MAX_WHENS:
        raise too_large(f"{MAX_WHENS} branches of a CASE")
    default = node.args.get("default")
    return Case(tuple(_when(node.this, when, depth) for when in whens), _otherwise(default, depth))


def _when(subject: exp.Expr | None, when: exp.Expr, depth: int) -> tuple[Predicate, Expr]:
    only(when, {"this", "true"})
    if subject is None:
        condition = predicate(when.this, depth)
    else:
        condition = Compare(expression(subject, depth), "=", constant_of(when.this))
    return condition, expression(when.args["true"], depth)


def _otherwise(node: exp.Expr | None, depth: int) -> Expr | None:
    return None if node is None or type(node) is exp.Null else expression(node, depth)


def _if(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "true", "false"})
    when = predicate(node.this, depth), expression(node.args["true"], depth)
    return Case((when,), _otherwise(node.args.get("false"), depth))


def _null_if(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "expression"})
    of = expression(node.this, depth)
    return Case(((Not(Compare(of, "=", constant_of(node.expression))), of),), None)


def _trunc(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "unit"})
    unit = _UNITS.get(node.args["unit"].name.casefold()) if node.args.get("unit") else None
    if unit is None:
        raise outside(node, "this unit of time is not answered", f"Use {', '.join(_UNITS)}.")
    return Since(unit, expression(node.this, depth))


def _extract(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "expression"})
    field = _FIELDS.get(str(node.this.name).casefold())
    if field is None:
        raise outside(node, "this field of time is not answered", f"Use {', '.join(_FIELDS)}.")
    return Part(field, expression(node.expression, depth))


def _field(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this"})
    return Part(_FIELD_CALLS[type(node)], expression(node.this, depth))


_ARITHMETIC: Final[Mapping[type[exp.Expr], Sign]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/",
}  # fmt: skip
_UNITS: Final[Mapping[str, Unit]] = {
    "year": "year", "quarter": "quarter", "month": "month", "week": "week", "day": "day",
    "hour": "hour",
}  # fmt: skip
_FIELDS: Final[Mapping[str, Field]] = {
    "year": "year", "quarter": "quarter", "month": "month", "day": "day", "isodow": "weekday",
    "hour": "hour",
}  # fmt: skip
_FIELD_CALLS: Final[Mapping[type[exp.Expr], Field]] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day",
    exp.DayOfMonth: "day", exp.DayOfWeekIso: "weekday", exp.Hour: "hour",
}  # fmt: skip
_READERS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr, int], Expr]]] = {
    exp.Column: _ref,
    exp.Paren: _paren,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    exp.Floor: _floor,
    exp.Least: _bound,
    exp.Greatest: _bound,
    exp.Coalesce: _coalesce,
    exp.Case: _case,
    exp.If: _if,
    exp.Nullif: _null_if,
    exp.TimestampTrunc: _trunc,
    exp.DateTrunc: _trunc,
    exp.Extract: _extract,
    **dict.fromkeys(_FIELD_CALLS, _field),
}
_HINTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.IntDiv: "Write FLOOR(a / b).",
    exp.Round: "Write FLOOR(x + 0.5).",
    exp.Abs: "Write CASE WHEN x < 0 THEN -x ELSE x END.",
    exp.Mod: "Write a - FLOOR(a / b) * b.",
    exp.Cast: "Leave the cast out: every column has the type that its card declares.",
    exp.TryCast: "Leave the cast out: every column has the type that its card declares.",
    exp.Subquery: "A sub-select stands in FROM and groups by the person.",
    exp.Window: "Windows over rows are not answered; aggregate for each person in an inner SELECT.",
    exp.DayOfWeek: "Write isodow(day): 1 is Monday.",
}


# --- conditions -------------------------------------------------------------------------------


def _chain(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the members of a long AND or OR, without going one deeper for each."""
    members: list[exp.Expr] = []
    while type(node) is kind:
        only(node, {"this", "expression"})
        members.append(node.expression)
        node = node.this
    return [node, *reversed(members)]


def _simple(node: exp.Expr, depth: int) -> Predicate:
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return _compare(node, operator, depth)
    match node:
        case exp.Between():
            only(node, {"this", "low", "high"})
            of = expression(node.this, depth)
            low, high = constant_of(node.args["low"]), constant_of(node.args["high"])
            return All((Compare(of, ">=", low), Compare(of, "<=", high)))
        case exp.In():
            return _among(node, depth)
        case exp.Like():
            return _like(node, depth)
        case exp.Is():
            return _is(node, depth)
        case _:
            raise outside(node, "this condition is not answered", _CONDITIONS)


def _is(node: exp.Expr, depth: int) -> Predicate:
    only(node, {"this", "expression"})
    of = expression(node.this, depth)
    if type(node.expression) is exp.Null:
        return IsNull(of)
    if type(node.expression) is exp.Boolean:  # true or false, and never null
        return All((Not(IsNull(of)), Compare(of, "=", constant_of(node.expression))))
    raise outside(node, "IS takes NULL, NOT NULL, TRUE or FALSE")


def _compare(node: exp.Expr, operator: Operator, depth: int) -> Predicate:
    only(node, {"this", "expression"})
    left, right = node.this, node.expression
    if is_constant(left) and not is_constant(right):
        left, right, operator = right, left, _FLIPPED[operator]
    if is_constant(left):
        raise outside(node, "a condition needs a column", "Compare a column with a constant.")
    if is_constant(right):
        return Compare(expression(left, depth), operator, constant_of(right))
    difference = Arithmetic("-", expression(left, depth), expression(right, depth))
    return Compare(difference, operator, Constant.of(0))


def _among(node: exp.In, depth: int) -> Predicate:
    only(node, {"this", "expressions"}, {"query": "IN takes a list of constants"})
    if not node.expressions:
        raise outside(node, "this list is empty", "Name at least one constant.")
    if len(node.expressions) > MAX_AMONG:
        raise too_large(f"{MAX_AMONG} constants in a list")
    return Among(expression(node.this, depth), tuple(constant_of(c) for c in node.expressions))


def _like(node: exp.Expr, depth: int) -> Predicate:
    only(node, {"this", "expression"})
    of, pattern = expression(node.this, depth), node.expression
    text = str(pattern.name) if type(pattern) is exp.Literal and pattern.is_string else "%%"
    letters = text.removesuffix("%")
    if any(sign in letters for sign in "%_\\") or (letters == "" and text != ""):
        raise outside(node, "LIKE takes a text with one % at its end", "Write LIKE 'x%'.")
    if letters == text:
        return Compare(of, "=", Constant.of(text))
    return StartsWith(of, letters)


_OPERATORS: Final[Mapping[type[exp.Expr], Operator]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_FLIPPED: Final[Mapping[Operator, Operator]] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def expressions(nodes: Sequence[exp.Expr]) -> tuple[Expr, ...]:
    """Return each of the expressions, or refuse."""
    return tuple(expression(node) for node in nodes)
