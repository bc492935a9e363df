"""Count unique rows for every subset of columns; equal rows may be stored once with a weight.

A row that is unique in some columns stays unique with more columns. So each subset extends a
smaller subset by one column, and only the rows that are not yet unique are examined again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.coded_table import Codes
from sfumato.dp.anonymity.equivalence_classes import counted
from sfumato.dp.refusal import Refused

Values = Sequence[str | int | float | bool] | NDArray[np.generic]
MAX_COLUMNS: Final = 12
MAX_SUBSETS: Final = 4095  # 2**12 - 1: the subsets of 12 columns


@dataclass(frozen=True)
class Uniqueness:
    """How many rows of a table are unique in one subset of the columns."""

    columns: tuple[str, ...]
    rows: int
    unique: int
    smallest: int  # size of the smallest equivalence class

    @property
    def share(self) -> float:
        """Return the share of the rows that are unique in these columns."""
        return self.unique / self.rows if self.rows else 0.0

    @property
    def finding(self) -> str:
        """Return as an English sentence how many rows are unique in these columns, for a report."""
        return f"{self.share:.0%} of {self.rows:,} are unique by {' + '.join(self.columns)}."


@dataclass(frozen=True)
class _Chosen:
    """The search state for one subset of the columns: how many rows are unique in these columns.

    The other rows equal at least one more row in them. `codes` has the number of each other row's
    equivalence class. A search step adds a column, which splits these classes further.
    """

    columns: tuple[str, ...]
    alone: int
    rows: Codes
    codes: Codes
    smallest: int


def all_subsets(
    table: Mapping[str, Values], most: int | None = None, weights: Codes | None = None
) -> tuple[Uniqueness, ...]:
    """Count unique rows for every subset of at most `most` columns, most unique rows first.

    Ties are sorted by fewer columns first. `weights` gives the number of people of each row.
    """
    most = len(table) if most is None else most
    _check(table, most)
    columns = [(name, _codes(np.asarray(values))) for name, values in table.items()]
    count = len(columns[0][1]) if columns else 0
    weight = np.ones(count, np.int64) if weights is None else weights
    people = int(weight.sum())
    nothing = _Chosen((), 0, np.arange(count), np.zeros(count, np.int64), people)
    found = [
        Uniqueness(one.columns, people, one.alone, one.smallest)
        for one in _grown(nothing, columns, most, weight)
    ]
    return tuple(sorted(found, key=lambda one: (-one.unique, len(one.columns), one.columns)))


def best_of_each_size(ranked: Sequence[Uniqueness]) -> tuple[Uniqueness, ...]:
    """Return the subset with most unique rows for each number of columns, from `all_subsets`."""
    best: dict[int, Uniqueness] = {}
    for one in ranked:
        best.setdefault(len(one.columns), one)
    return tuple(best[size] for size in sorted(best))


def _grown(
    chosen: _Chosen, columns: Sequence[tuple[str, Codes]], most: int, weight: Codes
) -> Iterator[_Chosen]:
    """Yield every larger subset: the chosen columns plus one to `most` of `columns`."""
    if most == 0:
        return
    for place, (name, codes) in enumerate(columns):
        more = _with(chosen, name, codes, weight)
        yield more
        yield from _grown(more, columns[place + 1 :], most - 1, weight)


def _with(chosen: _Chosen, name: str, codes: Codes, weight: Codes) -> _Chosen:
    columns = (*chosen.columns, name)
    if not len(chosen.rows):
        return _Chosen(columns, chosen.alone, chosen.rows, chosen.codes, chosen.smallest)
    added = codes[chosen.rows]
    keys = chosen.codes * (int(added.max()) + 1) + added
    both, sizes = _grouped(keys, weight[chosen.rows])
    is_shared = sizes[both] > 1
    return _Chosen(
        columns,
        chosen.alone + int(np.count_nonzero(~is_shared)),
        chosen.rows[is_shared],
        both[is_shared],
        1 if chosen.alone else int(sizes[sizes > 0].min()),
    )


def _grouped(keys: Codes, weight: Codes) -> tuple[Codes, Codes]:
    """Number groups of rows with equal keys; return each row's number, and each group's people."""
    codes = keys
    if int(keys.max()) >= 4 * len(keys) + 1024:  # smaller keys are codes already; no sorting
        codes = np.unique(keys, return_inverse=True)[1].astype(np.int64).ravel()
    return codes, counted(codes, 0, weight)


def _codes(values: NDArray[np.generic]) -> Codes:
    codes: Codes = np.unique(values, return_inverse=True)[1].astype(np.int64).ravel()
    return codes


def _check(table: Mapping[str, Values], most: int) -> None:
    choices = sum(comb(len(table), size) for size in range(1, min(most, len(table)) + 1))
    if choices > MAX_SUBSETS:
        raise Refused(
            "bad-request",
            f"{len(table)} columns have {choices:,} combinations, which is too many to search "
            "for unique rows.",
            f"Name at most {MAX_COLUMNS} columns, or combine fewer columns at once (--most).",
        )
