"""Special uniques: score rows that are unique in few columns, as SUDA does.

A row is unique in a set of columns if no other row has the same values there. The set is minimal
if the row is not unique in any proper subset. A row with many and small minimal sets is easy to
find for an attacker who happens to know some columns (Elliot and others 2002).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod

import numpy as np

from sfumato.dp.anonymity.coded_table import Bits, Codes, Floats, Table
from sfumato.dp.anonymity.equivalence_classes import counted, key_of
from sfumato.dp.refusal import Refused

MAX_SUBSETS = 20_000


@dataclass(frozen=True)
class SpecialUniques:
    """The SUDA scores of all rows, and the fewest columns in which each row is unique.

    The number of columns is 0 if a row is not unique.
    """

    scores: Floats  # from 0 to 1; 1 if the row is unique in every single column
    fewest: Codes
    by_column: dict[str, float]  # share of all scores that comes from sets with the column


def special_uniques(table: Table, columns: Sequence[str], max_columns: int = 3) -> SpecialUniques:
    """Compute SUDA scores of all rows, from sets of at most `max_columns` of these columns."""
    named = table.of(columns)
    max_columns = min(max_columns, len(named))
    if sum(comb(len(named), size) for size in range(1, max_columns + 1)) > MAX_SUBSETS:
        raise Refused(
            "bad-request",
            "These columns have too many combinations to search for unique rows.",
            "Name fewer columns, or lower max_columns, the most columns in one combination.",
        )
    small = [(column.codes, len(column.values)) for column in named]
    scores, fewest = np.zeros(table.rows), np.zeros(table.rows, np.int64)
    share = np.zeros(len(named))
    alone: dict[tuple[int, ...], Bits] = {}  # only for sets of one size, to save memory
    for size in range(1, max_columns + 1):
        weight = _weight(len(named), size, max_columns)
        below, alone = alone, {}
        for choice in combinations(range(len(named)), size):
            is_alone = _alone([small[i] for i in choice], table)
            if size < max_columns:  # the largest sets are no subset of another
                alone[choice] = is_alone
            minimal = is_alone.copy()
            for part in combinations(choice, size - 1):
                minimal &= ~below.get(part, np.zeros(table.rows, bool))
            scores += minimal * weight
            fewest[minimal & (fewest == 0)] = size
            share[list(choice)] += minimal.sum() * weight
    total = _weight(len(named), 1, max_columns) * len(named)
    every = scores.sum()
    by_column = {
        c.name: float(s / every) if every else 0.0 for c, s in zip(named, share, strict=True)
    }
    return SpecialUniques(scores / total if total else scores, fewest, by_column)


def _weight(columns: int, size: int, max_columns: int) -> int:
    """Return the SUDA score of one minimal unique set of `size` columns; smaller sets score higher.

    It is the number of ordered ways to extend the set to `max_columns` of all `columns` columns.
    """
    return prod(columns - i for i in range(size, max_columns))


def _alone(columns: Sequence[tuple[Codes, int]], table: Table) -> Bits:
    key = key_of(columns, table.rows)
    span = prod(count for _, count in columns)
    if span > 8 * table.rows + 1024:
        _, key = np.unique(key, return_inverse=True)
        span = int(key.max()) + 1 if len(key) else 0
    alone: Bits = counted(key, max(1, span), table.weights)[key] == 1
    return alone
