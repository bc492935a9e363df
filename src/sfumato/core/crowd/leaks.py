"""What a look-alike table has kept of the table that it was made from.

It reads real rows, so it is for the owner alone (rules.md, 30): it decides nothing about a DP
release, and no share of it goes into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.core.crowd.coded import Bits, Codes, Column, Floats, Table, Value, is_number
from sfumato.core.refusal import Refused

MOST_ROWS: Final = 20_000  # of each table, where every row is held against every row
_AT_ONCE: Final = 4_000_000  # distances in memory


@dataclass(frozen=True)
class Kept:
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
    kept: dict[str, Kept]
    is_sampled: bool = False  # distances of a sample of the rows


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
    coded = [_together([part.of([name])[0] for part in parts]) for name in names]
    real, made = (np.stack([column[i] for column in coded], axis=1) for i in range(2))
    whole, alone = _whole(real, made)
    near = _closest(look_alike, original, names)
    to_rest = None if rest is None else _closest(look_alike, rest, names)
    of_rest = None if rest is None else _closest(rest, original, names)
    return Leaks(
        rows=look_alike.rows,
        whole=int(whole.sum()),
        whole_alone=int(alone.sum()),
        partial=int(_partly(real, made).sum()),
        same_place=_same_place(real, made),
        distance=_median(near),
        distance_of_held_back=None if of_rest is None else _median(of_rest),
        nearer_than_held_back=None if to_rest is None else _share(near < to_rest),
        kept={name: _kept(original.of([name])[0], look_alike.of([name])[0]) for name in names},
        is_sampled=max(part.rows for part in parts) > MOST_ROWS,
    )


def _together(columns: Sequence[Column]) -> list[Codes]:
    """Return the columns' rows in codes that mean the same in all of them."""
    code_of: dict[tuple[bool, Value], int] = {}
    made = []
    for column in columns:
        places = [code_of.setdefault((isinstance(v, bool), v), len(code_of)) for v in column.values]
        made.append(np.array(places or [0], np.int64)[column.codes])
    return made


def _whole(real: Codes, made: Codes) -> tuple[Bits, Bits]:
    """Say which made rows are a real row, and which are one that is alone."""
    both = np.concatenate([real, made])
    _, key = np.unique(both, axis=0, return_inverse=True)
    key = key.ravel()
    times = np.bincount(key[: len(real)], minlength=int(key.max()) + 1 if len(key) else 0)
    found = times[key[len(real) :]]
    return found > 0, found == 1


def _partly(real: Codes, made: Codes) -> Bits:
    """Say which made rows are like a real row in all columns but at most one."""
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


def _closest(rows: Table, among: Table, names: Sequence[str]) -> Floats:
    """Return how far each row is from its closest row there, as Gower (1971) measures it.

    Numbers differ by their distance over the range, all else by 0 or 1; the mean over the columns.
    Of large tables every so many-th row is taken.
    """
    ours, theirs = _thinned(rows), _thinned(among)
    found = np.ones(ours.rows)
    pairs = [_sized(ours.of([name])[0], theirs.of([name])[0]) for name in names]
    step = max(1, _AT_ONCE // max(1, theirs.rows))
    for start in range(0, ours.rows if theirs.rows else 0, step):
        part = slice(start, start + step)
        apart = np.zeros((len(found[part]), theirs.rows))
        for one, other, is_sized in pairs:
            gap = one[part, None] - other[None, :]
            apart += np.abs(gap) if is_sized else gap != 0
        found[part] = apart.min(axis=1) / len(names)
    return found


def _sized(one: Column, other: Column) -> tuple[Floats, Floats, bool]:
    """Return both columns' rows as numbers from 0 to 1, or as codes that mean the same."""
    numbers = [float(v) for v in (*one.values, *other.values) if is_number(v)]  # type: ignore[arg-type]  # numbers
    if one.is_ordered and other.is_ordered:
        low, span = min(numbers), (max(numbers) - min(numbers)) or 1.0
        scaled = [(np.array(c.values, np.float64)[c.codes] - low) / span for c in (one, other)]
        return scaled[0], scaled[1], True
    codes = [codes.astype(np.float64) for codes in _together([one, other])]
    return codes[0], codes[1], False


def _thinned(table: Table) -> Table:
    if table.rows <= MOST_ROWS:
        return table
    return table.at(np.linspace(0, table.rows - 1, MOST_ROWS).astype(np.int64))


def _kept(original: Column, look_alike: Column) -> Kept:
    times = np.bincount(original.codes, minlength=len(original.values))
    there = {(isinstance(v, bool), v) for v in _present(look_alike)}
    alone = [v for v, n in zip(original.values, times.tolist(), strict=True) if n == 1]
    ends = [v for v in _present(original) if v is not None]
    sized = bool(ends) and all(is_number(v) for v in ends)
    return Kept(
        unique=len(alone),
        unique_kept=sum((isinstance(v, bool), v) in there for v in alone),
        low_kept=sized and (False, ends[0]) in there,
        high_kept=sized and (False, ends[-1]) in there,
    )


def _present(column: Column) -> list[Value]:
    return [column.values[code] for code in np.unique(column.codes)]


def _median(distances: Floats) -> float:
    return float(np.median(distances)) if len(distances) else 1.0


def _share(of: Bits) -> float:
    return float(of.mean()) if len(of) else 0.0
