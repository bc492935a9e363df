"""What a look-alike table has kept of the table that it was made from.

It reads real rows, so it is for the owner alone (soundness rule 30): it decides nothing about a DP
release, and no share of it goes into one.
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

_PAIRS: Final = 3_000_000_000  # of cells that are held against each other
_LEAST_TRIED: Final = 200  # rows, however many they are held against
_TIE: Final = 1e-6  # distances that differ by less are alike: they are sums of rounded shares
_AT_ONCE: Final = 2_000_000  # distances in memory


@dataclass(frozen=True)
class KeptRows:
    """What the look-alike shows of a column's ends, and of values that one row has."""

    unique: int  # values that one original row has
    unique_kept: int  # of those, in the look-alike
    low_kept: bool
    high_kept: bool


@dataclass(frozen=True)
class Leaks:
    """How near a look-alike comes to its original; rows of it are counted, unless said."""

    rows: int
    whole: int  # rows that are, cell by cell, a row of the original
    whole_alone: int  # of those, rows that one original row alone is like
    partial: int  # rows like an original row in all columns but one, or in all
    same_place: int  # rows like the original row at their own place
    distance: float  # to the closest original row: the median, from 0 (the same) to 1
    distance_of_held_back: float | None  # the same for rows that the look-alike never saw
    nearer_than_held_back: float | None  # share of rows nearer to the original than to those
    nearer_by_chance: float | None  # that share, were the rows new people
    kept: dict[str, KeptRows]
    tried: int  # rows whose distances were measured: all, or every so many-th of many


def leaks(original: Table, look_alike: Table, held_back: Table | None = None) -> Leaks:
    """Return what the look-alike has kept; `held_back` are rows of the same kind that it never saw.

    Without rows held back nobody can say what nearness is knowledge of people at large.
    """
    names = [name for name in original.columns if name in look_alike.columns]
    if not names:
        raise Refused(
            "bad-request", "The two tables have no column in common.", "Give two of one kind."
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
    """One column of all the tables: codes that mean the same, and sizes where values have one."""

    codes: tuple[Codes, ...]
    sizes: Floats  # per code, from 0 to 1 over the real tables; none for what has no size
    values: tuple[Value, ...]  # per code


@dataclass(frozen=True)
class _Rows:
    """One table's rows: codes per column, and the columns that they are of."""

    codes: Codes  # rows x columns
    columns: tuple[_Column, ...]

    @staticmethod
    def of(columns: Sequence[_Column], table: int) -> _Rows:
        """Return the rows of the table at that place."""
        return _Rows(np.stack([one.codes[table] for one in columns], axis=1), tuple(columns))

    def at(self, rows: Codes) -> _Rows:
        """Return these rows."""
        return _Rows(self.codes[rows], self.columns)

    @property
    def different(self) -> _Rows:
        """Return each row once, however often it is there."""
        return _Rows(np.unique(self.codes, axis=0), self.columns)


def _together(columns: Sequence[Column]) -> _Column:
    """Return the tables' columns as one: a number is the same in all, however it is written.

    Sizes are held against the range of the real tables, not of the look-alike: a single value far
    out there would make all others look near. What is beyond the range is as far as can be.
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
    """Return a text as the number or the nothing that it stands for, whatever its column is."""
    if not isinstance(value, str):
        return value
    number = number_in(value)
    return (None if value in NOTHING else value) if number is None else number


def _whole(real: Codes, made: Codes) -> tuple[Bits, Bits]:
    """Say which made rows are a real row, and which are one that is alone."""
    both = np.concatenate([real, made])
    spans = [int(column.max(initial=0)) + 1 for column in both.T]
    key = key_of(list(zip(both.T, spans, strict=True)), len(both))
    _, key = np.unique(key, return_inverse=True)
    key = key.ravel()
    times = np.bincount(key[: len(real)], minlength=int(key.max()) + 1 if len(key) else 0)
    found = times[key[len(real) :]]
    return found > 0, found == 1


def _partly(real: Codes, made: Codes) -> Bits:
    """Say which made rows are like a real row in all columns but one."""
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
    """Return the rows whose closest are looked for: all, or as many as there is time for.

    Only these are fewer: each of them is held against every row of the other tables.
    """
    against = max(1, len(real.codes), *(len(other.codes) for other in others))
    most = max(_LEAST_TRIED, _PAIRS // (against * len(rows.columns)))
    if len(rows.codes) <= most:
        return rows
    return rows.at(np.linspace(0, len(rows.codes) - 1, most).astype(np.int64))


def _closest(rows: _Rows, among: _Rows) -> Floats:
    """Return how far each row is from its closest row there, as Gower (1971) measures it.

    Numbers differ by their distance over the range, all else by 0 or 1; the mean over the columns.
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
    """Return how far each of our values is from each of theirs, from 0 to 1."""
    differ = ours[:, None] != theirs[None, :]
    if np.isnan(column.sizes).all():
        return np.asarray(differ, np.float32)
    sizes = column.sizes.astype(np.float32)
    gap = np.abs(sizes[ours][:, None] - sizes[theirs][None, :])
    return np.asarray(np.where(np.isnan(gap), differ, np.minimum(gap, 1.0)), np.float32)


def _kept(column: _Column) -> KeptRows:
    """Return what of the original's single values and ends the look-alike shows."""
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
    """Return the share of rows nearer to the original; one as near to both counts by chance."""
    if not len(near):
        return 0.0
    is_tie = np.abs(near - to_rest) <= _TIE
    return float((~is_tie & (near < to_rest)).mean() + is_tie.mean() * _by_chance(parts))


def _by_chance(parts: Sequence[Table]) -> float:
    """Return that share for rows that are nobody's: the original's share of the real rows."""
    return parts[0].rows / max(1, parts[0].rows + parts[2].rows)
