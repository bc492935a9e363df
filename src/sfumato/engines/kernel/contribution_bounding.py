"""Enforce contribution bounds and sum integers, one range of persons at a time (ranks.proof.md).

A cell is one group of the answer. DuckDB returns the rows grouped by person. Each row gets a 64-bit
sort key `person | cell order | row index`. After the sort, one pass drops each person's rows beyond
the bound per cell, keeps the person's first cells, and sums.

The order of a person's cells is a keyed PRF of the person and of the cell's key *values*, cut to a
fixed width. Ties are resolved by value. So the order depends on no other person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.bounded_sums import add_into_cells, amount_of, by_cell, part_of
from sfumato.engines.kernel.keyed_order import Hashing, person_keys, stored_codes, text_keys
from sfumato.engines.kernel.row_arrays import (
    INDEX_BITS,
    MAX_INT64,
    PERSON_BITS,
    Columns,
    Int64Array,
    Part,
    RowIndexes,
    Rows,
    SortKeys,
    Summed,
    must_choose_cells,
)
from sfumato.engines.shared.cold_path import MAX_SLOTS, NULL, KernelKey, KernelPlan
from sfumato.engines.shared.prepared_table import CROWD_BITS

# --- Summing by stored ranks without sorting: one bit set per person holds the person's groups


_BITS: Final = 64
_U: Final = np.uint64


def by_bits(columns: Columns, cold: KernelPlan, cells: int) -> tuple[Part, Columns]:
    """Sum the rows of most persons by bit sets; return the sums, and all other persons' rows.

    The bits of one word are a person's groups, by their stored ranks. The lowest `max_groups` set
    bits are kept. This serves persons with few groups and no row to drop; the rows of all others
    must be sorted. Sorting would count the same rows.
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
    """Return the smallest unsigned integer type whose bits can hold a person's set of group ranks.

    Ranks start at one.
    """
    return next((w for w in (np.uint8, np.uint16, np.uint32) if cells < 8 * w().itemsize), _U)


def _odd(columns: Columns, cold: KernelPlan, cells: int) -> NDArray[np.bool_]:
    """Return a mask of rows whose persons must be sorted, as bit sets can't bound them.

    Such a row has a rank over `max_rows` in its group, or a group rank over 63. No group rank
    exceeds the number of groups, so with few groups that test isn't needed.
    """
    odd: NDArray[np.bool_] = columns["rr"] > cold.max_rows
    return odd if cells < _BITS else odd | (columns["place"] >= _BITS)


def _odd_ones(
    columns: Columns,
    odd: NDArray[np.bool_],
    begins: RowIndexes,
    sizes: RowIndexes,
    limit: NDArray[np.uint8],
) -> Columns:
    """Return all rows of persons with a row that `_odd` flags: they must be sorted instead.

    Set the `limit` of these persons to 0, so that none of their rows is summed by bit sets.
    """
    rows = np.flatnonzero(odd)  # usually few, so the next steps are cheap
    persons = np.unique(np.searchsorted(begins, rows, side="right") - 1)
    limit[persons] = 0
    many = sizes[persons]
    others = np.repeat(begins[persons] - np.cumsum(many) + many, many) + np.arange(many.sum())
    return {name: column[others] for name, column in columns.items()}


def _persons_of(person: NDArray[Any]) -> tuple[RowIndexes, RowIndexes]:
    """Return the start index and the number of rows of each person, in rows grouped by person."""
    begins = np.concatenate(([0], np.flatnonzero(person[1:] != person[:-1]) + 1))
    return begins, np.diff(begins, append=len(person))


def _nothing(cold: KernelPlan, cells: int) -> Part:
    zero = np.zeros(cells, np.int64)
    return Part((), tuple(zero for _ in cold.tallies), tuple(0 for _ in cold.tallies))


def _first_dropped(masks: SortKeys, max_groups: int) -> NDArray[np.uint8]:
    """Return the rank of each person's first group beyond `max_groups`; 255 if none is."""
    for _ in range(max_groups):
        masks = masks & (masks - (masks > 0))
    lowest = masks & (~masks + _U(1))
    places = np.bitwise_count(lowest - _U(1))
    return np.where(masks == 0, np.uint8(255), places).astype(np.uint8)


def by_stored_slot(columns: Columns, cold: KernelPlan, ends: tuple[int, int], cells: int) -> Part:
    """Sum the rows of the persons `ends[0]` to `ends[1]`, whose contributions the SQL has bounded.

    The SQL uses stored ranks, so this function drops no row.
    """
    low, high = ends
    values = [columns[f"w{i}"] for i in range(cold.values)]
    slot = columns["person"].astype(np.int64)
    slot *= cold.max_groups
    slot += columns["place"]
    slot -= low * cold.max_groups + 1  # ranks start at one
    return by_slot(columns["cell"], values, cold, (slot, (high - low) * cold.max_groups), cells)


def by_slot(
    cell: Int64Array,
    values: Sequence[NDArray[Any]],
    cold: KernelPlan,
    slots: tuple[Int64Array, int],
    cells: int,
) -> Part:
    """Sum rows per slot (one group of one person), then sum the slots per group of the answer."""
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


def _in_slots(
    column: NDArray[Any], slot: Int64Array, sizes: RowIndexes, there: RowIndexes
) -> Summed:
    """Return the sum and count of a column's values for each non-empty slot.

    A slot is one group of one person. `there` lists the slots that are not empty.
    """
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
    total = add_into_cells(slot, column, slots, max(abs(least), abs(largest)) * len(column))
    return Summed(total[there], count, least, largest)


def _by_row(cell: Int64Array, values: Sequence[NDArray[Any]], cold: KernelPlan, cells: int) -> Part:
    """Sum rows per group of the answer directly.

    This is used if no tally depends on a person's rows as a whole.
    """
    cell = cell.astype(np.intp)
    sizes = np.bincount(cell, minlength=cells)
    there = np.arange(cells)
    summed = [_in_slots(column, cell, sizes, there) for column in values]
    tallies, most = [], []
    for tally in cold.tallies:
        amount, bound = amount_of(tally, summed, sizes)
        tallies.append(amount)
        most.append(bound * len(cell))
    if any(bound > MAX_INT64 for bound in most):
        raise OverflowError
    return Part((), tuple(tallies), tuple(most))


RANGE_ROWS: Final = 1 << 19
MAX_CODES: Final = 1 << 20
_VALUE: Final = re.compile(r"w[0-9]+")
_EPOCH: Final = datetime(1970, 1, 1)


def add_up(
    connection: duckdb.DuckDBPyConnection, cold: KernelPlan, salt: str, threads: int
) -> Columns:
    """Bound contributions and sum over all persons, by a kernel plan; return the result columns.

    The columns are `cell` (group number) for public keys, or g0, g1, ... for private keys. The
    tallies t0, t1, ... follow.
    """
    hashing = Hashing(salt, text_keys(connection, cold))
    ranges = person_ranges(connection, cold.row_counts_table)
    cells = _codes(connection, cold) if cold.cells is None else cold.cells
    stored = stored_codes(connection, cold)
    places = {name: np.argsort(codes) for name, codes in stored.items()}

    def part(low_high: tuple[int, int]) -> list[Part]:
        with connection.cursor() as cursor:
            return _range_parts(cursor, cold, (hashing, places), cells, *low_high)

    with ThreadPoolExecutor(max(1, min(threads, len(ranges)))) as pool:
        parts = (part for found in pool.map(part, ranges) for part in found)
        if cold.cells is not None:
            return dense(parts, cold, cold.cells)
        if cells is not None:
            whole = without_empty_cells(dense(parts, cold, cells), cold)
        else:
            whole = merged([*parts], cold)
        return _named(connection, _as_stored(whole, stored), cold)


def _as_stored(part: Part, stored: dict[str, NDArray[np.int64]]) -> Part:
    """Return a result with the stored codes of private texts instead of their places."""
    keys = tuple(
        stored[f"g{i}"][key] if f"g{i}" in stored else key for i, key in enumerate(part.keys)
    )
    return Part(keys, part.tallies, part.bounds)


def _codes(connection: duckdb.DuckDBPyConnection, cold: KernelPlan) -> int | None:
    """Return how many codes a query's single private text key has, if they can number the groups.

    They can only if people are counted, because that count later removes empty groups. There must
    be one such key, with at most 2**20 codes (MAX_CODES). Otherwise return None.
    """
    if (
        len(cold.keys) != 1
        or cold.keys[0].texts is None
        or all(tally.kind != "people" for tally in cold.tallies)
    ):
        return None
    found = connection.execute(f"SELECT count(*) FROM {cold.keys[0].texts}").fetchone()
    return found[0] if found is not None and 0 < found[0] <= MAX_CODES else None


# --- ranges of persons ---------------------------------------------------------------------------


def person_ranges(connection: duckdb.DuckDBPyConnection, crowds: str) -> list[tuple[int, int]]:
    """Split the persons into ranges [low, high) with about 2**19 rows each (RANGE_ROWS).

    No range has more persons than a row's sort key can number (PERSON_BITS bits). This matters if
    only few of the card's persons have rows in the table.
    """
    found = connection.execute(f"SELECT few, n FROM {crowds} ORDER BY few").fetchnumpy()
    few = np.asarray(found["few"], np.int64)
    if not len(few):
        return []
    by_rows = (np.cumsum(np.asarray(found["n"], np.int64)) - 1) // RANGE_ROWS
    by_person = few >> (PERSON_BITS - CROWD_BITS)
    is_new = (by_rows[1:] != by_rows[:-1]) | (by_person[1:] != by_person[:-1])
    begins = few[np.append(True, is_new)] << CROWD_BITS
    ends = (few[np.append(is_new, True)] + 1) << CROWD_BITS
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


# --- one range -----------------------------------------------------------------------------------


def _range_parts(  # noqa: PLR0913, PLR0917  # runs in a thread
    cursor: duckdb.DuckDBPyConnection,
    cold: KernelPlan,
    read: tuple[Hashing, dict[str, NDArray[np.int64]]],  # the order of groups, places of codes
    cells: int | None,
    low: int,
    high: int,
) -> list[Part]:
    hashing, places = read
    found = cursor.execute(cold.sql, [*cold.parameters, low, high]).fetchnumpy()
    columns = {name: _plain(name, column) for name, column in found.items()}
    columns |= {name: place[columns[name]] for name, place in places.items()}

    def order(some: Columns) -> SortKeys:
        return hashing.order(person_keys(cursor, low, high), some, cold, low)

    return parts_of(columns, cold, cells, (low, high), order)


def parts_of(
    columns: Columns,
    cold: KernelPlan,
    cells: int | None,
    ends: tuple[int, int],
    ordered: Callable[[Columns], SortKeys],
) -> list[Part]:
    """Bound and sum the rows of a range of persons; return partial sums per group of the answer.

    `ordered` computes the keyed order of each person's groups if none is stored.
    """
    if cold.has_slot and cells is not None:
        return [by_stored_slot(columns, cold, ends, cells)]
    if not len(columns["person"]):
        return []
    parts: list[Part] = []
    if cold.has_rank and cells is not None and cold.max_groups <= MAX_SLOTS:
        part, columns = by_bits(columns, cold, cells)
        parts.append(part)
        if not len(columns["person"]):
            return parts
    columns = _in_order(columns)
    cell = _cell_column(columns, cold)
    order = None
    if must_choose_cells(cold):
        order = columns["place"].astype(_U) if cold.has_rank else ordered(columns)
    rows = Rows(
        columns["person"].astype(_U) - _U(ends[0]),
        cell,
        order,
        tuple(columns[f"g{i}"] for i in range(len(cold.keys))),
        tuple(columns[f"w{i}"] for i in range(cold.values)),
    )
    return parts + [part_of(some, cold, cells) for some in _slices(rows)]


def _plain(name: str, column: NDArray[Any]) -> NDArray[Any]:
    """Return a column as an unmasked array: the number NULL (a constant) stands for each null.

    Only value columns (w0, w1, ...) may have nulls.
    """
    if not isinstance(column, np.ma.MaskedArray):
        return np.asarray(column)
    if not np.ma.is_masked(column):
        return np.asarray(column.data)
    if _VALUE.fullmatch(name) is None:
        raise Bug("a null reached the kernel")
    return np.where(np.ma.getmaskarray(column), NULL, column.data)


def _in_order(columns: Columns) -> Columns:
    """Return rows sorted by person and by their rank among the person's rows (`rr`).

    Rows that are in this order already are not sorted.
    """
    place = (columns["person"].astype(_U) << _U(INDEX_BITS)) | columns["rr"].astype(_U)
    if bool(np.all(place[1:] > place[:-1])):
        return columns
    order = np.argsort(place, kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _slices(rows: Rows) -> list[Rows]:
    """Split rows between persons into slices whose row indexes fit in 20 bits (INDEX_BITS).

    A row's 64-bit sort key has only these bits for the index.
    """
    begins, begin = [0], 0
    if len(rows) and int(rows.person[-1]) >> PERSON_BITS:
        raise Bug("a range has more persons than a word can number")
    while len(rows) - begin > 1 << INDEX_BITS:
        begin = int(np.searchsorted(rows.person, rows.person[begin + (1 << INDEX_BITS)]))
        if begin == begins[-1]:
            raise Bug("a person has more rows than a card allows")
        begins.append(begin)
    ends = [*begins[1:], len(rows)]
    return [rows.cut(begin, end) for begin, end in zip(begins, ends, strict=True)]


def _cell_column(columns: Columns, cold: KernelPlan) -> Int64Array | None:
    if cold.cells is not None:
        return columns["cell"].astype(np.int64) if "cell" in columns else None
    if len(cold.keys) == 1:
        return columns["g0"].astype(np.int64)
    return combined_keys([columns[f"g{i}"].astype(np.int64) for i in range(len(cold.keys))])


def combined_keys(keys: Sequence[Int64Array]) -> Int64Array:
    """Combine several grouping keys into one integer per row, in the order of the key tuples."""
    cell = keys[0]
    for more in keys[1:]:
        codes = [_narrow(cell), _narrow(more)]
        size = int(codes[1].max()) + 1
        if (int(codes[0].max()) + 1) * size >= MAX_INT64:
            codes = [np.unique(code, return_inverse=True)[1].astype(np.int64) for code in codes]
            size = int(codes[1].max()) + 1
        cell = codes[0] * np.int64(size) + codes[1]
    return cell


def _narrow(code: Int64Array) -> Int64Array:
    """Renumber codes so that the smallest is zero, in the same order."""
    least = int(code.min())
    if int(code.max()) - least >= MAX_INT64:
        return np.unique(code, return_inverse=True)[1].astype(np.int64)
    return code - np.int64(least)


def dense(parts: Iterable[Part], cold: KernelPlan, cells: int) -> Columns:
    """Add up partial sums into arrays with one place per numbered group (dense arrays).

    One part is added at a time, to save memory.
    """
    totals = [np.zeros(cells, np.int64) for _ in cold.tallies]
    bounds = [0 for _ in cold.tallies]
    for part in parts:
        for index, tally in enumerate(part.tallies):
            bounds[index] += part.bounds[index]
            if bounds[index] > MAX_INT64:
                raise OverflowError
            totals[index] += tally
    return {"cell": np.arange(cells), **{f"t{i}": total for i, total in enumerate(totals)}}


def without_empty_cells(columns: Columns, cold: KernelPlan) -> Part:
    """Return only the groups that have at least one person."""
    people = next(i for i, tally in enumerate(cold.tallies) if tally.kind == "people")
    there = np.flatnonzero(columns[f"t{people}"])
    return Part((there,), tuple(columns[f"t{i}"][there] for i in range(len(cold.tallies))), ())


def merged(parts: Sequence[Part], cold: KernelPlan) -> Part:
    """Add up partial sums over private keys; return the groups in the order of their keys."""
    bounds = [sum(part.bounds[i] for part in parts) for i in range(len(cold.tallies))]
    if any(bound > MAX_INT64 for bound in bounds):
        raise OverflowError
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Part(tuple(nothing for _ in cold.keys), tuple(nothing for _ in cold.tallies), ())
    keys = [np.concatenate([part.keys[i] for part in parts]) for i in range(len(cold.keys))]
    amounts = [np.concatenate([p.tallies[i] for p in parts]) for i in range(len(cold.tallies))]
    cell = combined_keys([key.astype(np.int64) for key in keys])
    return by_cell(cell, tuple(keys), amounts, bounds, None)


# --- codes back to key values --------------------------------------------------------------------


def _named(connection: duckdb.DuckDBPyConnection, part: Part, cold: KernelPlan) -> Columns:
    columns = {
        f"g{i}": _READ[key.kind](column) if key.texts is None else _texts(connection, column, key)
        for i, (key, column) in enumerate(zip(cold.keys, part.keys, strict=True))
    }
    return columns | {f"t{i}": tally for i, tally in enumerate(part.tallies)}


def _texts(
    connection: duckdb.DuckDBPyConnection, codes: NDArray[Any], key: KernelKey
) -> NDArray[Any]:
    """Return the texts of the given codes from the dictionary of a private text key.

    No other text is read.
    """
    there, which = np.unique(codes, return_inverse=True)
    found = connection.execute(
        "SELECT value FROM (SELECT unnest(CAST(? AS UINTEGER[])) AS code)"
        f" JOIN {key.texts} USING (code) ORDER BY code",
        [there.tolist()],
    ).fetchnumpy()
    return np.asarray(np.asarray(found["value"], dtype=object)[which])


def _objects(column: NDArray[Any], read: Callable[[Any], object]) -> NDArray[Any]:
    made = np.empty(len(column), dtype=object)
    made[:] = [read(value) for value in column.tolist()]
    return made


def _day(days: int) -> str:
    return _moment(days * 86_400_000_000)  # as DuckDB writes dates that came through numpy


def _moment(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(
        sep=" ", timespec="microseconds"
    )


_READ: Final[dict[str, Callable[[NDArray[Any]], NDArray[Any]]]] = {
    "code": lambda column: column.astype(np.int64),
    "number": lambda column: column.astype(np.int64),
    "boolean": lambda column: column.astype(bool),
    "date": lambda column: _objects(column, _day),
    "timestamp": lambda column: _objects(column, _moment),
}
