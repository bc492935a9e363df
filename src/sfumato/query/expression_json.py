"""Read and write expressions and conditions as JSON; the reader refuses anything unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.query.expression import (
    CURVES,
    FIELDS,
    OPERATORS,
    SIGNS,
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
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Predicate,
    Ref,
    StartsWith,
    Total,
    malformed,
    plain_text,
)

MAX_DEPTH: Final = 40
MAX_PARTS: Final = 500


def expression_json(expr: Expr) -> Json:
    """Return the expression as plain JSON."""
    match expr:
        case Ref(column=column):
            return {"is": "column", "name": column}
        case LiteralValue(constant=constant):
            return {"is": "constant", "value": constant_json(constant)}
        case Arithmetic(sign=sign, left=left, right=right):
            of = [expression_json(left), expression_json(right)]
            return {"is": "arithmetic", "sign": sign, "of": of}
        case Floor(of=of_floor):
            return {"is": "floor", "of": expression_json(of_floor)}
        case Clamp(of=of_clamp, lower=lower, upper=upper):
            return {
                "is": "clamp",
                "of": expression_json(of_clamp),
                "lower": None if lower is None else constant_json(lower),
                "upper": None if upper is None else constant_json(upper),
            }
        case Coalesce(parts=parts):
            return {"is": "coalesce", "of": [expression_json(p) for p in parts]}
        case Case(whens=whens, otherwise=otherwise):
            return {
                "is": "case",
                "of": [[predicate_json(p), expression_json(e)] for p, e in whens],
                "else": None if otherwise is None else expression_json(otherwise),
            }
        case DateTrunc(unit=unit, of=of_since):
            return {"is": "since", "unit": unit, "of": expression_json(of_since)}
        case DateField(field=field, of=of_part):
            return {"is": "part", "field": field, "of": expression_json(of_part)}
        case FunctionCall(name=name, of=of_curve):
            return {"is": "curve", "name": name, "of": expression_json(of_curve)}
        case Total(of=of_total, by=by):
            return {"is": "total", "of": expression_json(of_total), "by": list(by)}


def predicate_json(predicate: Predicate) -> Json:
    """Return the predicate as plain JSON."""
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            to = constant_json(constant)
            return {"is": "compare", "of": expression_json(of), "op": operator, "to": to}
        case Among(of=of, constants=constants):
            listed = [constant_json(c) for c in constants]
            return {"is": "among", "of": expression_json(of), "list": listed}
        case StartsWith(of=of, letters=letters):
            return {"is": "starts", "of": expression_json(of), "with": letters}
        case IsNull(of=of):
            return {"is": "null", "of": expression_json(of)}
        case Not(predicate=inner):
            return {"is": "not", "of": predicate_json(inner)}
        case All(predicates=parts):
            return {"is": "all", "of": [predicate_json(p) for p in parts]}
        case AnyOf(predicates=parts):
            return {"is": "any", "of": [predicate_json(p) for p in parts]}


def constant_json(constant: Constant) -> Json:
    """Return the constant as plain JSON."""
    return {"kind": constant.kind, "text": constant.text}


# --- reading ----------------------------------------------------------------------------------


def read_expression(shape: object, depth: int = 0) -> Expr:
    """Parse an expression from JSON, or refuse."""
    body = read_object(shape, None)
    reader = _EXPRESSIONS.get(str(body.get("is")))
    if reader is None or depth > MAX_DEPTH:
        raise malformed("an expression")
    return reader(body, depth + 1)


def read_predicate(shape: object, depth: int = 0) -> Predicate:
    """Parse a condition from JSON, or refuse."""
    body = read_object(shape, None)
    reader = _PREDICATES.get(str(body.get("is")))
    if reader is None or depth > MAX_DEPTH:
        raise malformed("a condition")
    return reader(body, depth + 1)


def read_constant_json(shape: object) -> Constant:
    """Parse a constant from JSON into its canonical spelling, or refuse."""
    body = read_object(shape, {"kind", "text"})
    text = plain_text(body.get("text"))
    match body.get("kind"):
        case "number":
            return Constant("number", str(_fraction(text)))
        case "text":
            return Constant("text", text)
        case "boolean" if text in ("true", "false"):
            return Constant("boolean", text)
        case _:
            raise malformed("a constant")


def read_object(shape: object, known: set[str] | None) -> Mapping[str, object]:
    """Return the JSON object; refuse anything else, and fields that are not in `known`."""
    if not isinstance(shape, dict) or (known is not None and not set(shape) <= known):
        raise malformed("an object of the question")
    return shape


def read_items(shape: object) -> Sequence[object]:
    """Return the JSON list; refuse anything else."""
    if not isinstance(shape, list | tuple):
        raise malformed("a list of the question")
    return shape


def _fraction(text: str) -> Fraction:
    plain = 0 < len(text) <= 80 and set(text) <= set("0123456789/-")
    try:
        number = Fraction(text) if plain else None
    except (ValueError, ZeroDivisionError):
        number = None
    if number is None:
        raise malformed("a number")
    return number


_Body = Mapping[str, object]


def _some(shape: object) -> Sequence[object]:
    items = read_items(shape)
    if not 1 <= len(items) <= MAX_PARTS:
        raise malformed("a list of the question")
    return items


def _column(body: _Body, _depth: int) -> Expr:
    read_object(body, {"is", "name"})
    return Ref(plain_text(body.get("name")))


def _literally(body: _Body, _depth: int) -> Expr:
    read_object(body, {"is", "value"})
    return LiteralValue(read_constant_json(body.get("value")))


def _arithmetic(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "sign", "of"})
    sides = read_items(body.get("of"))
    for sign in SIGNS:
        if body.get("sign") == sign and len(sides) == 2:
            left, right = (read_expression(side, depth) for side in sides)
            return Arithmetic(sign, left, right)
    raise malformed("arithmetic")


def _floor(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "of"})
    return Floor(read_expression(body.get("of"), depth))


def _clamp(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "of", "lower", "upper"})
    lower, upper = (
        None if body.get(end) is None else read_constant_json(body.get(end))
        for end in ("lower", "upper")
    )
    return Clamp(read_expression(body.get("of"), depth), lower, upper)


def _coalesce(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "of"})
    return Coalesce(tuple(read_expression(part, depth) for part in _some(body.get("of"))))


def _case(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "of", "else"})
    pairs = [read_items(pair) for pair in _some(body.get("of"))]
    if any(len(pair) != 2 for pair in pairs):
        raise malformed("a case")
    otherwise = body.get("else")
    return Case(
        tuple((read_predicate(p, depth), read_expression(e, depth)) for p, e in pairs),
        None if otherwise is None else read_expression(otherwise, depth),
    )


def _since(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "unit", "of"})
    for unit in UNITS:
        if body.get("unit") == unit:
            return DateTrunc(unit, read_expression(body.get("of"), depth))
    raise malformed("a unit of time")


def _part(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "field", "of"})
    for field in FIELDS:
        if body.get("field") == field:
            return DateField(field, read_expression(body.get("of"), depth))
    raise malformed("a field of time")


def _curve(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "name", "of"})
    for name in CURVES:
        if body.get("name") == name:
            return FunctionCall(name, read_expression(body.get("of"), depth))
    raise malformed("a function")


def _total(body: _Body, depth: int) -> Expr:
    read_object(body, {"is", "of", "by"})
    by = read_items(body.get("by", []))
    if len(by) > MAX_PARTS:
        raise malformed("a list of the question")
    return Total(read_expression(body.get("of"), depth), tuple(plain_text(name) for name in by))


def _compare(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of", "op", "to"})
    for operator in OPERATORS:
        if body.get("op") == operator:
            of = read_expression(body.get("of"), depth)
            return Compare(of, operator, read_constant_json(body.get("to")))
    raise malformed("a comparison")


def _among(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of", "list"})
    constants = tuple(read_constant_json(c) for c in _some(body.get("list")))
    return Among(read_expression(body.get("of"), depth), constants)


def _starts(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of", "with"})
    return StartsWith(read_expression(body.get("of"), depth), plain_text(body.get("with")))


def _null(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of"})
    return IsNull(read_expression(body.get("of"), depth))


def _not(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of"})
    return Not(read_predicate(body.get("of"), depth))


def _all(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of"})
    return All(tuple(read_predicate(part, depth) for part in _some(body.get("of"))))


def _any(body: _Body, depth: int) -> Predicate:
    read_object(body, {"is", "of"})
    return AnyOf(tuple(read_predicate(part, depth) for part in _some(body.get("of"))))


_EXPRESSIONS: Final[Mapping[str, Callable[[_Body, int], Expr]]] = {
    "column": _column,
    "constant": _literally,
    "arithmetic": _arithmetic,
    "floor": _floor,
    "clamp": _clamp,
    "coalesce": _coalesce,
    "case": _case,
    "since": _since,
    "part": _part,
    "curve": _curve,
    "total": _total,
}
_PREDICATES: Final[Mapping[str, Callable[[_Body, int], Predicate]]] = {
    "compare": _compare,
    "among": _among,
    "starts": _starts,
    "null": _null,
    "not": _not,
    "all": _all,
    "any": _any,
}
