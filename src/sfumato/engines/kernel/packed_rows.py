"""Rows that another engine hands out, as the kernel counts them (contribution_bounding.py).

A row comes as few whole numbers: `a` is the person and a place, `b` the number or code of the cell
and a place, w0, w1, ... are values. With a stored order of cells, the place in `a` is that of the
cell among the person's, in `b` of the row in the cell; else `a` has that of the row among all of
the person's, and `b` no place. Ranges hold all rows of their persons, however the rows lie; the
kernel puts in order what is not. Where no stored order serves, persons' keys come beside the rows,
and the order of a person's cells is the kernel's own (keyed_order.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.contribution_bounding import (
    MOST_CODES,
    dense,
    inhabited,
    merged,
    parts_of,
)
from sfumato.engines.kernel.keyed_order import Hashing
from sfumato.engines.kernel.row_arrays import PERSON_BITS, PLACE_BITS, Columns, Part, Words, chooses
from sfumato.engines.shared.cell_assembly import Columns as Answer
from sfumato.engines.shared.cold_path import Cold

Ordered = Callable[[Columns], Words]  # rows -> the secret order of their cells

_PLACES: Final = np.int64((1 << PLACE_BITS) - 1)
_SIGN: Final = np.uint64(1 << 63)


@dataclass(frozen=True)
class Extent:
    """How many persons and rows a table has, and how many codes its column of texts."""

    persons: int
    rows: int
    codes: int

    def ranges(self, rows: int) -> list[tuple[int, int]]:
        """Return ranges of persons, from and below, with about so many rows each.

        None has more persons than the kernel can number: few of them may have rows here.
        """
        many = min(max(1, self.persons * rows // max(1, self.rows)), 1 << PERSON_BITS)
        return [(low, low + many) for low in range(0, self.persons, many)]

    def cells(self, cold: Cold) -> int | None:
        """Return how many cells there are, if they are numbered; private codes only by people."""
        if cold.cells is not None:
            return cold.cells
        counts_people = any(tally.kind == "people" for tally in cold.tallies)
        return self.codes if counts_people and 0 < self.codes <= MOST_CODES else None


def extent_sql(cold: Cold) -> str:
    """Print how many persons and rows there are, and codes."""
    codes = f"coalesce(max({cold.keys[0].texts}) + 1, 0)" if cold.keys else "0"
    return f"SELECT coalesce(max(person) + 1, 0), count(*), {codes} FROM {cold.crowds}"


def texts_sql(cold: Cold) -> str:
    """Print each code with its text; whoever is in a cell has one first row there."""
    place = str(cold.keys[0].texts)[1:]
    return f"SELECT DISTINCT c{place}, v{place} FROM {cold.crowds} WHERE n{place} = 1"


def needs_keys(cold: Cold) -> bool:
    """Say whether cells are chosen by an order that no stored place tells."""
    return chooses(cold) and not cold.has_rank


def keys_sql(cold: Cold, is_first: str) -> str:
    """Print person and key of a range of persons; their first rows are those that `is_first` says.

    A key has 64 bits and no sign; it comes with half of its range taken away, so that it fits.
    """
    signed = f"CAST(CAST(person_key AS DECIMAL(20, 0)) - {1 << 63} AS BIGINT)"
    where = f"{is_first} AND person >= ? AND person < ?"
    return f"SELECT person, {signed} AS person_key FROM {cold.crowds} WHERE {where}"


def ordered_by(salt: str, cold: Cold, keys: Columns, ends: tuple[int, int]) -> Ordered:
    """Return the kernel's order of the cells of a range's persons."""
    low, high = ends
    person_keys = np.zeros(high - low, np.uint64)
    person_keys[keys["person"] - low] = keys["person_key"].view(np.uint64) ^ _SIGN
    return partial(Hashing(salt, {}).order, person_keys, cold=cold, low=low)


def unordered(_columns: Columns) -> Words:
    """Stand for an order where none is needed."""
    raise Bug("cells are chosen by a stored order only")


def parts_of_rows(
    packed: Columns, cold: Cold, ends: tuple[int, int], extent: Extent, ordered: Ordered
) -> list[Part]:
    """Return what the persons of a range add."""
    return parts_of(_unpacked(packed, cold), cold, extent.cells(cold), ends, ordered)


def whole_of(parts: Iterable[Part], cold: Cold, extent: Extent) -> Part:
    """Return the sums over all parts: of every cell by its number, or with the codes there are."""
    cells = extent.cells(cold)
    if cells is None:
        return merged([*parts], cold)
    columns = dense(parts, cold, cells)
    if cold.cells is None:
        return inhabited(columns, cold)
    return Part((columns["cell"],), tuple(columns[f"t{i}"] for i in range(len(cold.tallies))), ())


def named(whole: Part, cold: Cold, texts: dict[int, str]) -> Answer:
    """Return the columns of the cells: `cell`, or g0 with the texts of the codes; then t0, ..."""
    (codes,) = whole.keys
    totals = {f"t{i}": tally for i, tally in enumerate(whole.tallies)}
    if cold.cells is not None:
        return {"cell": codes, **totals}
    found = np.empty(len(codes), dtype=object)
    found[:] = [texts[code] for code in codes.tolist()]
    return {"g0": found, **totals}


def slices(packed: Columns, rows: int) -> Iterator[tuple[Columns, tuple[int, int]]]:
    """Cut a large range between persons into smaller ones, however its rows lie."""
    person, begin = packed["a"] >> PLACE_BITS, 0
    if not bool(np.all(person[1:] >= person[:-1])):
        order = np.argsort(person, kind="stable")
        person, packed = person[order], {name: rows[order] for name, rows in packed.items()}
    while begin < len(person):
        last = person[min(begin + rows, len(person)) - 1]
        end = int(np.searchsorted(person, last, side="right"))
        some = {name: column[begin:end] for name, column in packed.items()}
        yield some, (int(person[begin]), int(last) + 1)
        begin = end


def _unpacked(packed: Columns, cold: Cold) -> Columns:
    columns: dict[str, NDArray[Any]] = {"person": packed["a"] >> PLACE_BITS}
    code = "cell" if cold.cells is not None else "g0"
    if cold.has_rank:
        columns["place"] = (packed["a"] & _PLACES).astype(np.uint32)
        columns["rr"] = (packed["b"] & _PLACES).astype(np.uint32)
        columns[code] = packed["b"] >> PLACE_BITS
    else:
        columns["rr"] = (packed["a"] & _PLACES).astype(np.uint32)
        columns |= {code: packed["b"]} if "b" in packed else {}
    summed = {tally.value for tally in cold.tallies if tally.kind == "sum"}
    for i in range(cold.values):
        values = packed[f"w{i}"]
        columns[f"w{i}"] = values if i in summed else values.astype(bool)
    return columns
