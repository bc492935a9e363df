"""Expressions and conditions: what a query may compute from one row before aggregation.

The same classes are used twice. In a query, they name the card's columns. In a measure, they name
the physical columns of a prepared table (`v3`, `k3`, `u0`), and all numbers are whole. They never
contain SQL text.
"""

from __future__ import annotations

import json
import re
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
Kind = Literal["number", "text", "boolean", "date", "timestamp"]  # the last two only in measures
Sign = Literal["+", "-", "*", "/"]
SIGNS: Final[tuple[Sign, ...]] = ("+", "-", "*", "/")
Unit = Literal["year", "quarter", "month", "week", "day", "hour"]
UNITS: Final[tuple[Unit, ...]] = ("year", "quarter", "month", "week", "day", "hour")
Field = Literal["year", "quarter", "month", "day", "weekday", "hour"]
FIELDS: Final[tuple[Field, ...]] = ("year", "quarter", "month", "day", "weekday", "hour")
FunctionName = Literal["abs", "sqrt", "ln", "exp"]
CURVES: Final[tuple[FunctionName, ...]] = ("abs", "sqrt", "ln", "exp")


@dataclass(frozen=True)
class Constant:
    """A constant in canonical form: a fraction, a text (also for dates), true or false."""

    kind: Kind
    text: str

    @staticmethod
    def of(value: object) -> Constant:
        """Return the constant for a plain Python value."""
        if type(value) is Fraction:  # the usual case; a check for any kind of number is slower
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
        """Return the constant as an exact fraction."""
        return _number_of(self.text)


@lru_cache(maxsize=1024)
def _number_of(text: str) -> Fraction:
    """Parse a fraction; cached, because the same few texts recur."""
    return Fraction(text)


# --- expressions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ref:
    """A reference to a column by its name."""

    column: str


@dataclass(frozen=True)
class LiteralValue:
    """A constant as an expression, the same for every row."""

    constant: Constant


@dataclass(frozen=True)
class Arithmetic:
    """An operation on two numbers; NULL if either is NULL, and for division by zero."""

    sign: Sign
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Floor:
    """The largest whole number that is not above the operand (FLOOR)."""

    of: Expr


@dataclass(frozen=True)
class Clamp:
    """A number clamped to its bounds; NULL stays NULL."""

    of: Expr
    lower: Constant | None
    upper: Constant | None


@dataclass(frozen=True)
class Coalesce:
    """The first operand that is not NULL, for example a column or else a constant (COALESCE)."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Case:
    """The value that belongs to the first true condition, else `otherwise` (CASE WHEN)."""

    whens: tuple[tuple[Predicate, Expr], ...]
    otherwise: Expr | None


@dataclass(frozen=True)
class DateTrunc:
    """The period that contains a date or timestamp, as a number counted from 1970 (date_trunc)."""

    unit: Unit
    of: Expr


@dataclass(frozen=True)
class DateField:
    """A field of a date or timestamp, such as its month (EXTRACT); weekday 1 is Monday."""

    field: Field
    of: Expr


@dataclass(frozen=True)
class FunctionCall:
    """A function of one number; NULL where it is undefined. On rows, only `abs` is allowed."""

    name: FunctionName
    of: Expr


@dataclass(frozen=True)
class Total:
    """The total of a released count or sum over all answer rows with the same values of `by`.

    `of` and `by` are names of outputs. Totals occur only in formulas.
    """

    of: Expr
    by: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """Return the name under which an answer row holds the total.

        The name is unprintable, so that no output can have it.
        """
        return "\n" + canonical_json([*sorted(columns_of(self.of)), *self.by])


Expr = (
    Ref
    | LiteralValue
    | Arithmetic
    | Floor
    | Clamp
    | Coalesce
    | Case
    | DateTrunc
    | DateField
    | FunctionCall
    | Total
)


# --- conditions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compare:
    """A condition that compares an expression with a constant, such as x > 3."""

    of: Expr
    operator: Operator
    constant: Constant


@dataclass(frozen=True)
class Among:
    """A condition that an expression equals one of the constants (IN)."""

    of: Expr
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class StartsWith:
    """A condition that a text begins with `letters` (LIKE 'x%')."""

    of: Expr
    letters: str


@dataclass(frozen=True)
class IsNull:
    """A condition that an expression is NULL (IS NULL)."""

    of: Expr


@dataclass(frozen=True)
class Not:
    """The negation of a condition; NULL stays NULL, as in SQL."""

    predicate: Predicate


@dataclass(frozen=True)
class All:
    """A condition that holds if all of its conditions hold (AND)."""

    predicates: tuple[Predicate, ...]


@dataclass(frozen=True)
class AnyOf:
    """A condition that holds if at least one of its conditions holds (OR)."""

    predicates: tuple[Predicate, ...]


Predicate = Compare | Among | StartsWith | IsNull | Not | All | AnyOf
MAX_POWER: Final = 8  # largest exponent for which a power is computed by multiplication


def parts_of(value: Expr | Predicate) -> tuple[Expr | Predicate, ...]:
    """Return the direct operands of an expression or condition."""
    match value:
        case Ref() | LiteralValue():
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
    """Yield the value, then every expression and condition nested in it."""
    yield value
    for part in parts_of(value):
        yield from walk(part)


def columns_of(value: Expr | Predicate) -> frozenset[str]:
    """Return the names of the columns that an expression or condition uses."""
    return frozenset(part.column for part in walk(value) if isinstance(part, Ref))


def truth_of(condition: Predicate) -> Expr:
    """Return an expression whose value is the truth value of the condition, or NULL."""
    sides = [(condition, Constant.of(True)), (Not(condition), Constant.of(False))]
    return Case(tuple((when, LiteralValue(constant)) for when, constant in sides), None)


def one_where(condition: Predicate) -> Expr:
    """Return an expression that is 1 where the condition is true, and NULL elsewhere."""
    return Case(((condition, LiteralValue(Constant.of(1))),), None)


def rounded(of: Expr, digits: int) -> Expr:
    """Round a number to `digits` decimals (negative: to tens or hundreds); halves go up."""
    half = LiteralValue(Constant.of(Fraction(1, 2)))
    if digits == 0:
        return Floor(Arithmetic("+", of, half))
    fine = LiteralValue(Constant.of(Fraction(10) ** digits))
    whole = Floor(Arithmetic("+", Arithmetic("*", of, fine), half))
    return Arithmetic("/", whole, fine)


def power(of: Expr, exponent: Fraction) -> Expr:
    """Return a power as an expression: products, a square root, or EXP and LN.

    A product of two numbers that can't be negative has a lower bound of zero. So even powers
    multiply absolute values.
    """
    if exponent < 0:
        return Arithmetic("/", LiteralValue(Constant.of(1)), power(of, -exponent))
    if exponent.denominator != 1:
        if exponent == Fraction(1, 2):
            return FunctionCall("sqrt", of)
        return FunctionCall(
            "exp", Arithmetic("*", LiteralValue(Constant.of(exponent)), FunctionCall("ln", of))
        )
    if exponent > MAX_POWER:
        raise malformed(f"A power above {MAX_POWER}")
    if exponent == 0:  # x^0 is 1, except that NULL stays NULL
        raise malformed("A power of zero")
    size: Expr = FunctionCall("abs", of)
    made: Expr = of if exponent % 2 else size
    for _ in range(int(exponent) - 1):
        made = Arithmetic("*", made, size)
    return made


def renamed(value: Expr, names: Mapping[str, str]) -> Expr:
    """Return the expression with renamed columns.

    It recurses once for each level, so it is for formulas, which are short.
    """
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
        case LiteralValue():
            return value
        case Floor() | Clamp() | DateTrunc() | DateField() | FunctionCall():
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


def canonical_json(value: object) -> str:
    """Return the canonical JSON text of a value, which is hashed and stored."""
    return _SPELLING.encode(value)


_SPELLING: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def plain_text(shape: object) -> str:
    """Return the value if it is a short text that can be encoded; refuse anything else."""
    if not isinstance(shape, str) or len(shape) > 1000 or not _is_unicode(shape):
        raise malformed("a text of the question")
    return shape


def _is_unicode(text: str) -> bool:
    """Check whether the text can be encoded; a lone surrogate and NUL cannot."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def malformed(what: str) -> Refused:
    """Return the refusal of a malformed part of a query."""
    return Refused(
        "not-in-language",
        f"{what} is not valid in the query language.",
        "Write the question in SQL or with the query builder.",
    )


# Stored answers are ordered by these texts, so the texts keep the names of version 0.1.
_STORED_NAMES: Final = {
    "LiteralValue": "Literally", "DateTrunc": "Since", "DateField": "Part", "FunctionCall": "Curve",
}  # fmt: skip
# A quoted text constant, or the name of a class. A text constant keeps what it says.
_TEXT_OR_CLASS: Final = re.compile(
    rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?P<name>{"|".join(_STORED_NAMES)})(?=\()"""
)


def canonical_order(of: object) -> str:
    """Return the text that determines the canonical order of expressions and conditions."""

    def stored(found: re.Match[str]) -> str:
        return _STORED_NAMES[found["name"]] if found["name"] else found[0]

    return _TEXT_OR_CLASS.sub(stored, repr(of))
