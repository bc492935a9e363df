"""Dictionary-encoded tables: each column is an array of integer codes plus the list of values."""

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
NOTHING: Final = ("", "n/a", "N/A", "NA", "NULL", "null", "NaN", "nan")  # missing-value markers
NUMERAL: Final = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGEST: Final = 10**100  # of numbers; a larger (or tiny) number stays a string
_LONGEST: Final = 120  # characters of a number
Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A dictionary-encoded column: one code per row, and the list of values in sort order.

    A missing value is also in the list of values, as the last one.
    """

    name: str
    codes: Codes
    values: tuple[Value, ...]
    # the text of each value in the source file, if there is one
    texts: tuple[str, ...] | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """Return the text of each value as the source file wrote it, for cells not generalised."""
        return self.texts if self.texts is not None else tuple(map(spelled, self.values))

    @cached_property
    def is_ordered(self) -> bool:
        """Return whether all values are numbers, so that they have an order and distances."""
        return bool(self.values) and all(is_number(value) for value in self.values)

    def at(self, rows: Codes) -> Column:
        """Return the column for the selected rows only; the list of values stays the same.

        `rows` has the indices of these rows.
        """
        return Column(self.name, self.codes[rows], self.values, self.texts)


@dataclass(frozen=True)
class Table:
    """A table whose columns are integer codes plus the list of values that the codes stand for.

    A row with weight w stands for w equal original rows.
    """

    columns: Mapping[str, Column]
    rows: int
    weights: Codes | None = None

    @property
    def people(self) -> int:
        """Return the sum of the weights: the number of original rows."""
        return self.rows if self.weights is None else int(self.weights.sum())

    @property
    def weight(self) -> Codes:
        """Return the weight of each row: the number of original rows that it stands for."""
        return np.ones(self.rows, np.int64) if self.weights is None else self.weights

    def of(self, names: Iterable[str]) -> tuple[Column, ...]:
        """Return the columns with these names, in this order; refuse an unknown name."""
        return tuple(self._column(name) for name in names)

    def at(self, rows: Codes) -> Table:
        """Return a table with only the rows at these indices."""
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
    """Convert a value to text as in a released table; a missing value becomes an empty string."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def is_number(value: Value) -> bool:
    """Return whether a value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def bound_text(bound: Fraction) -> str:
    """Convert an interval bound to text, exactly if it has a finite decimal expansion."""
    if bound.denominator == 1:
        return str(bound.numerator)
    short = repr(float(bound))
    if Fraction(short) == bound:
        return short
    places = max(_times(bound.denominator, 2), _times(bound.denominator, 5))
    digits = str(abs(bound.numerator) * 10**places // bound.denominator).rjust(places + 1, "0")
    return f"{'-' * (bound < 0)}{digits[:-places]}.{digits[-places:]}"


def _times(number: int, prime: int) -> int:
    """Return how many times a prime divides a number.

    The factors 2 and 5 of a denominator determine how many decimals a fraction has.
    """
    times = 0
    while number % prime == 0:
        number, times = number // prime, times + 1
    return times


def coded(name: str, values: Sequence[Value]) -> Column:
    """Encode a list of cells as a column: one code per row, and the sorted list of values.

    The order is numbers, booleans, strings, then missing.
    """
    cleaned = [None if _is_nan(value) else value for value in values]
    kinds = {(type(value), value): None for value in cleaned}
    order = sorted(kinds, key=lambda kind: _rank(kind[1]))
    code_of = {kind: code for code, kind in enumerate(order)}
    codes = np.fromiter(
        (code_of[type(value), value] for value in cleaned), np.int64, count=len(cleaned)
    )
    return Column(name, codes, tuple(value for _, value in order))


def replaced(column: Column, values: Sequence[Value]) -> Column:
    """Replace the values of a column: each code gets the item of `values` at that code."""
    made = coded(column.name, values)
    codes = made.codes[column.codes] if len(values) else made.codes
    return written_as(column, Column(column.name, codes, made.values))


def written_as(before: Column, after: Column) -> Column:
    """Return the column `after`, with the source file's text for every value that `before` has too.

    `before` has the text of each value as the source file wrote it.
    """
    pairs = zip(before.values, before.written, strict=True)
    known = {(isinstance(value, bool), value): text for value, text in pairs}
    texts = [known.get((isinstance(v, bool), v), spelled(v)) for v in after.values]
    return Column(after.name, after.codes, after.values, tuple(texts))


def table_of(columns: Mapping[str, Sequence[Value]]) -> Table:
    """Build a table from dictionary-encoded columns, which must have the same number of rows."""
    made = {name: coded(name, values) for name, values in columns.items()}
    rows = len(next(iter(made.values())).codes) if made else 0
    return Table(made, rows)


def decoded(name: str, texts: Sequence[str], codes: Codes) -> Column:
    """Build a column from its distinct texts and a code per row.

    The texts are parsed as numbers if all are numbers. The column keeps the original text of each
    value.
    """
    small = coded(name, read_numbers(texts))
    written: list[set[str]] = [set() for _ in small.values]
    for code, text in zip(small.codes.tolist(), texts, strict=True):
        written[code].add(text)
    # a value has several texts only if it is missing
    kept = tuple(ways.pop() if len(ways) == 1 else "" for ways in written)
    return Column(name, small.codes[codes] if len(codes) else codes, small.values, kept)


def read_numbers(texts: Sequence[str]) -> list[Value]:
    """Parse distinct texts as numbers if all are numbers; an empty text is a missing value.

    Numbers are plain decimals. All texts stay strings if two of them are the same number (`1.1`
    and `1.10`), or if one is not a plain number (`007`, `+491`, `1_0`). `NA` is then a string too.
    """
    known = [text for text in texts if text not in NOTHING]
    read = {text: number_in(text) for text in known}
    if known and None not in read.values() and len(set(read.values())) == len(set(known)):
        return [read.get(text) for text in texts]
    return [text or None for text in texts]


def number_in(text: str) -> int | float | None:
    """Parse a text that is exactly a plain decimal number; return None otherwise."""
    if len(text) > _LONGEST or not NUMERAL.fullmatch(text):
        return None
    number = int(text) if text.lstrip("-").isdigit() else _whole(float(text))
    return number if number == 0 or 1 <= abs(number) * _LARGEST <= _LARGEST**2 else None


def _whole(number: float) -> int | float:
    """Convert 1.0 to 1, so that a number has one value, however the source wrote it."""
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
    return (0, value, type(value).__name__)  # Python compares int and float exactly
