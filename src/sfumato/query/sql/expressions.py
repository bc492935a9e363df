"""Parse SQL expressions and conditions: each type of syntax node has a reader of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from sqlglot import exp

from sfumato.dp.refusal import Refused
from sfumato.query.expression import (
    FIELDS,
    UNITS,
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
    IsNull,
    LiteralValue,
    Not,
    Operator,
    Predicate,
    Ref,
    Sign,
    StartsWith,
    Unit,
    rounded,
)
from sfumato.query.size_limits import check_parts
from sfumato.query.sql.columns_and_constants import (
    column_of,
    constant_of,
    ends_of,
    found_at,
    is_after,
    is_constant,
    only,
    refuse_unsupported,
)
from sfumato.query.sql.functions import OF_A_NUMBER, OfNumber, Reader
from sfumato.query.sql.hints import CONDITIONS as A_CONDITION
from sfumato.query.sql.hints import EXPRESSIONS, hint_for_call, hint_of
from sfumato.query.sql.parse import MAX_DEPTH, too_large
from sfumato.query.sql.source_positions import recorded_positions

# --- Dates in SQL: date_trunc, and the fields of a date


_UNITS: Final[Mapping[str, Unit]] = {unit: unit for unit in UNITS}
_FIELDS: Final[Mapping[str, Field]] = {
    "isodow" if field == "weekday" else field: field for field in FIELDS
}
_FIELD_CALLS: Final[Mapping[type[exp.Expr], Field]] = {
    exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month", exp.Day: "day",
    exp.DayOfMonth: "day", exp.DayOfWeekIso: "weekday", exp.Hour: "hour",
}  # fmt: skip


def _trunc(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this", "unit"})
    unit = _UNITS.get(node.args["unit"].name.casefold()) if node.args.get("unit") else None
    if unit is None:
        raise refuse_unsupported(
            node, "this unit of time is not supported", f"Use {', '.join(_UNITS)}."
        )
    return DateTrunc(unit, read(node.this))


def _extract(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this", "expression"})
    field = _FIELDS.get(str(node.this.name).casefold())
    if field is None:
        raise refuse_unsupported(
            node, "this field of time is not supported", f"Use {', '.join(_FIELDS)}."
        )
    return DateField(field, read(node.expression))


def _date_part(node: exp.Expr, read: Reader) -> Expr:
    """Read DATE_PART('month', day), or DATEPART, as a field of a date."""
    parts = node.expressions
    if node.name.casefold() not in ("date_part", "datepart") or len(parts) != 2:
        raise refuse_unsupported(node, hint_for_call(node), hint_of(node, EXPRESSIONS))
    only(node, {"this", "expressions"})
    field = _FIELDS.get(constant_of(parts[0]).text.casefold())
    if field is None:
        raise refuse_unsupported(
            node, "this field of time is not supported", f"Use {', '.join(_FIELDS)}."
        )
    return DateField(field, read(parts[1]))


def _field(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this"})
    return DateField(_FIELD_CALLS[type(node)], read(node.this))


def _date(node: exp.Expr, read: Reader) -> Expr:
    only(node, {"this"})
    return DateTrunc("day", read(node.this))


OF_A_TIME: Final[Mapping[type[exp.Expr], OfNumber]] = {
    exp.TimestampTrunc: _trunc,
    exp.DateTrunc: _trunc,
    exp.Extract: _extract,
    exp.Date: _date,
    exp.TsOrDsToDate: _date,
    exp.Anonymous: _date_part,
    **dict.fromkeys(_FIELD_CALLS, _field),
}


MAX_AMONG: Final = 500
MAX_WHENS: Final = 100
MAX_DIGITS: Final = 15  # most digits in ROUND


def expression(node: exp.Expr, depth: int = 0) -> Expr:
    """Read a syntax node as an expression, or refuse it with its position in the SQL text."""
    try:
        return _expression(node, depth)
    except Refused as found:
        refused = found_at(found, node)
    raise refused


def _expression(node: exp.Expr, depth: int) -> Expr:
    if depth > MAX_DEPTH:
        raise too_large(f"{MAX_DEPTH} levels of expressions")
    if is_constant(node):
        return LiteralValue(constant_of(node))
    reader = _READERS.get(type(node))
    if reader is None:
        raise refuse_unsupported(node, hint_for_call(node), hint_of(node, EXPRESSIONS))
    return recorded_positions(reader(node, depth + 1), node)


def predicate(node: exp.Expr, depth: int = 0) -> Predicate:
    """Read a syntax node as a condition, or refuse it with its position in the SQL text."""
    try:
        return recorded_positions(_predicate(node, depth), node)
    except Refused as found:
        refused = found_at(found, node)
    raise refused


def _predicate(node: exp.Expr, depth: int) -> Predicate:
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
        case exp.Column() | exp.Coalesce() | exp.Case() | exp.If():
            return Compare(expression(node, depth + 1), "=", Constant.of(True))
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
    return Arithmetic("-", LiteralValue(Constant.of(0)), expression(node.this, depth))


def _floor(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this"})
    return Floor(expression(node.this, depth))


def _rounded(node: exp.Expr, depth: int) -> Expr:
    """Read ROUND(x, digits) as FLOOR(x * 10^digits + 1/2) / 10^digits, so that halves go up."""
    only(node, {"this", "decimals"})
    digits = node.args.get("decimals")
    given = None if digits is None else constant_of(digits)
    is_number = given is None or given.kind == "number"
    number = given.number if given is not None and is_number else Fraction(0)
    if not is_number or number.denominator != 1 or abs(number) > MAX_DIGITS:
        raise refuse_unsupported(
            node, f"ROUND takes at most {MAX_DIGITS} digits", "Write ROUND(x, 2)."
        )
    return rounded(expression(node.this, depth), int(number))


def _bound(node: exp.Expr, depth: int) -> Expr:
    """Read LEAST(x, c) and GREATEST(x, c) as clamping; NULL stays NULL."""
    only(node, {"this", "expressions", "ignore_nulls"})
    sides = [node.this, *node.expressions]
    values = [side for side in sides if not is_constant(side)]
    bounds = [constant_of(side) for side in sides if is_constant(side)]
    if len(values) != 1 or len(bounds) != 1:
        raise refuse_unsupported(
            node, "this takes one expression and one number", "Write LEAST(GREATEST(x, 0), 100)."
        )
    of = expression(values[0], depth)
    lower, upper = (None, bounds[0]) if type(node) is exp.Least else (bounds[0], None)
    has_other = isinstance(of, Clamp) and (of.lower is None) == (of.upper is not None)
    if isinstance(of, Clamp) and has_other and (of.lower is None) != (lower is None):
        pair = of.lower or lower, of.upper or upper
        if pair[0] is not None and pair[1] is not None and not is_after(pair[0], pair[1]):
            return Clamp(of.of, *pair)
    return Clamp(of, lower, upper)


def _coalesce(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "expressions"})
    return Coalesce(tuple(expression(part, depth) for part in [node.this, *node.expressions]))


def _case(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this", "ifs", "default"})
    whens = node.args["ifs"]
    if len(whens) > MAX_WHENS:
        raise too_large(f"{MAX_WHENS} branches of a CASE")
    subject = None if node.this is None else expression(node.this, depth)
    branches = tuple(_when(subject, when, depth) for when in whens)
    made = Case(branches, _otherwise(node.args.get("default"), depth))
    if subject is not None:  # the subject of the CASE is read once, but occurs in every branch
        check_parts([made])
    return made


def _when(subject: Expr | None, when: exp.Expr, depth: int) -> tuple[Predicate, Expr]:
    only(when, {"this", "true"})
    if subject is None:
        condition = predicate(when.this, depth)
    else:
        condition = Compare(subject, "=", constant_of(when.this))
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
    check_parts([of, of])
    return Case(((Not(Compare(of, "=", constant_of(node.expression))), of),), None)


def _ceiled(node: exp.Expr, depth: int) -> Expr:
    only(node, {"this"})
    below = LiteralValue(Constant.of(0))
    return Arithmetic("-", below, Floor(Arithmetic("-", below, expression(node.this, depth))))


def _cast(node: exp.Expr, depth: int) -> Expr:
    """Read a cast: of a time to a date, of a truth value to a number, of a number to a float.

    A float is the number itself, wherever only a number is allowed. None of these casts can fail,
    so TRY_CAST has the same meaning.
    """
    only(node, {"this", "to", "safe"})
    kind, of = node.args["to"].this, node.this
    if node.args["to"].expressions:
        raise refuse_unsupported(node, "a type takes no digits here", "Write ROUND(x, 2).")
    if kind is exp.DataType.Type.DATE:
        return DateTrunc("day", expression(of, depth))
    if kind in exp.DataType.INTEGER_TYPES:
        return _one_or_zero(of, depth)
    above = _above(node)
    if kind in _FLOATS and isinstance(above, _OF_NUMBERS):
        made = expression(of, depth)  # accepts only numbers: in a comparison, + 0 refuses a text
        is_compared = isinstance(above, exp.Predicate)
        return Arithmetic("+", made, LiteralValue(Constant.of(0))) if is_compared else made
    raise refuse_unsupported(node, "casts are not supported", hint_of(node, EXPRESSIONS))


def _above(node: exp.Expr) -> exp.Expr | None:
    above = node.parent
    while type(above) is exp.Paren:
        above = above.parent
    return above


def _one_or_zero(node: exp.Expr, depth: int) -> Expr:
    """Read CAST(x AS INT) as 1 where x is true and 0 where it is false; other types are refused."""
    when = predicate(node, depth) if _is_condition(node.unnest()) else None
    when = when or Compare(expression(node, depth), "=", Constant.of(True))
    check_parts([when, when])
    one, zero = (LiteralValue(Constant.of(number)) for number in (1, 0))
    return Case(((when, one), (Not(when), zero)), None)


def _is_condition(node: exp.Expr) -> bool:
    return isinstance(node, exp.Condition) and type(node) in CONDITIONS


def _of_number(read: OfNumber) -> Callable[[exp.Expr, int], Expr]:
    return lambda node, depth: read(node, lambda of: expression(of, depth))


_ARITHMETIC: Final[Mapping[type[exp.Expr], Sign]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/",
}  # fmt: skip
_FLOATS: Final = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
_OF_NUMBERS: Final = (
    exp.Binary, exp.Neg, exp.Sum, exp.Avg, exp.Variance, exp.Stddev, exp.StddevSamp,
    exp.VariancePop, exp.StddevPop, exp.Floor, exp.Ceil, exp.Round, exp.Abs,
)  # fmt: skip
_READERS: Final[Mapping[type[exp.Expr], Callable[[exp.Expr, int], Expr]]] = {
    exp.Column: _ref,
    exp.Paren: _paren,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    exp.Neg: _negative,
    exp.Floor: _floor,
    exp.Round: _rounded,
    exp.Ceil: _ceiled,
    **{kind: _of_number(read) for kind, read in {**OF_A_NUMBER, **OF_A_TIME}.items()},
    exp.Least: _bound,
    exp.Greatest: _bound,
    exp.Coalesce: _coalesce,
    exp.Case: _case,
    exp.If: _if,
    exp.Nullif: _null_if,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}

# --- conditions -------------------------------------------------------------------------------


def _chain(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the operands of a long AND or OR, without a level of recursion for each operand."""
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
            check_parts([of, of])
            low, high = ends_of(node)
            return All((Compare(of, ">=", low), Compare(of, "<=", high)))
        case exp.In():
            return _among(node, depth)
        case exp.Like():
            return _like(node, depth)
        case exp.StartsWith():
            only(node, {"this", "expression"})
            return StartsWith(expression(node.this, depth), constant_of(node.expression).text)
        case exp.Is():
            return _is(node, depth)
        case _:
            raise refuse_unsupported(
                node, "this condition is not supported", hint_of(node, A_CONDITION)
            )


def _is(node: exp.Expr, depth: int) -> Predicate:
    only(node, {"this", "expression"})
    of = expression(node.this, depth)
    if type(node.expression) is exp.Null:
        return IsNull(of)
    if type(node.expression) is exp.Boolean:  # IS TRUE and IS FALSE are never NULL
        check_parts([of, of])
        return All((Not(IsNull(of)), Compare(of, "=", constant_of(node.expression))))
    raise refuse_unsupported(node, "IS takes NULL, NOT NULL, TRUE or FALSE")


def _compare(node: exp.Expr, operator: Operator, depth: int) -> Predicate:
    only(node, {"this", "expression"})
    left, right = node.this, node.expression
    if is_constant(left) and not is_constant(right):
        left, right, operator = right, left, _FLIPPED[operator]
    if is_constant(left):
        raise refuse_unsupported(
            node, "a condition needs a column", "Compare a column with a constant."
        )
    if is_constant(right):
        return Compare(expression(left, depth), operator, constant_of(right))
    difference = Arithmetic("-", expression(left, depth), expression(right, depth))
    return Compare(difference, operator, Constant.of(0))


def _among(node: exp.In, depth: int) -> Predicate:
    only(node, {"this", "expressions"})
    if not node.expressions:
        raise refuse_unsupported(node, "this list is empty", "Name at least one constant.")
    if len(node.expressions) > MAX_AMONG:
        raise too_large(f"{MAX_AMONG} constants in a list")
    return Among(expression(node.this, depth), tuple(constant_of(c) for c in node.expressions))


def _like(node: exp.Expr, depth: int) -> Predicate:
    only(node, {"this", "expression", "negate"})
    if node.args.get("negate"):
        return Not(_like_text(node, depth))
    return _like_text(node, depth)


def _like_text(node: exp.Expr, depth: int) -> Predicate:
    of, pattern = expression(node.this, depth), node.expression
    text = str(pattern.name) if type(pattern) is exp.Literal and pattern.is_string else "%%"
    letters = text.removesuffix("%")
    if any(sign in letters for sign in "%_\\") or (letters == "" and text != ""):
        raise refuse_unsupported(
            node, "LIKE takes a text with one % at its end", "Write LIKE 'x%'."
        )
    if letters == text:
        return Compare(of, "=", Constant.of(text))
    return StartsWith(of, Constant.of(letters).text)


_OPERATORS: Final[Mapping[type[exp.Expr], Operator]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
CONDITIONS: Final = frozenset(
    (*_OPERATORS, exp.And, exp.Or, exp.Not, exp.Between, exp.In, exp.Like, exp.StartsWith, exp.Is)
)  # node types that are read as a condition if they are a whole item of SELECT
_FLIPPED: Final[Mapping[Operator, Operator]] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def expressions(nodes: Sequence[exp.Expr]) -> tuple[Expr, ...]:
    """Read each syntax node as an expression, or refuse."""
    return tuple(expression(node) for node in nodes)
