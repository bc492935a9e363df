"""Expressions and conditions: what may be computed of one row before anything is added up.

The same values serve twice: with a card's column names in a question, and with the physical columns
of a prepared table (`v3`, `k3`, `u0`), all numbers whole, in a measure. Text and SQL never pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Final, Literal

from sfumato.core.refusal import Refused

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
OPERATORS: Final[tuple[Operator, ...]] = ("=", "!=", "<", "<=", ">", ">=")
Kind = Literal["number", "text", "boolean", "date", "timestamp"]  # the last two in measures only
Sign = Literal["+", "-", "*", "/"]
SIGNS: Final[tuple[Sign, ...]] = ("+", "-", "*", "/")
Unit = Literal["year", "quarter", "month", "week", "day", "hour"]
UNITS: Final[tuple[Unit, ...]] = ("year", "quarter", "month", "week", "day", "hour")
Field = Literal["year", "quarter", "month", "day", "weekday", "hour"]
FIELDS: Final[tuple[Field, ...]] = ("year", "quarter", "month", "day", "weekday", "hour")


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
            raise malformed("a number")
        if isinstance(value, Decimal | Rational):
            return Constant("number", str(Fraction(value)))
        return Constant("text", plain_text(str(value)))

    @property
    def number(self) -> Fraction:
        """Return the exact number."""
        return Fraction(self.text)


# --- expressions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ref:
    """A column."""

    column: str


@dataclass(frozen=True)
class Literally:
    """The same value for every row."""

    constant: Constant


@dataclass(frozen=True)
class Arithmetic:
    """Two numbers added, subtracted, multiplied or divided; null if either is, or if over zero."""

    sign: Sign
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Floor:
    """The largest whole number that is not above the number."""

    of: Expr


@dataclass(frozen=True)
class Clamp:
    """The number, or the bound that it passes; null stays null."""

    of: Expr
    lower: Constant | None
    upper: Constant | None


@dataclass(frozen=True)
class Coalesce:
    """The first that is not null."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Case:
    """The value beside the first condition that holds, else the last one."""

    whens: tuple[tuple[Predicate, Expr], ...]
    otherwise: Expr | None


@dataclass(frozen=True)
class Since:
    """How many whole units of time lie between 1970 and the date or timestamp."""

    unit: Unit
    of: Expr


@dataclass(frozen=True)
class Part:
    """A field of a date or timestamp; weekday 1 is Monday."""

    field: Field
    of: Expr


Expr = Ref | Literally | Arithmetic | Floor | Clamp | Coalesce | Case | Since | Part


# --- conditions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compare:
    """An expression against a constant."""

    of: Expr
    operator: Operator
    constant: Constant


@dataclass(frozen=True)
class Among:
    """An expression equal to one of the constants."""

    of: Expr
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class StartsWith:
    """A text that begins with the letters."""

    of: Expr
    letters: str


@dataclass(frozen=True)
class IsNull:
    """An expression without a value."""

    of: Expr


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


Predicate = Compare | Among | StartsWith | IsNull | Not | All | AnyOf
Json = dict[str, object]


def parts_of(value: Expr | Predicate) -> tuple[Expr | Predicate, ...]:
    """Return what the value is directly made of."""
    match value:
        case Ref() | Literally():
            return ()
        case Arithmetic(left=left, right=right):
            return (left, right)
        case Coalesce(parts=parts):
            return parts
        case Case(whens=whens, otherwise=otherwise):
            flat = tuple(part for pair in whens for part in pair)
            return flat if otherwise is None else (*flat, otherwise)
        case Not(predicate=inner):
            return (inner,)
        case All(predicates=several) | AnyOf(predicates=several):
            return several
        case _:
            return (value.of,)


def walk(value: Expr | Predicate) -> Iterator[Expr | Predicate]:
    """Yield the value and everything within it."""
    yield value
    for part in parts_of(value):
        yield from walk(part)


def columns_of(value: Expr | Predicate) -> frozenset[str]:
    """Return the columns that the value depends on."""
    return frozenset(part.column for part in walk(value) if isinstance(part, Ref))


def canonical(predicate: Predicate) -> Predicate:
    """Return the predicate flattened, sorted and without doubles; it means the same."""
    match predicate:
        case Among(of=of, constants=constants):
            return Among(of, tuple(sorted(set(constants), key=lambda c: (c.kind, c.text))))
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
        flat.update({repr(p): p for p in inner})
    ordered = tuple(flat[key] for key in sorted(flat))
    return ordered[0] if len(ordered) == 1 else kind(ordered)


def spelled(value: object) -> str:
    """Return the one JSON spelling of a value; what is hashed and stored."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def plain_text(shape: object) -> str:
    """Return the text, or refuse what is none or cannot be written down."""
    if not isinstance(shape, str) or len(shape) > 1000 or not _is_unicode(shape):
        raise malformed("a text of the question")
    return shape


def _is_unicode(text: str) -> bool:
    """Say whether the text can be written down: half a surrogate pair and NUL cannot."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def malformed(what: str) -> Refused:
    """Return the refusal of a question that is not as the language has it."""
    return Refused(
        "not-in-language", f"{what} is not as the language has it.", "Use SQL or the builder."
    )
