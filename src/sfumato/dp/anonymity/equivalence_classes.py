"""Rows that look alike, put together: one number per row says which class it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Column

_LARGEST = 2**62


@dataclass(frozen=True)
class Classes:
    """The classes of a table: which one each row is in, and how many people are in each."""

    of_row: Codes
    sizes: Codes  # none is zero
    first: Codes  # the place of one row of each class

    @property
    def count(self) -> int:
        """Return how many classes there are."""
        return len(self.sizes)


def key_of(columns: Sequence[tuple[Codes, int]], rows: int) -> Codes:
    """Return one number per row, the same for rows that are alike in these (codes, how many)."""
    key, span = np.zeros(rows, np.int64), 1
    for codes, count in columns:
        if span > _LARGEST // max(1, count):
            key, span = _small(key)
        key = key * count + codes if span > 1 else codes.astype(np.int64)
        span *= max(1, count)
    return key


def classes_of(columns: Sequence[Column], rows: int, weights: Codes | None = None) -> Classes:
    """Return the classes of rows that are alike in all these columns; without columns, one."""
    key = key_of([(column.codes, len(column.values)) for column in columns], rows)
    return classes_of_keys(key, weights)


def classes_of_keys(key: Codes, weights: Codes | None = None) -> Classes:
    """Return the classes of rows with the same key."""
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    of_row = of_row.ravel()
    return Classes(of_row, counted(of_row, len(first), weights), first)


def counted(of_row: Codes, count: int, weights: Codes | None) -> Codes:
    """Return how many people have each number below `count`; exact below 2**53."""
    return np.bincount(of_row, weights, minlength=count).astype(np.int64)


def _small(key: Codes) -> tuple[Codes, int]:
    found, small = np.unique(key, return_inverse=True)
    return small.ravel(), len(found)
