"""A table as whole numbers: every column a row of codes, and what each code stands for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Refused

Value = str | int | float | bool | None
Codes = NDArray[np.int64]
NOTHING: Final = ("", "n/a", "N/A", "NA", "NULL", "null", "NaN", "nan")  # among numbers
NUMERAL: Final = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGEST: Final = 10**100  # of numbers that are reckoned with; what is beyond stays a text
_LONGEST: Final = 120  # letters of a number
Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One column: a code per row, and the values in order; a missing value is a value, the last."""

    name: str
    codes: Codes
    values: tuple[Value, ...]
    texts: tuple[str, ...] | None = None  # how the file writes each value, if it came from one

    @property
    def written(self) -> tuple[str, ...]:
        """Return how each value is written where it is not generalised: as it was."""
        return self.texts if self.texts is not None else tuple(map(spelled, self.values))

    @cached_property
    def is_ordered(self) -> bool:
        """Say whether the values are numbers, so that some are nearer than others."""
        return bool(self.values) and all(is_number(value) for value in self.values)

    def at(self, rows: Codes) -> Column:
        """Return the column at these rows; codes keep their meaning."""
        return Column(self.name, self.codes[rows], self.values, self.texts)


@dataclass(frozen=True)
class Table:
    """Columns by name; a row may stand for several that are alike, as many as its weight says."""

    columns: Mapping[str, Column]
    rows: int
    weights: Codes | None = None

    @property
    def people(self) -> int:
        """Return how many rows all the rows stand for."""
        return self.rows if self.weights is None else int(self.weights.sum())

    @property
    def weight(self) -> Codes:
        """Return how many rows each row stands for."""
        return np.ones(self.rows, np.int64) if self.weights is None else self.weights

    def of(self, names: Iterable[str]) -> tuple[Column, ...]:
        """Return the columns of these names, or refuse what is not there."""
        return tuple(self._column(name) for name in names)

    def at(self, rows: Codes) -> Table:
        """Return these rows."""
        kept = {name: column.at(rows) for name, column in self.columns.items()}
        weights = None if self.weights is None else self.weights[rows]
        return Table(kept, len(rows), weights)

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            raise Refused(
                "unknown-column",
                f"The table has no column {name!r}.",
                f"Name some of {', '.join(self.columns)}.",
                column=name,
            )
        return self.columns[name]


def spelled(value: Value) -> str:
    """Return a value as it stands in a table that is released; a missing one is empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def is_number(value: Value) -> bool:
    """Say whether a value has a size."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def bound_text(bound: Fraction) -> str:
    """Return the end of an interval, written down exactly if decimals can."""
    if bound.denominator == 1:
        return str(bound.numerator)
    short = repr(float(bound))
    if Fraction(short) == bound:
        return short
    places = max(_times(bound.denominator, 2), _times(bound.denominator, 5))
    digits = str(abs(bound.numerator) * 10**places // bound.denominator).rjust(places + 1, "0")
    return f"{'-' * (bound < 0)}{digits[:-places]}.{digits[-places:]}"


def _times(number: int, prime: int) -> int:
    """Return how often the prime divides the number."""
    times = 0
    while number % prime == 0:
        number, times = number // prime, times + 1
    return times


def coded(name: str, values: Sequence[Value]) -> Column:
    """Return the column with its values in order: numbers by size, then texts, then nothing."""
    cleaned = [None if _is_nan(value) else value for value in values]
    kinds = {(type(value), value): None for value in cleaned}
    order = sorted(kinds, key=lambda kind: _rank(kind[1]))
    code_of = {kind: code for code, kind in enumerate(order)}
    codes = np.fromiter(
        (code_of[type(value), value] for value in cleaned), np.int64, count=len(cleaned)
    )
    return Column(name, codes, tuple(value for _, value in order))


def replaced(column: Column, values: Sequence[Value]) -> Column:
    """Return the column with each of its values replaced by the one at its place."""
    made = coded(column.name, values)
    codes = made.codes[column.codes] if len(values) else made.codes
    return written_as(column, Column(column.name, codes, made.values))


def written_as(before: Column, after: Column) -> Column:
    """Return the column with the values that it had before written as they were."""
    pairs = zip(before.values, before.written, strict=True)
    known = {(isinstance(value, bool), value): text for value, text in pairs}
    texts = [known.get((isinstance(v, bool), v), spelled(v)) for v in after.values]
    return Column(after.name, after.codes, after.values, tuple(texts))


def table_of(columns: Mapping[str, Sequence[Value]]) -> Table:
    """Return the table of these columns, which are of one length."""
    made = {name: coded(name, values) for name, values in columns.items()}
    rows = len(next(iter(made.values())).codes) if made else 0
    return Table(made, rows)


def decoded(name: str, texts: Sequence[str], codes: Codes) -> Column:
    """Return the column whose rows are places among different texts, numbers read as numbers.

    Nothing is lost by it: what a value was written like stays beside it.
    """
    small = coded(name, read_numbers(texts))
    written: list[set[str]] = [set() for _ in small.values]
    for code, text in zip(small.codes.tolist(), texts, strict=True):
        written[code].add(text)
    kept = tuple(ways.pop() if len(ways) == 1 else "" for ways in written)  # several: of nothing
    return Column(name, small.codes[codes] if len(codes) else codes, small.values, kept)


def read_numbers(texts: Sequence[str]) -> list[Value]:
    """Return different texts as numbers if all are, else as they are; an empty one is missing.

    Numbers are plain decimals. Where two texts would be one number (`1.1` and `1.10`), or one is
    more than a number (`007`, `+491`, `1_0`), all stay texts: `NA` is then a text as well.
    """
    known = [text for text in texts if text not in NOTHING]
    read = {text: number_in(text) for text in known}
    if known and None not in read.values() and len(set(read.values())) == len(set(known)):
        return [read.get(text) for text in texts]
    return [text or None for text in texts]


def number_in(text: str) -> int | float | None:
    """Return the number that a text is, and nothing more than a number; else None."""
    if len(text) > _LONGEST or not NUMERAL.fullmatch(text):
        return None
    number = int(text) if text.lstrip("-").isdigit() else _whole(float(text))
    return number if number == 0 or 1 <= abs(number) * _LARGEST <= _LARGEST**2 else None


def _whole(number: float) -> int | float:
    """Return 1.0 as 1: a number is one value, however it was written."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _rank(value: Value) -> tuple[int, float, str]:
    if value is None:
        return (3, 0.0, "")
    if isinstance(value, bool):
        return (1, value, "")
    if isinstance(value, str):
        return (2, 0.0, value)
    return (0, value, type(value).__name__)  # compared exactly, however large
