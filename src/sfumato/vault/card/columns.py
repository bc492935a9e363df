"""The columns of a data card: types, bounds, steps and public keys, as the owner declares them.

A step is the unit of the integer grid on which a column's values are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import Final, Literal

from sfumato.dp.budget import read_number, read_positive
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Constant
from sfumato.vault.card.cell_formats import (
    PLAIN,
    BooleanWords,
    NumberFormat,
    read_boolean_words,
    read_date_format,
    read_number_format,
)
from sfumato.vault.card.field_readers import as_table, as_texts, bad_card

ColumnType = Literal["integer", "number", "text", "boolean", "date", "timestamp"]
TYPES: Final[tuple[ColumnType, ...]] = (
    "integer",
    "number",
    "text",
    "boolean",
    "date",
    "timestamp",
)
NUMERIC: Final = ("integer", "number")
TIMES: Final = ("date", "timestamp")
MAX_KEYS: Final = 1_000_000
MAX_STEPS: Final = 2**52  # the most steps between zero and a bound
MAX_BOUND: Final = 10**18  # largest bound in the column's own unit, not in steps


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)


def sql_name(name: str) -> str:
    """Return a column's name for SQL: in double quotes unless it is a plain identifier."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Column:
    """One declared column. Its bounds are whole steps; the bounds of dates are days since 1970."""

    name: str
    type: ColumnType
    lower: int | None = None
    upper: int | None = None
    step: Fraction = Fraction(1)
    keys: tuple[Constant, ...] | None = None
    # the owner's estimate of the share of rows without a value, or None; only twins use it
    missing: Fraction | None = None
    number_format: NumberFormat = PLAIN  # of numbers in a text file
    date_format: str = ""  # of dates or timestamps in a text file; ISO 8601 if empty
    nulls: tuple[str, ...] = ()  # missing-value markers, in addition to the card's
    # how the rows spell true and false; None for the usual words
    boolean_words: BooleanWords | None = None

    @property
    def is_bounded(self) -> bool:
        """Say whether the data card declares both bounds of the column."""
        return self.lower is not None and self.upper is not None

    @property
    def is_numeric(self) -> bool:
        """Say whether the column's type is integer or number."""
        return self.type in NUMERIC

    def bounds(self) -> tuple[int, int]:
        """Return the column's bounds in steps; refuse a column that lacks one.

        Clamping needs both bounds.
        """
        if self.lower is None or self.upper is None:
            raise Refused(
                "no-bounds",
                f"The data card declares no lower and upper bound for {self.name!r}.",
                "Ask the owner to declare them on the card, from knowledge, not from the rows.",
                column=self.name,
            )
        return self.lower, self.upper


# --- reading ----------------------------------------------------------------------------------


def read_columns(
    shape: Mapping[str, object], numbers: NumberFormat = PLAIN
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Read a data card's declared columns, and the names of the hidden ones.

    Refuse invalid columns. `numbers` is the number format of columns that don't declare their own.
    """
    columns: list[Column] = []
    hidden: list[str] = []
    for name, value in shape.items():
        body = as_table(
            value,
            f"columns.{name}",
            {
                "type",
                "lower",
                "upper",
                "step",
                "keys",
                "hidden",
                "missing",
                "decimal",
                "thousands",
                "format",
                "nulls",
                "true",
                "false",
            },
        )
        if not name.strip() or len(name) > 200:
            raise bad_card("a column's name is empty or longer than 200 characters")
        if body.get("hidden", False) is True:
            hidden.append(name)
        else:
            made = _read_column(name, body)
            made = _with_formats(made, body, numbers)
            nulls = as_texts(body.get("nulls", []), f"columns.{name}.nulls")
            columns.append(replace(made, missing=_read_missing(name, body), nulls=nulls))
    if len({c.name.casefold() for c in columns}) < len(columns):
        raise bad_card("two columns have the same name, or names that differ only in letter case")
    return tuple(columns), tuple(hidden)


def _with_formats(column: Column, body: Mapping[str, object], numbers: NumberFormat) -> Column:
    """Return the column with the number, date or boolean format that the card declares."""
    where = f"column {column.name!r}"
    if column.type == "boolean":
        column = replace(column, boolean_words=read_boolean_words(body, where))
    elif {"true", "false"} & set(body):
        raise bad_card(f"{where} is {column.type}, but true and false are for booleans")
    if column.is_numeric:
        if "format" in body:
            raise bad_card(f"{where} is {column.type}, but format is for dates and timestamps")
        return replace(column, number_format=read_number_format(body, where, numbers))
    if {"decimal", "thousands"} & set(body):
        raise bad_card(f"{where} is {column.type}, but decimal and thousands are for numbers")
    if "format" not in body:
        return column
    if column.type not in TIMES:
        raise bad_card(f"{where} is {column.type}, but format is for dates and timestamps")
    return replace(column, date_format=read_date_format(body["format"], where))


def _read_missing(name: str, body: Mapping[str, object]) -> Fraction | None:
    """Read the owner's estimate of the share of missing values; the rows are not read for it."""
    if "missing" not in body:
        return None
    share = read_number(body["missing"], f"columns.{name}.missing")
    if not 0 <= share <= 1:
        raise bad_card(f"missing of column {name!r} must be a share from 0 to 1")
    return share


def _read_column(name: str, body: Mapping[str, object]) -> Column:
    if body.get("hidden", False) is not False:
        raise bad_card(f"hidden of column {name!r} must be true or false")
    kind = next((t for t in TYPES if t == body.get("type")), None)
    if kind is None:
        raise bad_card(f"the type of column {name!r} must be one of {', '.join(TYPES)}")
    if kind not in NUMERIC:
        return _read_plain(name, kind, body)
    return _read_numeric(name, kind, body)


def _read_plain(name: str, kind: ColumnType, body: Mapping[str, object]) -> Column:
    has_bounds = "lower" in body or "upper" in body
    if "step" in body or (has_bounds and kind not in TIMES):
        raise bad_card(f"column {name!r} is {kind}, but bounds are for numbers and dates")
    keys = _read_keys(name, kind, body)
    if not has_bounds:
        return Column(name, kind, keys=keys)
    if not {"lower", "upper"} <= set(body):
        raise bad_card(f"column {name!r} has one bound; declare both or none")
    low, high = (_day(body[end], f"columns.{name}.{end}") for end in ("lower", "upper"))
    if low >= high:
        raise bad_card(f"lower of column {name!r} is not below its upper")
    return Column(name, kind, low, high, keys=keys)


def _day(value: object, name: str) -> int:
    """Convert a date bound to whole days since 1970."""
    if isinstance(value, datetime) or not isinstance(value, str | date):
        raise bad_card(f"{name} must be a day like 2026-11-21")
    return (date.fromisoformat(_iso_date(value, name)) - date(1970, 1, 1)).days


def _read_numeric(name: str, kind: ColumnType, body: Mapping[str, object]) -> Column:
    if ("lower" in body) != ("upper" in body):
        raise bad_card(f"column {name!r} has one bound; declare both or none")
    if "lower" not in body:
        step = _read_step(name, kind, body, None)
        return Column(name, kind, step=step, keys=_read_keys(name, kind, body, step))
    low = read_number(body["lower"], f"columns.{name}.lower")
    high = read_number(body["upper"], f"columns.{name}.upper")
    if low >= high:
        raise bad_card(f"lower of column {name!r} is not below its upper")
    step = _read_step(name, kind, body, (low, high))
    lower, upper = low / step, high / step
    if lower.denominator != 1 or upper.denominator != 1:
        raise bad_card(f"the bounds of column {name!r} are not multiples of its step {step}")
    if max(abs(low), abs(high)) > MAX_BOUND:
        raise bad_card(f"a bound of column {name!r} is above 1e18")
    if max(abs(lower), abs(upper)) > MAX_STEPS:
        raise bad_card(f"the step of column {name!r} is too fine for its bounds")
    keys = _read_keys(name, kind, body, step)
    return Column(name, kind, int(lower), int(upper), step, keys)


def _read_step(
    name: str,
    kind: ColumnType,
    body: Mapping[str, object],
    bounds: tuple[Fraction, Fraction] | None,
) -> Fraction:
    if "step" in body:
        step = read_positive(body["step"], f"columns.{name}.step")
    elif kind == "integer" or bounds is None:
        step = Fraction(1)
    else:
        step = proposed_step(*bounds)
    if kind == "integer" and step.denominator != 1:
        raise bad_card(f"column {name!r} is integer, so its step must be whole")
    if (step * 10**12).denominator != 1:
        raise bad_card(f"the step of column {name!r} is finer than 1e-12 or not a decimal")
    return step


def proposed_step(low: Fraction, high: Fraction) -> Fraction:
    """Propose a column's step: the largest power of ten that gives at least 10,000 steps.

    The step must also divide both bounds. If no power of ten does, the card is refused.
    """
    for power in range(12, -13, -1):
        step = Fraction(10) ** power
        fits = (low / step).denominator == 1 and (high / step).denominator == 1
        if fits and (high - low) / step >= 10_000:
            return step
    raise bad_card("no decimal step divides the bounds; declare a step")


def _read_keys(
    name: str, kind: ColumnType, body: Mapping[str, object], step: Fraction = Fraction(1)
) -> tuple[Constant, ...] | None:
    if kind == "boolean":
        if "keys" in body:
            raise bad_card(f"column {name!r} is boolean, so its keys must be false and true")
        return (Constant.of(False), Constant.of(True))
    if "keys" not in body:
        return None
    values = body["keys"]
    if not isinstance(values, list) or not 1 <= len(values) <= MAX_KEYS:
        raise bad_card(f"keys of column {name!r} must be a list of 1 to {MAX_KEYS}")
    keys = tuple(read_constant(kind, value, name) for value in values)
    if len(set(keys)) < len(keys):
        raise bad_card(f"column {name!r} lists a key twice")
    if kind in NUMERIC and any((k.number / step).denominator != 1 for k in keys):
        raise bad_card(f"a key of column {name!r} is not a multiple of its step")
    return keys


def read_constant(kind: ColumnType, value: object, name: str) -> Constant:
    """Convert a value to a constant of the column's type, in its canonical form.

    Refuse other types.
    """
    if kind in NUMERIC and isinstance(value, Fraction):
        return Constant.of(value)
    if kind in NUMERIC and not isinstance(value, str | bool):
        return Constant.of(read_number(value, name))
    if kind == "boolean" and isinstance(value, bool):
        return Constant.of(value)
    if kind == "text" and isinstance(value, str):
        return Constant("text", value.strip())
    if kind == "date" and isinstance(value, str | date):
        return Constant("text", _iso_date(value, name))
    if kind == "timestamp" and isinstance(value, str | datetime):
        return Constant("text", _iso_time(value, name))
    raise Refused(
        "type-mismatch",
        f"{name!r} has the type {kind}, but the given value has another type.",
        f"Give a value of type {kind}.",
        column=name,
    )


def _iso_date(value: str | date, name: str) -> str:
    return _iso(lambda: date.fromisoformat(str(value)).isoformat(), name, "2026-11-21")


def _iso_time(value: str | datetime, name: str) -> str:
    def spell() -> str:
        moment = datetime.fromisoformat(str(value))
        if moment.tzinfo is not None:
            raise ValueError
        return moment.isoformat(sep=" ", timespec="microseconds")

    return _iso(spell, name, "2026-11-21 10:00:00")


def _iso(spell: Callable[[], str], name: str, example: str) -> str:
    try:
        text: str | None = spell()
    except ValueError:
        text = None
    if text is None:
        raise Refused(
            "type-mismatch",
            f"The value given for {name!r} is not written like {example}.",
            f"Write it in this form: {example}.",
        )
    return text
