"""Adding up by stored ranks without sorting: a person's groups are the bits of one word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.engines.cold import NULL, Cold, ColdTally
from sfumato.engines.kernel_sums import amount_of, by_cell, into
from sfumato.engines.kernel_types import (
    PLACE_BITS,
    Columns,
    Part,
    Places,
    Summed,
    Whole,
    Words,
)

_BITS: Final = 64
_U: Final = np.uint64


def by_bits(columns: Columns, cold: Cold, cells: int) -> tuple[Part, Columns]:
    """Return what most persons add, and the rows of the others.

    A person's groups are the bits of one word, by stored place; the first bits of those that are
    there are kept. It serves persons with few groups, none of whose rows has to be cut; the others
    are sorted. Both ways count the same rows.
    """
    person = columns["person"]
    if len(person) > 1 << PLACE_BITS or not bool(np.all(person[1:] >= person[:-1])):
        return _nothing(cold, cells), columns
    columns, rest = _apart(columns, cold)
    if not len(columns["person"]):
        return _nothing(cold, cells), rest
    place = columns["place"]
    begins, sizes = _persons_of(columns["person"])
    bits = np.left_shift(_U(1), place, dtype=_U)
    masks = np.bitwise_or.reduceat(bits, begins)
    limit = _first_dropped(masks, cold.max_groups)
    kept = np.flatnonzero(place < np.repeat(limit, sizes))
    some = {name: column[kept] for name, column in columns.items()}
    cell = some["cell" if "cell" in some else "g0"].astype(np.int64)
    if any(t.kind == "people" or t.low is not None for t in cold.tallies):
        person = np.repeat(np.arange(len(begins)), sizes)[kept]
        nth = np.bitwise_count(masks[person] & (bits[kept] - _U(1)))
        slots = len(begins) * cold.max_groups
        cell, amounts, most = _by_slot(some, cold, cell, person * cold.max_groups + nth, slots)
    else:
        amounts, most = _by_row(some, cold)
    return by_cell(cell, (), amounts, most, cells), rest


def _apart(columns: Columns, cold: Cold) -> tuple[Columns, Columns]:
    """Return the rows of persons whom bits serve, and those of the others."""
    odd = (columns["place"] >= _BITS) | (columns["rr"] > cold.max_rows)
    if not odd.any():
        return columns, {name: column[:0] for name, column in columns.items()}
    begins, sizes = _persons_of(columns["person"])
    is_odd = np.repeat(np.logical_or.reduceat(odd, begins), sizes)
    others = np.flatnonzero(is_odd)
    most = np.flatnonzero(~is_odd)
    return (
        {name: column[most] for name, column in columns.items()},
        {name: column[others] for name, column in columns.items()},
    )


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


def _by_slot(
    columns: Columns, cold: Cold, cell: Whole, slot: Places, slots: int
) -> tuple[Whole, list[Whole], list[int]]:
    """Return each person's groups: their cell and each tally; a slot is a group of a person."""
    sizes = np.bincount(slot, minlength=slots)
    there = np.flatnonzero(sizes)
    cell_of = np.zeros(slots, np.int64)
    cell_of[slot] = cell
    values = [_in_slots(columns[f"w{i}"], slot, slots, there) for i in range(cold.values)]
    amounts, most = [], []
    for tally in cold.tallies:
        amount, bound = amount_of(tally, values, sizes[there])
        amounts.append(amount)
        most.append(bound * len(slot))
    return cell_of[there], amounts, most


def _in_slots(column: NDArray[Any], slot: Places, slots: int, there: Places) -> Summed:
    if column.dtype == np.bool_:
        count = np.bincount(slot[column], minlength=slots)[there].astype(np.int64)
        return Summed(count, count, 0, 0)
    is_value = column != NULL
    if not is_value.all():
        column, slot = column[is_value], slot[is_value]
    count = np.bincount(slot, minlength=slots)[there].astype(np.int64)
    if not len(column):
        return Summed(count, count, 0, 0)
    least, largest = int(column.min()), int(column.max())
    total = into(slot, column, slots, max(abs(least), abs(largest)) * len(column))
    return Summed(total[there], count, least, largest)


def _by_row(columns: Columns, cold: Cold) -> tuple[list[Whole], list[int]]:
    """Return what each row adds to each tally, where no tally looks at a person's rows together."""
    values = [columns[f"w{i}"] for i in range(cold.values)]
    amounts, most = [], []
    for tally in cold.tallies:
        amount, bound = _row_amount(tally, values, len(columns["person"]))
        amounts.append(amount)
        most.append(bound * len(amount))
    return amounts, most


def _row_amount(tally: ColdTally, values: Sequence[NDArray[Any]], rows: int) -> tuple[Whole, int]:
    if tally.kind == "rows":
        return np.ones(rows, np.int64), 1
    column = values[tally.value]
    if tally.kind == "values":
        return (column if column.dtype == np.bool_ else column != NULL).astype(np.int64), 1
    there = column != NULL
    amount = np.where(there, column * np.int64(tally.scale) + np.int64(tally.offset), 0)
    if not there.any():
        return amount, 1
    least = int(column.min(where=there, initial=int(column.max())))
    edges = [tally.scale * v + tally.offset for v in (least, int(column.max()))]
    return amount, max(1, *(abs(edge) for edge in edges))
