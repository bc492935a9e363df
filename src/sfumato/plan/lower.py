"""A measure becomes the text of one SQL statement, printed by hand from our own values only.

What the text is made of: fixed words, column names of the form v3 or k3, and whole numbers. Texts,
dates and the salt are bound parameters. There is no volatile function, no float, and no ranking
without a total order (stack.md, 1.4).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, Literal

from sfumato.core.measure import Measure, Tally
from sfumato.core.question import (
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Operator,
    Predicate,
)
from sfumato.core.refusal import Bug

Dialect = Literal["duckdb"]
COLUMN: Final = re.compile(r"[vk][0-9]+")
BEYOND: Final = 2**60  # outside everything a prepared column can hold (2**52 steps)


class Secret(Enum):
    """A bound value that only the engine's worker knows."""

    SALT = "salt"


@dataclass(frozen=True)
class Statement:
    """SQL with `?` for every bound parameter, in order; rows are (cell, t0, t1, ...)."""

    sql: str
    parameters: tuple[str | Secret, ...]


def lower(measure: Measure, dialect: Dialect) -> Statement:
    """Return the statement that adds the measure up over a prepared table, without empty cells."""
    if dialect != "duckdb":
        raise Bug(f"no SQL is printed for {dialect!r}")
    _check(measure)
    where, parameters = _condition(measure)
    if not measure.by_person:
        return Statement(_picked(measure, where, ()) + _plain_totals(measure), parameters)
    sql = _picked(measure, where, ("person", "person_key", "row_key"))
    sql += _parts(measure)
    if measure.max_groups >= measure.cells:  # nobody can have more parts than there are cells
        return Statement(sql + _totals(measure, "parts", ""), parameters)
    sql += _chosen()
    sql += _totals(measure, "chosen", f"\nWHERE place <= {measure.max_groups}")
    return Statement(sql, (*parameters, Secret.SALT))


def _check(measure: Measure) -> None:
    columns = [key.column for key in measure.keys]
    columns += [t.column for t in measure.tallies if t.kind in ("values", "sum")]
    if not all(COLUMN.fullmatch(column) for column in columns):
        raise Bug("a measure names a column that is not physical")
    bounds = [measure.max_groups, measure.max_rows, *(key.size for key in measure.keys)]
    whole = [*bounds, *(t.scale for t in measure.tallies), *(t.offset for t in measure.tallies)]
    if any(type(number) is not int for number in whole) or min(bounds) < 1:
        raise Bug("a bound of a measure is not a whole number from 1")
    if not measure.tallies:
        raise Bug("a measure adds nothing up")


# --- which rows, and in which cell ---------------------------------------------------------------


def _picked(measure: Measure, where: str, identity: Sequence[str]) -> str:
    columns = ", ".join((*identity, f"{_cell(measure)} AS cell", *_used(measure)))
    return f'WITH picked AS (\n  SELECT {columns}\n  FROM "rows"{where}\n)'


def _cell(measure: Measure) -> str:
    """Print the cell's number: key codes as digits of mixed radix, the first most significant."""
    cell = "CAST(0 AS BIGINT)"
    for place, key in enumerate(measure.keys):
        code = f"CAST({key.column} AS BIGINT)"
        cell = code if place == 0 else f"({cell} * {key.size} + {code})"
    return cell


def _used(measure: Measure) -> tuple[str, ...]:
    return tuple(sorted({t.column for t in measure.tallies if t.kind in ("values", "sum")}))


def _condition(measure: Measure) -> tuple[str, tuple[str | Secret, ...]]:
    texts = ["person IS NOT NULL"] if measure.by_person else []
    texts += [f"{key.column} IS NOT NULL" for key in measure.keys]
    parameters: tuple[str, ...] = ()
    if measure.where is not None:
        text, parameters = _predicate(measure.where)
        texts.append(text)
    return ("\n  WHERE " + " AND ".join(texts) if texts else ""), parameters


# --- adding up -----------------------------------------------------------------------------------


def _plain_totals(measure: Measure) -> str:
    texts = [
        _counted(tally, "count(*)", f"count({tally.column})", f"sum({tally.column})")
        for tally in measure.tallies
    ]
    return _grouped(texts, "picked", "")


def _parts(measure: Measure) -> str:
    """Print each person's part of each cell, made of at most max_rows of their rows."""
    used = _used(measure)
    order = ", ".join(("row_key", *used))
    summed = {t.column for t in measure.tallies if t.kind == "sum"}  # a date can only be counted
    sums = "".join(
        f", count({c}) AS n_{c}" + (f", sum({c}) AS s_{c}" if c in summed else "") for c in used
    )
    return (
        f",\nranked AS (\n  SELECT *, row_number() OVER"
        f" (PARTITION BY person, cell ORDER BY {order}) AS nth\n  FROM picked\n),\n"
        f"parts AS (\n  SELECT person, person_key, cell, count(*) AS n{sums}\n  FROM ranked\n"
        f"  WHERE nth <= {measure.max_rows}\n  GROUP BY person, person_key, cell\n)"
    )


def _chosen() -> str:
    """Print every part with its place in the secret order of its person's cells.

    The order is a keyed PRF of (salt, person's identifier, cell). A cell's number is a function of
    the key's value and the card alone, never of the rows, so nobody's presence can reorder the
    cells of another (rules.md, 10 and 11); `person` is a dense code and only tells people apart.
    The shift is DuckDB's md5_number_lower, three times as fast.
    """
    key = "? || ':cell:' || CAST(person_key AS VARCHAR) || ':' || CAST(cell AS VARCHAR)"
    return (
        ",\nchosen AS (\n  SELECT *, row_number() OVER"
        f" (PARTITION BY person ORDER BY md5_number({key}) >> 64, cell) AS place\n  FROM parts\n)"
    )


def _totals(measure: Measure, source: str, where: str) -> str:
    texts = [
        _counted(
            tally,
            "count(*)" if tally.kind == "people" else "sum(n)",
            f"sum(n_{tally.column})",
            f"sum(s_{tally.column})",
        )
        for tally in measure.tallies
    ]
    return _grouped(texts, source, where)


def _counted(tally: Tally, rows: str, values: str, total: str) -> str:
    """Print one tally; sum(scale*v + offset) is scale*sum(v) + offset*count(v), in 128 bits."""
    match tally.kind:
        case "rows" | "people":
            return rows
        case "values":
            return values
        case "sum":
            scaled = f"CAST({tally.scale} AS HUGEINT) * coalesce({total}, 0)"
            return f"{scaled} + CAST({tally.offset} AS HUGEINT) * {values}"


def _grouped(texts: Sequence[str], source: str, where: str) -> str:
    tallies = "".join(f", CAST({text} AS BIGINT) AS t{i}" for i, text in enumerate(texts))
    return f"\nSELECT cell{tallies}\nFROM {source}{where}\nGROUP BY cell"


# --- conditions, in SQL's three-valued logic -----------------------------------------------------

_Printed = tuple[str, tuple[str, ...]]
_SIGNS: Final[dict[Operator, str]] = {
    "=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip


def _predicate(predicate: Predicate) -> _Printed:
    match predicate:
        case Compare(column=column, operator=operator, constant=constant):
            return _compare(_value(column), operator, constant)
        case Among(column=column, constants=constants):
            return _among(_value(column), constants)
        case IsNull(column=column):
            return f"({_value(column)} IS NULL)", ()
        case Not(predicate=inner):
            text, parameters = _predicate(inner)
            return f"(NOT {text})", parameters
        case All(predicates=parts):
            return _joined(" AND ", parts, "true")
        case AnyOf(predicates=parts):
            return _joined(" OR ", parts, "false")


def _value(column: str) -> str:
    if not COLUMN.fullmatch(column):
        raise Bug("a condition names a column that is not physical")
    return column


def _joined(word: str, parts: Sequence[Predicate], nothing: str) -> _Printed:
    printed = [_predicate(part) for part in parts]
    text = word.join(text for text, _ in printed)
    return f"({text or nothing})", tuple(p for _, several in printed for p in several)


def _compare(column: str, operator: Operator, constant: Constant) -> _Printed:
    if operator not in _SIGNS:
        raise Bug("a condition has an unknown operator")
    if constant.kind != "number":
        text, parameters = _constant(constant)
        return f"({column} {_SIGNS[operator]} {text})", parameters
    return f"({column} {_whole(column, operator, constant.number)})", ()


def _whole(column: str, operator: Operator, number: Fraction) -> str:
    """Print the comparison of a whole column with any exact number, in whole numbers."""
    below, above = math.floor(number), math.ceil(number)
    if below == above:
        return f"{_SIGNS[operator]} {_near(below)}"
    match operator:
        case "=":
            return f"<> {column}"  # false for every value, null for null
        case "!=":
            return f"= {column}"  # true for every value, null for null
        case "<" | "<=":
            return f"<= {_near(below)}"
        case ">" | ">=":
            return f">= {_near(above)}"


def _near(number: int) -> int:
    """Return the number, or one as good: no column holds anything beyond 2**52 steps."""
    return max(-BEYOND, min(BEYOND, number))


def _among(column: str, constants: Sequence[Constant]) -> _Printed:
    whole = [c for c in constants if c.kind != "number" or c.number.denominator == 1]
    if not whole:
        return f"({column} <> {column})", ()
    printed = [_constant(c) for c in whole]
    text = ", ".join(text for text, _ in printed)
    return f"({column} IN ({text}))", tuple(p for _, several in printed for p in several)


def _constant(constant: Constant) -> _Printed:
    match constant.kind:
        case "number":
            return str(_near(int(constant.number))), ()
        case "boolean":
            return ("true" if constant.text == "true" else "false"), ()
        case "text":
            return "?", (constant.text,)
