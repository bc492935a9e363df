"""Cutting each person's rows and cells, and adding up the rest; no part hangs on another person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.row_arrays import (
    MOST,
    ORDER_BITS,
    PLACE_BITS,
    Part,
    Places,
    Rows,
    Summed,
    Whole,
    Words,
)
from sfumato.engines.shared.cold_path import NULL, Cold, ColdTally

_EXACT: Final = 2**53  # below it, float64 adds whole numbers exactly
_U: Final = np.uint64


def part_of(rows: Rows, cold: Cold, cells: int | None) -> Part:
    """Return what these persons add, each with at most so many rows a cell, and so many cells."""
    place, head = _sorted(rows)
    begins = _begins(place, head, rows.cell)
    if rows.order is not None:
        place, begins = _chosen(place, head, begins, cold.max_groups)
    sizes = np.diff(np.append(begins, len(place)))
    if len(sizes) and int(sizes.max()) > cold.max_rows:
        place, begins, sizes = _first_rows(place, begins, sizes, cold.max_rows)
    firsts = place[begins]
    cell = np.zeros(len(begins), np.int64) if rows.cell is None else rows.cell[firsts]
    amounts, most = _amounts(rows, cold, place, begins, sizes)
    return by_cell(cell, tuple(key[firsts] for key in rows.keys), amounts, most, cells)


def _sorted(rows: Rows) -> tuple[Places, Words]:
    """Return the rows' places in order of person, cell's order and place, and those first two."""
    words = rows.person << _U(ORDER_BITS)
    if rows.order is not None:
        words |= rows.order
    elif rows.cell is not None:
        words = _unchosen(rows.person, rows.cell)
    words <<= _U(PLACE_BITS)
    words |= np.arange(len(rows), dtype=_U)
    words.sort(kind="stable")  # rows lie person by person, which this sort is quick on
    place = (words & _U((1 << PLACE_BITS) - 1)).astype(np.intp)
    words >>= _U(PLACE_BITS)
    if rows.order is not None and rows.cell is not None:
        _parted(place, words, rows.cell)
    return place, words


def _unchosen(person: Words, cell: Whole) -> Words:
    """Return words for cells of which all are kept: any order that tells them apart will do."""
    if int(cell.max()) < 1 << ORDER_BITS:
        return (person << _U(ORDER_BITS)) | cell.astype(_U)
    raise Bug("more public cells than a question may have")


def _parted(place: Places, head: Words, cell: Whole) -> None:
    """Put cells of one person that share an order one after the other, by value."""
    cells = cell[place]
    mixed_up = (head[1:] == head[:-1]) & (cells[1:] != cells[:-1])
    if not mixed_up.any():
        return
    which = np.isin(head, head[1:][mixed_up])
    some = place[which]
    place[which] = some[np.lexsort((some, cell[some], head[which]))]


def _begins(place: Places, head: Words, cell: Whole | None) -> Places:
    """Return where each person's cells begin."""
    new = np.ones(len(place), bool)
    np.not_equal(head[1:], head[:-1], out=new[1:])
    if cell is not None:
        cells = cell[place]
        new[1:] |= cells[1:] != cells[:-1]
    return np.flatnonzero(new)


def _chosen(place: Places, head: Words, begins: Places, max_groups: int) -> tuple[Places, Places]:
    """Return only the rows of each person's first cells, and where those cells begin now."""
    person = head[begins] >> _U(ORDER_BITS)
    keep = np.ones(len(begins), bool)
    keep[max_groups:] = person[max_groups:] != person[:-max_groups]
    if keep.all():
        return place, begins
    sizes = np.diff(np.append(begins, len(place)))
    kept = sizes[keep]
    return place[np.repeat(keep, sizes)], np.cumsum(kept) - kept


def _first_rows(
    place: Places, begins: Places, sizes: Places, max_rows: int
) -> tuple[Places, Places, Places]:
    """Return only the first rows of each cell, by their place."""
    nth = np.arange(len(place)) - np.repeat(begins, sizes)
    sizes = np.minimum(sizes, max_rows)
    return place[nth < max_rows], np.cumsum(sizes) - sizes, sizes


def _amounts(
    rows: Rows, cold: Cold, place: Places, begins: Places, sizes: Places
) -> tuple[list[Whole], list[int]]:
    """Return each tally of each person's cells, and the most that any sum of them can be."""
    values = [_summed(column[place], begins) for column in rows.values]
    amounts, most = [], []
    for tally in cold.tallies:
        amount, bound = amount_of(tally, values, sizes)
        amounts.append(amount)
        most.append(bound * len(place))
    return amounts, most


def _summed(column: NDArray[Any], begins: Places) -> Summed:
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


def amount_of(tally: ColdTally, values: Sequence[Summed], sizes: Places) -> tuple[Whole, int]:
    """Return a tally of each person's cells; whole numbers wrap, so only what comes out counts."""
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
            if bound * int(sizes.max(initial=0)) > MOST:
                raise OverflowError
            clamped = np.clip(amount, tally.low, tally.high)
            clamped[value.count == 0] = 0  # the sum of nothing is nothing (soundness rule 15)
            return clamped, max(1, abs(tally.low), abs(tally.high))
        case _:
            raise Bug("a kernel cannot add this up")


def _most_of_a_row(tally: ColdTally, value: Summed) -> int:
    """Return how far a row moves the sum; where none has a value, its middle moves nothing.

    Else whoever asks of one person's values would be told by a failure that there are none.
    """
    if not value.count.any():
        return 1
    return max(1, *(abs(tally.scale * v + tally.offset) for v in (value.least, value.largest)))


def by_cell(
    cell: Whole,
    keys: tuple[NDArray[Any], ...],
    amounts: Sequence[Whole],
    most: Sequence[int],
    cells: int | None,
) -> Part:
    """Return the sums of each cell, over these persons."""
    if any(bound > MOST for bound in most):
        raise OverflowError
    if cells is not None:
        sums = [
            into(cell, amount, cells, bound) for amount, bound in zip(amounts, most, strict=True)
        ]
        return Part((), tuple(sums), tuple(most))
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    firsts = order[begins]
    sums = [np.add.reduceat(amount[order], begins) for amount in amounts]
    return Part(tuple(key[firsts] for key in keys), tuple(sums), tuple(most))


def into(cell: Whole, amount: Whole, cells: int, most: int) -> Whole:
    if not len(cell):
        return np.zeros(cells, np.int64)
    if most < _EXACT:
        return np.bincount(cell, weights=amount, minlength=cells).astype(np.int64)
    sums = np.zeros(cells, np.int64)
    np.add.at(sums, cell, amount)
    return sums
