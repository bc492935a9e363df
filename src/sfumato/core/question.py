"""Frozen questions: the closed language that everything else speaks.

SQL text, the Python builder and JSON all become one of these values, and the text is thrown away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Final, Literal

from sfumato.core.refusal import Refused

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
OPERATORS: Final[tuple[Operator, ...]] = ("=", "!=", "<", "<=", ">", ">=")
Kind = Literal["number", "text", "boolean"]
Json = dict[str, object]


@dataclass(frozen=True)
class Constant:
    """A constant in canonical spelling: a fraction, a text (dates too), or true and false."""

    kind: Kind
    text: str

    @staticmethod
    def of(value: object) -> Constant:
        """Return the constant for a plain Python value."""
        if isinstance(value, bool):
            return Constant("boolean", "true" if value else "false")
        if isinstance(value, float):
            value = Decimal(float.__repr__(value))  # the number that was typed
        if isinstance(value, Decimal) and not value.is_finite():
            raise _malformed("a number")
        if isinstance(value, Decimal | Rational):
            return Constant("number", str(Fraction(value)))
        return Constant("text", _text(str(value)))

    @property
    def number(self) -> Fraction:
        """Return the exact number."""
        return Fraction(self.text)


@dataclass(frozen=True)
class Compare:
    """A column against a constant."""

    column: str
    operator: Operator
    constant: Constant


@dataclass(frozen=True)
class Among:
    """A column equal to one of the constants."""

    column: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class IsNull:
    """A column without a value."""

    column: str


@dataclass(frozen=True)
class Not:
    """The predicate does not hold (null stays null, as in SQL)."""

    predicate: Predicate


@dataclass(frozen=True)
class All:
    """Every predicate holds."""

    predicates: tuple[Predicate, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one predicate holds."""

    predicates: tuple[Predicate, ...]


Predicate = Compare | Among | IsNull | Not | All | AnyOf

Verb = Literal["count", "count_values", "count_people", "sum", "mean"]
VERBS: Final[tuple[Verb, ...]] = ("count", "count_values", "count_people", "sum", "mean")


@dataclass(frozen=True, order=True)
class Aggregate:
    """One verb over one column; a count of rows or people has none."""

    verb: Verb
    column: str = ""


@dataclass(frozen=True)
class Output:
    """One column of the answer: a key of the grouping, or an aggregate, under its name."""

    name: str
    of: Aggregate | str


@dataclass(frozen=True)
class Question:
    """What is asked of one data set."""

    data_set: str
    outputs: tuple[Output, ...]
    where: Predicate | None = None
    group_by: tuple[str, ...] = ()
    max_groups: int | None = None
    max_rows: int | None = None

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """Return the distinct aggregates in canonical order, whatever they are called."""
        return tuple(sorted({o.of for o in self.outputs if isinstance(o.of, Aggregate)}))


def canonical(predicate: Predicate) -> Predicate:
    """Return the predicate flattened, sorted and without doubles; it means the same."""
    match predicate:
        case Among(column=column, constants=constants):
            return Among(column, tuple(sorted(set(constants), key=lambda c: (c.kind, c.text))))
        case Not(predicate=inner):
            made = canonical(inner)
            return made.predicate if isinstance(made, Not) else Not(made)
        case All(predicates=parts):
            return _joined(All, parts)
        case AnyOf(predicates=parts):
            return _joined(AnyOf, parts)
        case _:
            return predicate


def _joined(kind: type[All] | type[AnyOf], parts: Sequence[Predicate]) -> Predicate:
    flat: dict[str, Predicate] = {}
    for part in map(canonical, parts):
        inner = part.predicates if isinstance(part, kind) else (part,)
        flat.update({spelled(predicate_json(p)): p for p in inner})
    ordered = tuple(flat[key] for key in sorted(flat))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def spelled(value: object) -> str:
    """Return the one JSON spelling of a value; what is hashed and stored."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


# --- as JSON, and back ------------------------------------------------------------------------


def predicate_json(predicate: Predicate) -> Json:
    """Return the predicate as plain JSON."""
    match predicate:
        case Compare(column=column, operator=operator, constant=constant):
            return {"is": "compare", "column": column, "op": operator, "to": _constant(constant)}
        case Among(column=column, constants=constants):
            return {"is": "among", "column": column, "of": [_constant(c) for c in constants]}
        case IsNull(column=column):
            return {"is": "null", "column": column}
        case Not(predicate=inner):
            return {"is": "not", "of": predicate_json(inner)}
        case All(predicates=parts):
            return {"is": "all", "of": [predicate_json(p) for p in parts]}
        case AnyOf(predicates=parts):
            return {"is": "any", "of": [predicate_json(p) for p in parts]}


def question_json(question: Question) -> Json:
    """Return the question as plain JSON."""
    return {
        "data_set": question.data_set,
        "outputs": [_output_json(output) for output in question.outputs],
        "where": None if question.where is None else predicate_json(question.where),
        "group_by": list(question.group_by),
        "max_groups": question.max_groups,
        "max_rows": question.max_rows,
    }


def _constant(constant: Constant) -> Json:
    return {"kind": constant.kind, "text": constant.text}


def _output_json(output: Output) -> Json:
    if isinstance(output.of, Aggregate):
        return {"name": output.name, "verb": output.of.verb, "column": output.of.column}
    return {"name": output.name, "key": output.of}


def read_question(shape: object) -> Question:
    """Return the question that the JSON plainly spells, or refuse; nothing unknown passes."""
    body = _object(shape, {"data_set", "outputs", "where", "group_by", "max_groups", "max_rows"})
    where = body.get("where")
    return Question(
        data_set=_text(body.get("data_set")),
        outputs=tuple(_read_output(o) for o in _items(body.get("outputs"))),
        where=None if where is None else _read_predicate(where, depth=0),
        group_by=tuple(_text(c) for c in _items(body.get("group_by", []))),
        max_groups=_read_bound(body.get("max_groups")),
        max_rows=_read_bound(body.get("max_rows")),
    )


def _read_output(shape: object) -> Output:
    body = _object(shape, {"name", "verb", "column", "key"})
    if "key" in body:
        return Output(_text(body.get("name")), _text(body["key"]))
    for verb in VERBS:
        if body.get("verb") == verb:
            return Output(_text(body.get("name")), Aggregate(verb, _text(body.get("column", ""))))
    raise _malformed("an aggregate")


MAX_DEPTH: Final = 20
MAX_CONSTANTS: Final = 500


def _read_predicate(shape: object, depth: int) -> Predicate:
    body = _object(shape, {"is", "column", "op", "to", "of"})
    reader = _READERS.get(str(body.get("is")))
    if reader is None or depth > MAX_DEPTH:
        raise _malformed("a condition")
    return reader(body, depth + 1)


def _read_compare(body: Mapping[str, object], _depth: int) -> Predicate:
    for operator in OPERATORS:
        if body.get("op") == operator:
            return Compare(_text(body.get("column")), operator, _read_constant(body.get("to")))
    raise _malformed("a comparison")


def _read_among(body: Mapping[str, object], _depth: int) -> Predicate:
    constants = tuple(_read_constant(c) for c in _items(body.get("of")))
    if not 1 <= len(constants) <= MAX_CONSTANTS:
        raise _malformed("a list of constants")
    return Among(_text(body.get("column")), constants)


def _read_null(body: Mapping[str, object], _depth: int) -> Predicate:
    return IsNull(_text(body.get("column")))


def _read_not(body: Mapping[str, object], depth: int) -> Predicate:
    return Not(_read_predicate(body.get("of"), depth))


def _read_all(body: Mapping[str, object], depth: int) -> Predicate:
    return All(_read_several(body, depth))


def _read_any(body: Mapping[str, object], depth: int) -> Predicate:
    return AnyOf(_read_several(body, depth))


def _read_several(body: Mapping[str, object], depth: int) -> tuple[Predicate, ...]:
    parts = tuple(_read_predicate(p, depth) for p in _items(body.get("of")))
    if not 1 <= len(parts) <= MAX_CONSTANTS:
        raise _malformed("a list of conditions")
    return parts


_READERS: Final[Mapping[str, Callable[[Mapping[str, object], int], Predicate]]] = {
    "compare": _read_compare,
    "among": _read_among,
    "null": _read_null,
    "not": _read_not,
    "all": _read_all,
    "any": _read_any,
}


def _read_constant(shape: object) -> Constant:
    body = _object(shape, {"kind", "text"})
    text = _text(body.get("text"))
    match body.get("kind"):
        case "number":
            return Constant("number", str(_fraction(text)))
        case "text":
            return Constant("text", text)
        case "boolean" if text in ("true", "false"):
            return Constant("boolean", text)
        case _:
            raise _malformed("a constant")


def _fraction(text: str) -> Fraction:
    plain = 0 < len(text) <= 80 and set(text) <= set("0123456789/-")
    try:
        number = Fraction(text) if plain else None
    except (ValueError, ZeroDivisionError):
        number = None
    if number is None:
        raise _malformed("a number")
    return number


def _read_bound(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise Refused(
            "not-in-language",
            "max_groups and max_rows are whole numbers from 1 to 1,000,000.",
            "Leave them out to take the card's.",
        )
    return value


def _object(shape: object, known: set[str]) -> Mapping[str, object]:
    if not isinstance(shape, dict) or not set(shape) <= known:
        raise _malformed("an object of the question")
    return shape


def _items(shape: object) -> Sequence[object]:
    if not isinstance(shape, list | tuple):
        raise _malformed("a list of the question")
    return shape


def _text(shape: object) -> str:
    if not isinstance(shape, str) or len(shape) > 1000 or not _is_unicode(shape):
        raise _malformed("a text of the question")
    return shape


def _is_unicode(text: str) -> bool:
    """Say whether the text can be written down: half a surrogate pair and NUL cannot."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _malformed(what: str) -> Refused:
    return Refused(
        "not-in-language", f"{what} is not as the language has it.", "Use SQL or the builder."
    )
