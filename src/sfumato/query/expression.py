"""Expressions and conditions: what may be computed of one row before anything is added up.

The same values serve twice: with a card's column names in a question, and with the physical columns
of a prepared table (`v3`, `k3`, `u0`), all numbers whole, in a measure. Text and SQL never pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Rational
from typing import Final, Literal

from sfumato.dp.refusal import Refused

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
OPERATORS: Final[tuple[Operator, ...]] = ("=", "!=", "<", "<=", ">", ">=")
OPPOSITE: Final[dict[Operator, Operator]] = {
    "=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
}  # fmt: skip
Kind = Literal["number", "text", "boolean", "date", "timestamp"]  # the last two in measures only
Sign = Literal["+", "-", "*", "/"]
SIGNS: Final[tuple[Sign, ...]] = ("+", "-", "*", "/")
Unit = Literal["year", "quarter", "month", "week", "day", "hour"]
UNITS: Final[tuple[Unit, ...]] = ("year", "quarter", "month", "week", "day", "hour")
Field = Literal["year", "quarter", "month", "day", "weekday", "hour"]
FIELDS: Final[tuple[Field, ...]] = ("year", "quarter", "month", "day", "weekday", "hour")
CurveName = Literal["abs", "sqrt", "ln", "exp"]
CURVES: Final[tuple[CurveName, ...]] = ("abs", "sqrt", "ln", "exp")


@dataclass(frozen=True)
class Constant:
    """A constant in canonical spelling: a fraction, a text (dates too), or true and false."""

    kind: Kind
    text: str

    @staticmethod
    def of(value: object) -> Constant:
        """Return the constant for a plain Python value."""
        if type(value) is Fraction:  # most are; to ask if it is any kind of number takes longer
            return Constant("number", str(value))
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
        return _number_of(self.text)


@lru_cache(maxsize=1024)
def _number_of(text: str) -> Fraction:
    """Return the number that the text spells; the same few are asked for again and again."""
    return Fraction(text)


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


@dataclass(frozen=True)
class Curve:
    """A function of one number; null where it has no value. Of rows, only `abs` is reckoned."""

    name: CurveName
    of: Expr


@dataclass(frozen=True)
class Total:
    """What a released count or sum comes to over all rows of the answer with the same `by`.

    Both are outputs by name; it stands in formulas only.
    """

    of: Expr
    by: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """Return how a row of the answer has it; no output is called so, for it is unprintable."""
        return "\n" + spelled([*sorted(columns_of(self.of)), *self.by])


Expr = Ref | Literally | Arithmetic | Floor | Clamp | Coalesce | Case | Since | Part | Curve | Total


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
MOST_POWER: Final = 8  # that a number is taken to by multiplying


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


def truth_of(condition: Predicate) -> Expr:
    """Return true where the condition holds, false where it does not, null where nobody knows."""
    sides = [(condition, Constant.of(True)), (Not(condition), Constant.of(False))]
    return Case(tuple((when, Literally(constant)) for when, constant in sides), None)


def one_where(condition: Predicate) -> Expr:
    """Return one where the condition holds, and nothing elsewhere."""
    return Case(((condition, Literally(Constant.of(1))),), None)


def rounded(of: Expr, digits: int) -> Expr:
    """Return the number to so many decimals (fewer than none: to tens, hundreds); halves go up."""
    half = Literally(Constant.of(Fraction(1, 2)))
    if digits == 0:
        return Floor(Arithmetic("+", of, half))
    fine = Literally(Constant.of(Fraction(10) ** digits))
    whole = Floor(Arithmetic("+", Arithmetic("*", of, fine), half))
    return Arithmetic("/", whole, fine)


def power(of: Expr, exponent: Fraction) -> Expr:
    """Return the number to that power: as products if it is whole, as a root or by logarithms else.

    A product of two that cannot be below zero is known not to be, so even powers are of the size.
    """
    if exponent < 0:
        return Arithmetic("/", Literally(Constant.of(1)), power(of, -exponent))
    if exponent.denominator != 1:
        if exponent == Fraction(1, 2):
            return Curve("sqrt", of)
        return Curve("exp", Arithmetic("*", Literally(Constant.of(exponent)), Curve("ln", of)))
    if exponent > MOST_POWER:
        raise malformed(f"A power above {MOST_POWER}")
    if exponent == 0:  # which is one, but where there is nothing
        raise malformed("A power of zero")
    size: Expr = Curve("abs", of)
    made: Expr = of if exponent % 2 else size
    for _ in range(int(exponent) - 1):
        made = Arithmetic("*", made, size)
    return made


def renamed(value: Expr, names: Mapping[str, str]) -> Expr:
    """Return the expression with those columns under other names; of formulas, which are short."""
    match value:
        case Ref(column=column):
            return Ref(names.get(column.casefold(), column))
        case Arithmetic(sign=sign, left=left, right=right):
            return Arithmetic(sign, renamed(left, names), renamed(right, names))
        case Coalesce(parts=parts):
            return Coalesce(tuple(renamed(part, names) for part in parts))
        case Case(whens=whens, otherwise=otherwise):
            pairs = tuple((_renamed(when, names), renamed(then, names)) for when, then in whens)
            return Case(pairs, None if otherwise is None else renamed(otherwise, names))
        case Literally():
            return value
        case Floor() | Clamp() | Since() | Part() | Curve():
            return replace(value, of=renamed(value.of, names))
        case Total(of=of, by=by):
            return Total(renamed(of, names), tuple(names.get(n.casefold(), n) for n in by))


def _renamed(value: Predicate, names: Mapping[str, str]) -> Predicate:
    match value:
        case Not(predicate=inner):
            return Not(_renamed(inner, names))
        case All(predicates=parts) | AnyOf(predicates=parts):
            return replace(value, predicates=tuple(_renamed(part, names) for part in parts))
        case _:
            return replace(value, of=renamed(value.of, names))


def spelled(value: object) -> str:
    """Return the one JSON spelling of a value; what is hashed and stored."""
    return _SPELLING.encode(value)


_SPELLING: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


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
