"""Print physical expressions and conditions as SQL of a dialect, with bound values.

The text consists of fixed words, column names of the form v3, k3 or u3, and whole numbers. Texts
and dates are bound parameters. The SQL cannot fail on any stored value: the plan has proved that no
intermediate number exceeds 2**62, and a divisor may be zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, Literal

from sfumato.dp.refusal import Bug, Refused
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
    DateField,
    DateTrunc,
    Expr,
    Field,
    Floor,
    FunctionCall,
    IsNull,
    LiteralValue,
    Not,
    Operator,
    Predicate,
    Ref,
    StartsWith,
    Total,
    Unit,
)

Dialect = Literal["duckdb", "postgres", "spark"]
COLUMN: Final = re.compile(r"[vku][0-9]{1,5}")
# names of columns that are stored in a table, not computed
_STORED: Final = re.compile(r"[vk][0-9]{1,5}")
LONGEST: Final = 200_000  # most characters of a statement
BEYOND: Final = 2**62  # larger than every physical number


class Secret(Enum):
    """A bound value that only the engine's worker knows, such as the salt."""

    SALT = "salt"


Bound = str | Secret


@dataclass(frozen=True)
class Text:
    """A piece of SQL with `?` for each bound parameter, and the parameters in order."""

    sql: str
    bound: tuple[Bound, ...] = ()


def joined(word: str, pieces: Sequence[Text]) -> Text:
    """Join the pieces of SQL with `word` between them."""
    return Text(word.join(p.sql for p in pieces), tuple(b for p in pieces for b in p.bound))


def filled(template: str, *pieces: Text) -> Text:
    """Replace each {} of the template by a piece of SQL, in order; refuse too long a text.

    Clamping and division repeat their operands, so nested ones grow fast.
    """
    sql = template.format(*(p.sql for p in pieces))
    if len(sql) > LONGEST:
        raise Refused(
            "question-too-large",
            "An expression is nested too deeply to be computed.",
            "Nest fewer divisions and bounds.",
        )
    return Text(sql, tuple(b for p in pieces for b in p.bound))


def print_expr(expr: Expr, dialect: Dialect) -> Text:
    """Print the expression as SQL; it has physical columns and whole numbers only."""
    match expr:
        case Ref(column=column):
            return Text(_column(column))
        case LiteralValue(constant=constant):
            return _constant(constant, dialect)
        case Arithmetic(sign="/", left=left, right=right):
            return _divided(print_expr(left, dialect), right, dialect)
        case Arithmetic(sign=sign, left=left, right=right):
            return filled(
                f"({{}} {sign} {{}})", print_expr(left, dialect), print_expr(right, dialect)
            )
        case Clamp(of=of, lower=lower, upper=upper):
            return _clamped(print_expr(of, dialect), lower, upper)
        case Coalesce(parts=parts):
            return filled("coalesce({})", joined(", ", [print_expr(p, dialect) for p in parts]))
        case Case(whens=whens, otherwise=otherwise):
            return _case(whens, otherwise, dialect)
        case DateTrunc(unit=unit, of=of):
            return _since(unit, print_expr(of, dialect), dialect)
        case DateField(field=field, of=of):
            return _part(field, print_expr(of, dialect), dialect)
        case Floor():
            raise Bug("a floor of a whole number reached the printer")
        case FunctionCall() | Total():
            raise Bug("post-processing of released numbers reached the printer")


def _column(column: str) -> str:
    if not COLUMN.fullmatch(column):
        raise Bug("an expression names a column that is not physical")
    return column


def _divided(top: Text, right: Expr, dialect: Dialect) -> Text:
    """Print floor(top / right), which is NULL where right is zero."""
    bottom = print_expr(right, dialect)
    if not isinstance(right, LiteralValue) or right.constant.number == 0:
        bottom = filled("nullif({}, 0)", bottom)
    return _floor_division(top, bottom, dialect)


def _floor_division(top: Text, bottom: Text, dialect: Dialect) -> Text:
    """Print floor(top / bottom), exactly: it first subtracts a remainder with the bottom's sign.

    In all engines, mod has the sign of the dividend. Adding the bottom and taking mod again gives
    the remainder the sign of the bottom, whatever that sign is.
    """
    rest = filled("mod(mod({}, {}) + {}, {})", top, bottom, bottom, bottom)
    word = {"duckdb": "//", "postgres": "/", "spark": "div"}[dialect]
    return filled(f"(({{}} - {{}}) {word} {{}})", top, rest, bottom)


def _clamped(of: Text, lower: Constant | None, upper: Constant | None) -> Text:
    """Print the clamping of a value, which stays NULL if it is NULL.

    A CASE keeps the NULL, because LEAST and GREATEST skip NULL.
    """
    inner = of
    if lower is not None:
        inner = filled(f"greatest({{}}, {_whole_number(lower)})", inner)
    if upper is not None:
        inner = filled(f"least({{}}, {_whole_number(upper)})", inner)
    return filled("CASE WHEN {} IS NOT NULL THEN {} END", of, inner)


def _whole_number(constant: Constant) -> int:
    if constant.kind != "number" or constant.number.denominator != 1:
        raise Bug("a bound of a measure is not a whole number")
    return int(constant.number)


def _case(
    whens: Sequence[tuple[Predicate, Expr]], otherwise: Expr | None, dialect: Dialect
) -> Text:
    pieces = [
        filled("WHEN {} THEN {}", print_predicate(p, dialect), print_expr(e, dialect))
        for p, e in whens
    ]
    if otherwise is not None:
        pieces.append(filled("ELSE {}", print_expr(otherwise, dialect)))
    return filled("CASE {} END", joined(" ", pieces))


# --- time ----------------------------------------------------------------------------------------


def _since(unit: Unit, of: Text, dialect: Dialect) -> Text:
    match unit:
        case "day":
            return _days(of, dialect)
        case "week":  # 1970-01-01 was a Thursday; weeks begin on Monday
            days = filled("({} + 3)", _days(of, dialect))
            return _floor_division(days, Text("7"), dialect)
        case "hour":
            return filled("({} * 24 + {})", _days(of, dialect), _extract("hour", of))
        case "year":
            return filled("({} - 1970)", _extract("year", of))
        case "quarter":
            years = filled("({} - 1970) * 4", _extract("year", of))
            return filled("({} + {} - 1)", years, _extract("quarter", of))
        case "month":
            years = filled("({} - 1970) * 12", _extract("year", of))
            return filled("({} + {} - 1)", years, _extract("month", of))


def _part(field: Field, of: Text, dialect: Dialect) -> Text:
    if field == "weekday":
        return filled("(mod(mod({} + 3, 7) + 7, 7) + 1)", _days(of, dialect))
    return _extract(field, of)


def _days(of: Text, dialect: Dialect) -> Text:
    if dialect == "spark":
        days = filled("datediff(CAST({} AS DATE), DATE '1970-01-01')", of)
    else:
        days = filled("(CAST({} AS DATE) - DATE '1970-01-01')", of)
    return filled("CAST({} AS BIGINT)", days)


def _extract(field: str, of: Text) -> Text:
    return filled(f"CAST(extract({field} FROM {{}}) AS BIGINT)", of)


# --- conditions, in SQL's three-valued logic -----------------------------------------------------

_SIGNS: Final[dict[Operator, str]] = {
    "=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip


def print_predicate(predicate: Predicate, dialect: Dialect) -> Text:
    """Print the condition as SQL of the dialect."""
    match predicate:
        case Compare(of=of, operator=operator, constant=constant):
            return _compare(print_expr(of, dialect), operator, constant, dialect)
        case Among(of=of, constants=constants):
            return _among(print_expr(of, dialect), constants, dialect)
        case StartsWith(of=of, letters=letters):
            return _begins(print_expr(of, dialect), letters, dialect)
        case IsNull(of=of):
            return filled("({} IS NULL)", print_expr(of, dialect))
        case Not(predicate=inner):
            return filled("(NOT {})", print_predicate(inner, dialect))
        case All(predicates=parts):
            return _several(" AND ", parts, "true", dialect)
        case AnyOf(predicates=parts):
            return _several(" OR ", parts, "false", dialect)


def _several(word: str, parts: Sequence[Predicate], nothing: str, dialect: Dialect) -> Text:
    if not parts:
        return Text(f"({nothing})")
    return filled("({})", joined(word, [print_predicate(part, dialect) for part in parts]))


def _compare(of: Text, operator: Operator, constant: Constant, dialect: Dialect) -> Text:
    if operator not in _SIGNS:
        raise Bug("a condition has an unknown operator")
    if constant.kind == "number":
        return _whole(of, operator, constant.number)
    if _needs_care(of, dialect) and constant.kind == "text" and operator in ("=", "!="):
        same = _same_text(of, constant.text)
        return same if operator == "=" else filled("(NOT {})", same)
    return filled(f"({{}} {_SIGNS[operator]} {{}})", of, _constant(constant, dialect))


def _whole(of: Text, operator: Operator, number: Fraction) -> Text:
    """Print the comparison of a whole number with a fraction, so that SQL needs no fraction.

    For example, `x < 5/2` becomes `x <= 2`.
    """
    below, above = math.floor(number), math.ceil(number)
    if below == above:
        return filled(f"({{}} {_SIGNS[operator]} {_near(below)})", of)
    match operator:
        case "=":
            return filled("({} <> {})", of, of)  # false for every value, and NULL for NULL
        case "!=":
            return filled("({} = {})", of, of)  # true for every value, and NULL for NULL
        case "<" | "<=":
            return filled(f"({{}} <= {_near(below)})", of)
        case ">" | ">=":
            return filled(f"({{}} >= {_near(above)})", of)


def _near(number: int) -> int:
    """Clamp a whole number between -2**62 and 2**62, so that SQL can compare with it.

    No physical number is beyond 2**62, so each comparison keeps its result.
    """
    return max(-BEYOND, min(BEYOND, number))


def _among(of: Text, constants: Sequence[Constant], dialect: Dialect) -> Text:
    whole = [c for c in constants if c.kind != "number" or c.number.denominator == 1]
    if not whole:
        return filled("({} <> {})", of, of)
    if _needs_care(of, dialect):
        return filled("({})", joined(" OR ", [_compare(of, "=", c, dialect) for c in whole]))
    return filled("({} IN ({}))", of, joined(", ", [_constant(c, dialect) for c in whole]))


def _needs_care(of: Text, dialect: Dialect) -> bool:
    """Return True if DuckDB 2.0 must not compare this SQL with a constant text or list.

    That holds for all but stored columns. DuckDB's statistics of the stored rows may say that an
    expression is always one value or NULL. Then DuckDB stops, or treats NULL as not NULL. So the
    answer would depend on other people's rows.
    """
    return dialect == "duckdb" and not _STORED.fullmatch(of.sql)


def _same_text(of: Text, text: str) -> Text:
    begins = _begins(of, text, "duckdb")
    return filled(f"({{}} AND strlen({{}}) = {len(text.encode())})", begins, of)


def _begins(of: Text, letters: str, dialect: Dialect) -> Text:
    word = "startswith" if dialect == "spark" else "starts_with"
    opaque = filled("substr({}, 1)", of) if _needs_care(of, dialect) else of
    return filled(f"{word}({{}}, {{}})", opaque, _text(letters, dialect))


def _constant(constant: Constant, dialect: Dialect) -> Text:
    match constant.kind:
        # with 64 bits: engines take small constants as 32 bits, which would overflow
        case "number":
            return Text(f"CAST({_near(_whole_number(constant))} AS BIGINT)")
        case "boolean":
            return Text("true" if constant.text == "true" else "false")
        case "text":
            return _text(constant.text, dialect)
        case "date":
            return Text("CAST(? AS DATE)", (constant.text,))
        case "timestamp":
            word = "TIMESTAMP_NTZ" if dialect == "spark" else "TIMESTAMP"
            return Text(f"CAST(? AS {word})", (constant.text,))


def _text(text: str, dialect: Dialect) -> Text:
    """Print a text constant, bound as a parameter, which every engine compares byte by byte."""
    return Text('CAST(? AS TEXT) COLLATE "C"' if dialect == "postgres" else "?", (text,))


def ordered_digest(text: str, dialect: Dialect) -> str:
    """Print a hash of the text by which all engines sort alike: the last eight bytes of its MD5.

    DuckDB has the hash as a number, and other engines have its hex digits. DuckDB's md5_number is
    little-endian, so its upper half begins with the last byte of the digest. For the other engines,
    the last sixteen hex digits are reversed in pairs. Each letter of the pattern becomes the digit
    at that letter's place in the alphabet.
    """
    if dialect == "duckdb":
        return f"md5_number({text}) >> 64"
    digest = f"md5(CAST({text} AS BINARY))" if dialect == "spark" else f"md5({text})"
    turned = f"translate('opmnklijghefcdab', 'abcdefghijklmnop', substr({digest}, 17))"
    return f'{turned} COLLATE "C"' if dialect == "postgres" else turned
