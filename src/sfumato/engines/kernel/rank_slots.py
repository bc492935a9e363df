"""Adding up by stored ranks without sorting: a person's groups are the bits of one word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.kernel.bounded_sums import amount_of, by_cell, into
from sfumato.engines.kernel.row_arrays import (
    MOST,
    Columns,
    Part,
    Places,
    Summed,
    Whole,
    Words,
)
from sfumato.engines.shared.cold_path import NULL, Cold

_BITS: Final = 64
_U: Final = np.uint64


def by_bits(columns: Columns, cold: Cold, cells: int) -> tuple[Part, Columns]:
    """Return what most persons add, and the rows of the others.

    A person's groups are the bits of one word, by stored place; the first bits of those that are
    there are kept. It serves persons with few groups, none of whose rows has to be cut; the others
    are sorted. Both ways count the same rows.
    """
    person, place = columns["person"], columns["place"]
    begins, sizes = _persons_of(person)
    each = person[begins]
    if not bool(np.all(each[1:] > each[:-1])):
        return _nothing(cold, cells), columns
    bits = np.left_shift(1, place, dtype=_word(cells))
    masks = np.bitwise_or.reduceat(bits, begins).astype(_U)
    limit = _first_dropped(masks, cold.max_groups)
    rest = _odd_ones(columns, _odd(columns, cold, cells), begins, sizes, limit)
    kept = np.flatnonzero(place < np.repeat(limit, sizes))
    names = ("cell" if "cell" in columns else "g0", *(f"w{i}" for i in range(cold.values)))
    cell, *values = (columns[name][kept] for name in names)
    if any(t.kind == "people" or t.low is not None for t in cold.tallies):
        nobody = np.repeat(np.arange(len(begins)), sizes)[kept]
        nth = np.bitwise_count(masks[nobody] & (bits[kept].astype(_U) - _U(1)))
        slots = nobody * cold.max_groups + nth
        return by_slot(cell, values, cold, (slots, len(begins) * cold.max_groups), cells), rest
    return _by_row(cell, values, cold, cells), rest


def _word(cells: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest word that has a bit for every place; places begin at one."""
    return next((w for w in (np.uint8, np.uint16, np.uint32) if cells < 8 * w().itemsize), _U)


def _odd(columns: Columns, cold: Cold, cells: int) -> NDArray[np.bool_]:
    """Say of each row whether bits cannot serve its person: no place is beyond the cells."""
    odd: NDArray[np.bool_] = columns["rr"] > cold.max_rows
    return odd if cells < _BITS else odd | (columns["place"] >= _BITS)


def _odd_ones(
    columns: Columns,
    odd: NDArray[np.bool_],
    begins: Places,
    sizes: Places,
    limit: NDArray[np.uint8],
) -> Columns:
    """Return the rows of persons whom bits do not serve; none of their rows is left to count."""
    rows = np.flatnonzero(odd)  # few, as a rule: what follows is for each of them, not each row
    persons = np.unique(np.searchsorted(begins, rows, side="right") - 1)
    limit[persons] = 0
    many = sizes[persons]
    others = np.repeat(begins[persons] - np.cumsum(many) + many, many) + np.arange(many.sum())
    return {name: column[others] for name, column in columns.items()}


def _persons_of(person: NDArray[Any]) -> tuple[Places, Places]:
    """Return where each person's rows begin, and how many they are."""
    begins = np.concatenate(([0], np.flatnonzero(person[1:] != person[:-1]) + 1))
    return begins, np.diff(begins, append=len(person))


def _nothing(cold: Cold, cells: int) -> Part:
    zero = np.zeros(cells, np.int64)
    return Part((), tuple(zero for _ in cold.tallies), tuple(0 for _ in cold.tallies))


def _first_dropped(masks: Words, max_groups: int) -> NDArray[np.uint8]:
    """Return the place of the first group of each person that does not count."""
    for _ in range(max_groups):
        masks = masks & (masks - (masks > 0))
    lowest = masks & (~masks + _U(1))
    places = np.bitwise_count(lowest - _U(1))
    return np.where(masks == 0, np.uint8(255), places).astype(np.uint8)


def by_stored_slot(columns: Columns, cold: Cold, ends: tuple[int, int], cells: int) -> Part:
    """Return what a range of persons adds of whom stored ranks alone said which rows count."""
    low, high = ends
    values = [columns[f"w{i}"] for i in range(cold.values)]
    slot = columns["person"].astype(np.int64)
    slot *= cold.max_groups
    slot += columns["place"]
    slot -= low * cold.max_groups + 1  # places begin at one
    return by_slot(columns["cell"], values, cold, (slot, (high - low) * cold.max_groups), cells)


def by_slot(
    cell: Whole, values: Sequence[NDArray[Any]], cold: Cold, slots: tuple[Whole, int], cells: int
) -> Part:
    """Return what groups of persons add: each row is of a slot, a slot is one group of a person."""
    slot, many = slots
    sizes = np.bincount(slot, minlength=many)
    there = np.flatnonzero(sizes)
    cell_of = np.zeros(many, cell.dtype)
    cell_of[slot] = cell
    summed = [_in_slots(column, slot, sizes, there) for column in values]
    amounts, most = [], []
    for tally in cold.tallies:
        amount, bound = amount_of(tally, summed, sizes[there])
        amounts.append(amount)
        most.append(bound * len(slot))
    return by_cell(cell_of[there].astype(np.int64), (), amounts, most, cells)


def _in_slots(column: NDArray[Any], slot: Whole, sizes: Places, there: Places) -> Summed:
    """Return the sums and counts of slots with so many rows each; of those that are there."""
    slots, counts = len(sizes), sizes
    if column.dtype == np.bool_:
        count = np.bincount(slot[column], minlength=slots)[there].astype(np.int64)
        return Summed(count, count, 0, 0)
    is_value = column != NULL
    if not is_value.all():
        column, slot = column[is_value], slot[is_value]
        counts = np.bincount(slot, minlength=slots)
    count = counts[there].astype(np.int64)
    if not len(column):
        return Summed(count, count, 0, 0)
    least, largest = int(column.min()), int(column.max())
    total = into(slot, column, slots, max(abs(least), abs(largest)) * len(column))
    return Summed(total[there], count, least, largest)


def _by_row(cell: Whole, values: Sequence[NDArray[Any]], cold: Cold, cells: int) -> Part:
    """Return what rows add, where no tally looks at a person's rows together."""
    cell = cell.astype(np.intp)
    sizes = np.bincount(cell, minlength=cells)
    there = np.arange(cells)
    summed = [_in_slots(column, cell, sizes, there) for column in values]
    tallies, most = [], []
    for tally in cold.tallies:
        amount, bound = amount_of(tally, summed, sizes)
        tallies.append(amount)
        most.append(bound * len(cell))
    if any(bound > MOST for bound in most):
        raise OverflowError
    return Part((), tuple(tallies), tuple(most))
