"""Draw random values of a column that fit its card: type, bounds and step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from fractions import Fraction
from typing import Final

from sfumato.features.synthetic.seeded_numbers import Integers, Seeded
from sfumato.query.expression import Constant
from sfumato.vault.card.columns import Column

Value = Fraction | str | bool | None
# the number of distinct numbers or texts if the card declares neither bounds nor keys
FREE: Final = 100
FIRST, DAYS = date(2020, 1, 1), 3_650  # the years of a date without declared bounds
_MANY: Final = 10  # with so many rows or more, a column with missing values lacks at least one
_ZERO: Final = date(1970, 1, 1)


def values_of(column: Column, count: int, stream: Seeded, text_length: int) -> list[Value]:
    """Draw uniform random values of a column; some are missing, at the card's declared rate."""
    places = stream.integers(_size(column), count)
    values = _at(column, places, stream, text_length)
    if not column.missing:
        return values
    gone = (stream.uniforms(count) < float(column.missing)).tolist()
    if count >= _MANY and not any(gone):
        gone[stream.integer(count)] = True  # so that a program meets a missing value
    return [None if is_gone else v for v, is_gone in zip(values, gone, strict=True)]


def different_values(column: Column, most: int) -> list[Value]:
    """Return up to `most` distinct values that a column may have, spread over its range.

    They become the keys of a synthetic public table.
    """
    if column.keys is not None:
        return [value_of_key(column, key) for key in column.keys][:most]
    count = min(most, _size(column))
    spread = [place * _size(column) // count for place in range(count)]
    if column.type == "text":
        return [f"{column.name}-{place:03d}"[-200:] for place in range(1, count + 1)]
    if column.type == "timestamp":
        return [_day(column, place) + " 00:00:00.000000" for place in spread]
    if column.type == "date":
        return [_day(column, place) for place in spread]
    return [(column.lower or 0) * column.step + place * column.step for place in spread]


def value_of_key(column: Column, key: Constant) -> Value:
    """Convert a key that the card declares to a value of its column."""
    if column.is_numeric:
        return key.number
    return key.text == "true" if key.kind == "boolean" else key.text


def _size(column: Column) -> int:
    if column.keys is not None:
        return len(column.keys)
    if column.lower is not None and column.upper is not None:
        return column.upper - column.lower + 1
    return DAYS if column.type in ("date", "timestamp") else FREE


def _at(column: Column, places: Integers, stream: Seeded, text_length: int) -> list[Value]:
    where: Sequence[int] = places.tolist()
    if column.keys is not None:
        keys = [value_of_key(column, key) for key in column.keys]
        return [keys[place] for place in where]
    if column.is_numeric:
        low, step = column.lower or 0, column.step
        return [(low + place) * step for place in where]
    if column.type == "date":
        return [_day(column, place) for place in where]
    if column.type == "timestamp":
        seconds = stream.integers(86_400, len(where)).tolist()
        return [
            f"{_day(column, p)} {_clock(s)}.000000" for p, s in zip(where, seconds, strict=True)
        ]
    return [f"text-{place:02d}"[:text_length] for place in where]


def _day(column: Column, place: int) -> str:
    first = FIRST if column.lower is None else _ZERO + timedelta(days=column.lower)
    return (first + timedelta(days=place)).isoformat()


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
