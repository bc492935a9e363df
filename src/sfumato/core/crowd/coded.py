"""A table as whole numbers: every column a row of codes, and what each code stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.refusal import Refused

Value = str | int | float | bool | None
Codes = NDArray[np.int64]
NOTHING: Final = ("", "n/a", "NA", "NULL", "null", "NaN", "nan")
Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """One column: a code per row, and the values in order; a missing value is a value, the last."""

    name: str
    codes: Codes
    values: tuple[Value, ...]

    @cached_property
    def is_ordered(self) -> bool:
        """Say whether the values are numbers, so that some are nearer than others."""
        return bool(self.values) and all(is_number(value) for value in self.values)

    def at(self, rows: Codes) -> Column:
        """Return the column at these rows; codes keep their meaning."""
        return Column(self.name, self.codes[rows], self.values)


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


def is_number(value: Value) -> bool:
    """Say whether a value has a size."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def bound_text(bound: Fraction) -> str:
    """Return the end of an interval, written down exactly as far as a float is."""
    return str(bound.numerator) if bound.denominator == 1 else repr(float(bound))


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


def table_of(columns: Mapping[str, Sequence[Value]]) -> Table:
    """Return the table of these columns, which are of one length."""
    made = {name: coded(name, values) for name, values in columns.items()}
    rows = len(next(iter(made.values())).codes) if made else 0
    return Table(made, rows)


def decoded(name: str, texts: Sequence[str], codes: Codes) -> Column:
    """Return the column whose rows are places among different texts, numbers read as numbers.

    What stands for nothing is missing; texts that read alike (`1.0` and `1.00`) become one value.
    """
    known = [None if text in NOTHING else text for text in texts]
    small = coded(name, read_numbers(known))
    return Column(name, small.codes[codes] if len(codes) else codes, small.values)


def read_numbers(values: Sequence[str | None]) -> list[Value]:
    """Return texts as numbers if all of them are finite numbers, else as they are."""
    known = [value for value in values if value is not None]
    read = {value: _number(value) for value in set(known)}
    if not known or any(number is None for number in read.values()):
        return list(values)
    return [None if value is None else read[value] for value in values]


def _number(text: str) -> int | float | None:
    stripped = text.strip()
    if len(stripped) > 1 and stripped[0] == "0" and stripped[1].isdigit():
        return None  # a code with leading zeros, such as a zip
    for kind in (int, float):
        try:
            number = kind(stripped)
        except ValueError:
            continue
        return _whole(number) if math.isfinite(number) else None
    return None


def _whole(number: int | float) -> int | float:
    """Return 1.0 as 1: a number is one value, however it was written."""
    return int(number) if float(number).is_integer() and abs(number) < 2**53 else number


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _rank(value: Value) -> tuple[int, float, str]:
    if value is None:
        return (3, 0.0, "")
    if isinstance(value, bool):
        return (1, float(value), "")
    if isinstance(value, str):
        return (2, 0.0, value)
    return (0, float(value), type(value).__name__)
