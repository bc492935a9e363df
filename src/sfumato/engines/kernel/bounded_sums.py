"""Drop each person's rows and cells beyond the contribution bounds, then sum per cell.

A cell is one group of the answer. What one person contributes never depends on another person's
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.row_arrays import (
    INDEX_BITS,
    MAX_INT64,
    ORDER_BITS,
    Int64Array,
    Part,
    RowIndexes,
    Rows,
    SortKeys,
    Summed,
)
from sfumato.engines.shared.cold_path import NULL, KernelPlan, KernelTally

_EXACT: Final = 2**53  # below this bound, float64 adds integers exactly
_U: Final = np.uint64


def part_of(rows: Rows, cold: KernelPlan, cells: int | None) -> Part:
    """Bound each person's contributions, then sum per group of the answer; return the sums.

    Each person counts in at most `max_groups` groups, with at most `max_rows` rows in each.
    """
    rows_sorted, head = _sorted(rows)
    begins = _begins(rows_sorted, head, rows.cell)
    if rows.order is not None:
        rows_sorted, begins = _chosen(rows_sorted, head, begins, cold.max_groups)
    sizes = np.diff(np.append(begins, len(rows_sorted)))
    if len(sizes) and int(sizes.max()) > cold.max_rows:
        rows_sorted, begins, sizes = _first_rows(rows_sorted, begins, sizes, cold.max_rows)
    first_rows = rows_sorted[begins]
    cell = np.zeros(len(begins), np.int64) if rows.cell is None else rows.cell[first_rows]
    amounts, most = _amounts(rows, cold, rows_sorted, begins, sizes)
    return by_cell(cell, tuple(key[first_rows] for key in rows.keys), amounts, most, cells)


def _sorted(rows: Rows) -> tuple[RowIndexes, SortKeys]:
    """Sort rows by person, then by the keyed order of the person's groups, then by index.

    Return the sorted row indexes. Also return a word for each row, which encodes its person and the
    order of its group.
    """
    words = rows.person << _U(ORDER_BITS)
    if rows.order is not None:
        words |= rows.order
    elif rows.cell is not None:
        words = _unchosen(rows.person, rows.cell)
    words <<= _U(INDEX_BITS)
    words |= np.arange(len(rows), dtype=_U)
    words.sort(kind="stable")  # fast, because the rows are already grouped by person
    indexes = (words & _U((1 << INDEX_BITS) - 1)).astype(np.intp)
    words >>= _U(INDEX_BITS)
    if rows.order is not None and rows.cell is not None:
        _parted(indexes, words, rows.cell)
    return indexes, words


def _unchosen(person: SortKeys, cell: Int64Array) -> SortKeys:
    """Return the sort words of rows if every group of a person counts, so no order is needed.

    The words only separate persons and groups.
    """
    if int(cell.max()) < 1 << ORDER_BITS:
        return (person << _U(ORDER_BITS)) | cell.astype(_U)
    raise Bug("more public cells than a question may have")


def _parted(place: RowIndexes, head: SortKeys, cell: Int64Array) -> None:
    """Sort groups of one person that tie in the keyed order by their value, in place.

    Two groups tie if their hashes agree in the first ORDER_BITS (24) bits.
    """
    cells = cell[place]
    mixed_up = (head[1:] == head[:-1]) & (cells[1:] != cells[:-1])
    if not mixed_up.any():
        return
    which = np.isin(head, head[1:][mixed_up])
    some = place[which]
    place[which] = some[np.lexsort((some, cell[some], head[which]))]


def _begins(place: RowIndexes, head: SortKeys, cell: Int64Array | None) -> RowIndexes:
    """Return the start index of each person's groups in the sorted rows."""
    new = np.ones(len(place), bool)
    np.not_equal(head[1:], head[:-1], out=new[1:])
    if cell is not None:
        cells = cell[place]
        new[1:] |= cells[1:] != cells[:-1]
    return np.flatnonzero(new)


def _chosen(
    place: RowIndexes, head: SortKeys, begins: RowIndexes, max_groups: int
) -> tuple[RowIndexes, RowIndexes]:
    """Keep the rows of each person's first `max_groups` groups.

    Return the rows, and the start index of each group.
    """
    person = head[begins] >> _U(ORDER_BITS)
    keep = np.ones(len(begins), bool)
    keep[max_groups:] = person[max_groups:] != person[:-max_groups]
    if keep.all():
        return place, begins
    sizes = np.diff(np.append(begins, len(place)))
    kept = sizes[keep]
    return place[np.repeat(keep, sizes)], np.cumsum(kept) - kept


def _first_rows(
    place: RowIndexes, begins: RowIndexes, sizes: RowIndexes, max_rows: int
) -> tuple[RowIndexes, RowIndexes, RowIndexes]:
    """Keep the first `max_rows` rows of each person in each group.

    Return the rows, and the new starts and sizes of the groups.
    """
    nth = np.arange(len(place)) - np.repeat(begins, sizes)
    sizes = np.minimum(sizes, max_rows)
    return place[nth < max_rows], np.cumsum(sizes) - sizes, sizes


def _amounts(
    rows: Rows, cold: KernelPlan, place: RowIndexes, begins: RowIndexes, sizes: RowIndexes
) -> tuple[list[Int64Array], list[int]]:
    """Return what each person adds to each group, for every tally, and an upper bound of each sum.

    A tally is one sum or count of the query.
    """
    values = [_summed(column[place], begins) for column in rows.values]
    amounts, most = [], []
    for tally in cold.tallies:
        amount, bound = amount_of(tally, values, sizes)
        amounts.append(amount)
        most.append(bound * len(place))
    return amounts, most


def _summed(column: NDArray[Any], begins: RowIndexes) -> Summed:
    if not len(begins):
        nothing = np.zeros(0, np.int64)
        return Summed(nothing, nothing, 0, 0)
    if column.dtype == np.bool_:
        count = np.add.reduceat(column, begins, dtype=np.int64)
        return Summed(count, count, 0, 0)
    there = column != NULL
    if there.all():
        count = np.diff(np.append(begins, len(column))).astype(np.int64)
        return Summed(np.add.reduceat(column, begins), count, int(column.min()), int(column.max()))
    count = np.add.reduceat(there, begins, dtype=np.int64)
    total = np.add.reduceat(np.where(there, column, 0), begins)
    largest = int(column.max())
    least = int(column.min(where=there, initial=largest)) if largest != NULL else 0
    return Summed(total, count, least, max(largest, least))


def amount_of(
    tally: KernelTally, values: Sequence[Summed], sizes: RowIndexes
) -> tuple[Int64Array, int]:
    """Return what each person adds to a tally in each group, and the most that one row can add.

    A tally is one sum or count of the query. Intermediate int64 results may wrap around. That is
    harmless if the final result fits.
    """
    match tally.kind:
        case "rows":
            return sizes.astype(np.int64), 1
        case "people":
            return np.ones(len(sizes), np.int64), 1
        case "values":
            return values[tally.value].count, 1
        case "sum":
            value = values[tally.value]
            amount = value.total * np.int64(tally.scale) + value.count * np.int64(tally.offset)
            bound = _most_of_a_row(tally, value)
            if tally.low is None or tally.high is None:
                return amount, bound
            if bound * int(sizes.max(initial=0)) > MAX_INT64:
                raise OverflowError
            clamped = np.clip(amount, tally.low, tally.high)
            clamped[value.count == 0] = 0  # an empty sum is 0, not clamped (soundness rule 15)
            return clamped, max(1, abs(tally.low), abs(tally.high))
        case _:
            raise Bug("a kernel cannot add this up")


def _most_of_a_row(tally: KernelTally, value: Summed) -> int:
    """Return the largest absolute amount that a row adds to a sum; 1 if no row has a value.

    Without values, the offset of the tally must not count. Otherwise an overflow error could reveal
    that a person has no values.
    """
    if not value.count.any():
        return 1
    return max(1, *(abs(tally.scale * v + tally.offset) for v in (value.least, value.largest)))


def by_cell(
    cell: Int64Array,
    keys: tuple[NDArray[Any], ...],
    amounts: Sequence[Int64Array],
    most: Sequence[int],
    cells: int | None,
) -> Part:
    """Sum the persons' contributions per group of the answer.

    Raise `OverflowError` if any sum could exceed 63 bits.
    """
    if any(bound > MAX_INT64 for bound in most):
        raise OverflowError
    if cells is not None:
        sums = [
            add_into_cells(cell, amount, cells, bound)
            for amount, bound in zip(amounts, most, strict=True)
        ]
        return Part((), tuple(sums), tuple(most))
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    firsts = order[begins]
    sums = [np.add.reduceat(amount[order], begins) for amount in amounts]
    return Part(tuple(key[firsts] for key in keys), tuple(sums), tuple(most))


def add_into_cells(cell: Int64Array, amount: Int64Array, cells: int, bound: int) -> Int64Array:
    if not len(cell):
        return np.zeros(cells, np.int64)
    if bound < _EXACT:
        return np.bincount(cell, weights=amount, minlength=cells).astype(np.int64)
    sums = np.zeros(cells, np.int64)
    np.add.at(sums, cell, amount)
    return sums
