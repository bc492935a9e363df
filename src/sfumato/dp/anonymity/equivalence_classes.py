"""Equivalence classes: rows that are equal in the given columns; each row gets a class number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.dp.anonymity.coded_table import Codes, Column

_LARGEST = 2**62


@dataclass(frozen=True)
class Classes:
    """The equivalence classes of a table: the class number of each row, and the class sizes."""

    of_row: Codes
    sizes: Codes  # people in each class, at least one
    first: Codes  # the index of one row of each class

    @property
    def count(self) -> int:
        """Return the number of equivalence classes (groups of equal rows)."""
        return len(self.sizes)


def key_of(columns: Sequence[tuple[Codes, int]], rows: int) -> Codes:
    """Return one integer key per row, equal exactly for rows with equal codes in all columns.

    Each column is a pair of its codes and the number of its values.
    """
    key, span = np.zeros(rows, np.int64), 1
    for codes, count in columns:
        if span > _LARGEST // max(1, count):
            key, span = _small(key)
        key = key * count + codes if span > 1 else codes.astype(np.int64)
        span *= max(1, count)
    return key


def classes_of(columns: Sequence[Column], rows: int, weights: Codes | None = None) -> Classes:
    """Return the equivalence classes of rows that are equal in these columns.

    Without columns, all rows are in a single class.
    """
    key = key_of([(column.codes, len(column.values)) for column in columns], rows)
    return classes_of_keys(key, weights)


def classes_of_keys(key: Codes, weights: Codes | None = None) -> Classes:
    """Return the equivalence classes of a table from one integer key per row.

    Rows with equal keys are in the same class.
    """
    _, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    of_row = of_row.ravel()
    return Classes(of_row, counted(of_row, len(first), weights), first)


def counted(of_row: Codes, count: int, weights: Codes | None) -> Codes:
    """Count the rows of each class, or sum their weights; return the size of each class.

    Sums are exact below 2**53.
    """
    return np.bincount(of_row, weights, minlength=count).astype(np.int64)


def _small(key: Codes) -> tuple[Codes, int]:
    found, small = np.unique(key, return_inverse=True)
    return small.ravel(), len(found)
