"""Measure what synthetic data leaks: compare a synthetic table with its original.

The check reads real rows, so it is for the owner only (soundness rule 30). It has no influence on
a DP release, and no part of its result goes into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.coded_table import (
    NOTHING,
    Bits,
    Codes,
    Column,
    Floats,
    Table,
    Value,
    is_number,
    number_in,
)
from sfumato.dp.anonymity.equivalence_classes import key_of
from sfumato.dp.refusal import Refused

_PAIRS: Final = 3_000_000_000  # limit for the number of cell comparisons
_MIN_SAMPLE: Final = 200  # smallest sample of rows, whatever the size of the other tables
_TIE: Final = 1e-6  # distances that differ by less are ties, because of float rounding
_AT_ONCE: Final = 2_000_000  # distances in memory at a time


@dataclass(frozen=True)
class KeptRows:
    """Which unusual values of one original column are also in the synthetic table.

    These are its unique values, its smallest and its largest value.
    """

    unique: int  # values that exactly one original row has
    unique_kept: int  # of those, how many the synthetic table contains
    low_kept: bool
    high_kept: bool


@dataclass(frozen=True)
class Leaks:
    """How similar a synthetic table is to its original, as a sign of leaks.

    All counts are of synthetic rows.
    """

    rows: int
    whole: int  # rows that equal an original row in all columns
    whole_alone: int  # of those, rows that equal exactly one original row
    partial: int  # rows that equal an original row in all columns, or in all but one
    same_place: int  # rows that equal the original row with the same index
    distance: float  # median distance to the closest original row, from 0 (equal) to 1
    distance_of_held_back: float | None  # the same for the held-back rows
    # share of synthetic rows closer to the original than to the held-back rows
    nearer_than_held_back: float | None
    # the same share if the synthetic rows were independent of both tables
    nearer_by_chance: float | None
    kept: dict[str, KeptRows]
    tried: int  # rows whose distance was measured: all, or an evenly spaced sample


def leaks(original: Table, look_alike: Table, held_back: Table | None = None) -> Leaks:
    """Measure how much of an original table a synthetic table gives away, such as equal rows.

    `held_back` are real rows of the same population that were not used for the synthetic table.
    They show which similarity comes from the population and is no leak about individuals.
    """
    names = [name for name in original.columns if name in look_alike.columns]
    if not names:
        raise Refused(
            "bad-request",
            "The two tables have no column in common.",
            "Give two tables that share columns.",
        )
    rest = held_back if held_back is not None and held_back.rows else None
    parts = [original, look_alike] + ([] if rest is None else [rest])
    columns = [_together([part.of([name])[0] for part in parts]) for name in names]
    real, made, *others = (_Rows.of(columns, i) for i in range(len(parts)))
    whole, alone = _whole(real.codes, made.codes)
    tried = _tried(made, real, others)
    near = _closest(tried, real)
    to_rest = _closest(tried, others[0]) if others else None
    of_rest = _closest(_tried(others[0], real, []), real) if others else None
    return Leaks(
        rows=look_alike.rows,
        whole=int(whole.sum()),
        whole_alone=int(alone.sum()),
        partial=int((whole | _partly(real.codes, made.codes)).sum()),
        same_place=_same_place(real.codes, made.codes),
        distance=_median(near),
        distance_of_held_back=None if of_rest is None else _median(of_rest),
        nearer_than_held_back=None if to_rest is None else _nearer(near, to_rest, parts),
        nearer_by_chance=None if rest is None else _by_chance(parts),
        kept={name: _kept(column) for name, column in zip(names, columns, strict=True)},
        tried=len(near),
    )


@dataclass(frozen=True)
class _Column:
    """One column of all compared tables: equal values have equal codes in every table.

    Numeric values also have a size, scaled to 0..1.
    """

    codes: tuple[Codes, ...]
    sizes: Floats  # per code, scaled to 0..1 over the real tables; NaN for non-numbers
    values: tuple[Value, ...]  # per code


@dataclass(frozen=True)
class _Rows:
    """The rows of one compared table, as the codes that `_Column` gives to values of all tables."""

    codes: Codes  # rows x columns
    columns: tuple[_Column, ...]

    @staticmethod
    def of(columns: Sequence[_Column], table: int) -> _Rows:
        """Return the rows of one compared table; `table` is its index among them."""
        return _Rows(np.stack([one.codes[table] for one in columns], axis=1), tuple(columns))

    def at(self, rows: Codes) -> _Rows:
        """Return the selected rows of the table."""
        return _Rows(self.codes[rows], self.columns)

    @property
    def different(self) -> _Rows:
        """Return the distinct rows of the table."""
        return _Rows(np.unique(self.codes, axis=0), self.columns)


def _together(columns: Sequence[Column]) -> _Column:
    """Encode one column of all compared tables with common codes: equal values get equal codes.

    Sizes are scaled by the range of the real tables, not of the synthetic one. Otherwise a single
    synthetic outlier would make all other values look close. `_gap` limits a distance to 1.
    """
    code_of: dict[tuple[bool, Value], int] = {}
    codes = []
    for column in columns:
        read = [_read(value) for value in column.values]
        places = [code_of.setdefault((isinstance(v, bool), v), len(code_of)) for v in read]
        codes.append(np.array(places or [0], np.int64)[column.codes])
    values = tuple(value for _, value in code_of)
    real = np.unique(np.concatenate([codes[0], *codes[2:]]))
    known = [values[code] for code in real.tolist() if values[code] is not None]
    if not known or not all(is_number(value) for value in known):
        return _Column(tuple(codes), np.full(len(values), np.nan), values)
    numbers = [float(value) for value in known if value is not None]
    low, span = min(numbers), (max(numbers) - min(numbers)) or 1.0
    sizes = [(float(v) - low) / span if is_number(v) else np.nan for v in values]  # type: ignore[arg-type]  # is_number said so
    return _Column(tuple(codes), np.array(sizes, np.float64), values)


def _read(value: Value) -> Value:
    """Parse one text as a number or a missing value, so that columns of different tables compare.

    Unlike the file reader, it ignores the other values of the column. A text that is neither stays.
    """
    if not isinstance(value, str):
        return value
    number = number_in(value)
    return (None if value in NOTHING else value) if number is None else number


def _whole(real: Codes, made: Codes) -> tuple[Bits, Bits]:
    """Return two masks of synthetic rows: equal to a real row; equal to exactly one real row."""
    both = np.concatenate([real, made])
    spans = [int(column.max(initial=0)) + 1 for column in both.T]
    key = key_of(list(zip(both.T, spans, strict=True)), len(both))
    _, key = np.unique(key, return_inverse=True)
    key = key.ravel()
    times = np.bincount(key[: len(real)], minlength=int(key.max()) + 1 if len(key) else 0)
    found = times[key[len(real) :]]
    return found > 0, found == 1


def _partly(real: Codes, made: Codes) -> Bits:
    """Return a mask of synthetic rows that equal a real row in all columns, or in all but one."""
    columns = real.shape[1]
    found: Bits = np.zeros(len(made), bool)
    for left_out in range(columns):
        others = [i for i in range(columns) if i != left_out]
        if others:
            found |= _whole(real[:, others], made[:, others])[0]
    return found


def _same_place(real: Codes, made: Codes) -> int:
    rows = min(len(real), len(made))
    return int((real[:rows] == made[:rows]).all(axis=1).sum())


def _tried(rows: _Rows, real: _Rows, others: Sequence[_Rows]) -> _Rows:
    """Return the rows for the distance search: all, or an evenly spaced sample to limit the time.

    Only these rows are sampled; each is compared with every row of the other tables.
    """
    against = max(1, len(real.codes), *(len(other.codes) for other in others))
    most = max(_MIN_SAMPLE, _PAIRS // (against * len(rows.columns)))
    if len(rows.codes) <= most:
        return rows
    return rows.at(np.linspace(0, len(rows.codes) - 1, most).astype(np.int64))


def _closest(rows: _Rows, among: _Rows) -> Floats:
    """Return how far each row is from the closest row in `among`: the Gower distance (1971).

    The distance of two numbers is their difference over the range; of other values it is 0 or 1.
    The distance of two rows is the mean over the columns.
    """
    theirs, count = among.different.codes, len(rows.codes)
    if not len(theirs):
        return np.ones(count)
    once, of_row = np.unique(rows.codes, axis=0, return_inverse=True)
    found, step = np.ones(len(once)), max(1, _AT_ONCE // len(theirs))
    for start in range(0, len(once), step):
        part = once[start : start + step]
        apart = np.zeros((len(part), len(theirs)), np.float32)
        for axis, column in enumerate(rows.columns):
            apart += _gap(column, part[:, axis], theirs[:, axis])
        found[start : start + step] = apart.min(axis=1) / len(rows.columns)
    nearest: Floats = found[of_row.ravel()]
    return nearest


def _gap(column: _Column, ours: Codes, theirs: Codes) -> NDArray[np.float32]:
    """Return the distance, from 0 to 1, between every value in `ours` and every value in `theirs`.

    Both are codes of one column. Numbers differ by the difference of their scaled sizes, at most 1.
    Other values have the distance 0 if equal, or 1.
    """
    differ = ours[:, None] != theirs[None, :]
    if np.isnan(column.sizes).all():
        return np.asarray(differ, np.float32)
    sizes = column.sizes.astype(np.float32)
    gap = np.abs(sizes[ours][:, None] - sizes[theirs][None, :])
    return np.asarray(np.where(np.isnan(gap), differ, np.minimum(gap, 1.0)), np.float32)


def _kept(column: _Column) -> KeptRows:
    """Return which unusual values of an original column are also in the synthetic table.

    These are the values that occur once in the original, its smallest and its largest number.
    """
    times, there = (np.bincount(codes, minlength=len(column.values)) for codes in column.codes[:2])
    alone = times == 1
    ends = [
        column.values[code]
        for code in np.flatnonzero(times).tolist()
        if column.values[code] is not None
    ]
    sized = bool(ends) and all(is_number(value) for value in ends)
    shown = {column.values[code] for code in np.flatnonzero(there).tolist()} if sized else set()
    return KeptRows(
        unique=int(alone.sum()),
        unique_kept=int((alone & (there > 0)).sum()),
        low_kept=sized and min(ends) in shown,  # type: ignore[type-var]  # numbers
        high_kept=sized and max(ends) in shown,  # type: ignore[type-var]
    )


def _median(distances: Floats) -> float:
    return float(np.median(distances)) if len(distances) else 1.0


def _nearer(near: Floats, to_rest: Floats, parts: Sequence[Table]) -> float:
    """Return the share of synthetic rows that are closer to the original than to held-back rows.

    A share far above chance is a sign of leakage. A tie counts with the share expected by chance.
    """
    if not len(near):
        return 0.0
    is_tie = np.abs(near - to_rest) <= _TIE
    return float((~is_tie & (near < to_rest)).mean() + is_tie.mean() * _by_chance(parts))


def _by_chance(parts: Sequence[Table]) -> float:
    """Return the share of synthetic rows that would be closer to the original by chance alone.

    The others are closer to the held-back rows. It is the original's share of all real rows: the
    expectation if the synthetic rows are independent of the original.
    """
    return parts[0].rows / max(1, parts[0].rows + parts[2].rows)
