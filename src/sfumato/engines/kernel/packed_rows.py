"""Unpack rows from PostgreSQL or Spark for the kernel (contribution_bounding.py).

A row arrives as a few integers. `a` holds the person and a rank, `b` holds the cell's number or
code and a rank, and w0, w1, ... are values.

With a stored cell order, the rank in `a` is the rank of the cell among the person's cells. The rank
in `b` is that of the row in its cell. Without one, `a` holds the rank of the row among all rows
of the person, and `b` holds no rank.

A range contains all rows of its persons, in any order; the kernel sorts them. Without a stored cell
order, the persons' keys are fetched too, and the kernel computes the order (keyed_order.py).
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
    MAX_CODES,
    dense,
    merged,
    parts_of,
    without_empty_cells,
)
from sfumato.engines.kernel.keyed_order import Hashing
from sfumato.engines.kernel.row_arrays import (
    INDEX_BITS,
    PERSON_BITS,
    Columns,
    Part,
    SortKeys,
    must_choose_cells,
)
from sfumato.engines.shared.cell_assembly import Columns as Answer
from sfumato.engines.shared.cold_path import KernelPlan

Ordered = Callable[[Columns], SortKeys]  # rows -> the PRF order of their cells

_PLACES: Final = np.int64((1 << INDEX_BITS) - 1)
_SIGN: Final = np.uint64(1 << 63)


@dataclass(frozen=True)
class Extent:
    """Size of a table: its numbers of persons, of rows, and of codes of the private text key."""

    persons: int
    rows: int
    codes: int

    def ranges(self, rows: int) -> list[tuple[int, int]]:
        """Split the persons into ranges [low, high) with about `rows` rows each.

        No range has more persons than a row's sort key can number (PERSON_BITS bits). This matters
        where only few of the persons have rows in the table.
        """
        many = min(max(1, self.persons * rows // max(1, self.rows)), 1 << PERSON_BITS)
        return [(low, low + many) for low in range(0, self.persons, many)]

    def cells(self, cold: KernelPlan) -> int | None:
        """Return the number of groups if they are numbered; None if keys identify them.

        Private keys are numbered by code only if people are counted, to remove empty groups later.
        """
        if cold.cells is not None:
            return cold.cells
        counts_people = any(tally.kind == "people" for tally in cold.tallies)
        return self.codes if counts_people and 0 < self.codes <= MAX_CODES else None


def extent_sql(cold: KernelPlan) -> str:
    """Return the SQL query for a table's numbers of persons, rows and codes."""
    codes = f"coalesce(max({cold.keys[0].texts}) + 1, 0)" if cold.keys else "0"
    return f"SELECT coalesce(max(person) + 1, 0), count(*), {codes} FROM {cold.row_counts_table}"


def texts_sql(cold: KernelPlan) -> str:
    """Return the SQL query for the codes and texts of a private text key.

    It reads the first row of each person's group.
    """
    place = str(cold.keys[0].texts)[1:]
    return f"SELECT DISTINCT c{place}, v{place} FROM {cold.row_counts_table} WHERE n{place} = 1"


def needs_keys(cold: KernelPlan) -> bool:
    """Say whether the kernel needs the persons' keyed hashes, to order their groups itself.

    It does if a person may have too many groups, and no order of them is stored.
    """
    return must_choose_cells(cold) and not cold.has_rank


def keys_sql(cold: KernelPlan, is_first: str) -> str:
    """Return the SQL query for the numbers and keyed hashes of a range of persons.

    `is_first` is the SQL condition for the first row of a person. A keyed hash (`person_key`) is an
    unsigned 64-bit number. 2**63 is subtracted, so that it fits in a signed BIGINT.
    """
    signed = f"CAST(CAST(person_key AS DECIMAL(20, 0)) - {1 << 63} AS BIGINT)"
    where = f"{is_first} AND person >= ? AND person < ?"
    return f"SELECT person, {signed} AS person_key FROM {cold.row_counts_table} WHERE {where}"


def ordered_by(salt: str, cold: KernelPlan, keys: Columns, ends: tuple[int, int]) -> Ordered:
    """Return a function that computes the keyed order of a person's groups, for a range of persons.

    The kernel calls it if no order is stored with the rows.
    """
    low, high = ends
    person_keys = np.zeros(high - low, np.uint64)
    person_keys[keys["person"] - low] = keys["person_key"].view(np.uint64) ^ _SIGN
    return partial(Hashing(salt, {}).order, person_keys, cold=cold, low=low)


def unordered(_columns: Columns) -> SortKeys:
    """Raise `Bug`: stand-in for `ordered_by` in a plan that needs no keyed order of groups."""
    raise Bug("cells are chosen by a stored order only")


def parts_of_rows(
    packed: Columns, cold: KernelPlan, ends: tuple[int, int], extent: Extent, ordered: Ordered
) -> list[Part]:
    """Unpack rows of a range of persons, bound their contributions, and return partial sums."""
    return parts_of(_unpacked(packed, cold), cold, extent.cells(cold), ends, ordered)


def whole_of(parts: Iterable[Part], cold: KernelPlan, extent: Extent) -> Part:
    """Add up all partial sums per group of the answer.

    With public keys, all groups are returned; with private keys, only those with persons.
    """
    cells = extent.cells(cold)
    if cells is None:
        return merged([*parts], cold)
    columns = dense(parts, cold, cells)
    if cold.cells is None:
        return without_empty_cells(columns, cold)
    return Part((columns["cell"],), tuple(columns[f"t{i}"] for i in range(len(cold.tallies))), ())


def named(whole: Part, cold: KernelPlan, texts: dict[int, str]) -> Answer:
    """Return the result columns of a kernel plan, with the texts of private keys instead of codes.

    The first is `cell` (group number) or g0 (private key); t0, t1, ... are the tallies.
    """
    (codes,) = whole.keys
    totals = {f"t{i}": tally for i, tally in enumerate(whole.tallies)}
    if cold.cells is not None:
        return {"cell": codes, **totals}
    found = np.empty(len(codes), dtype=object)
    found[:] = [texts[code] for code in codes.tolist()]
    return {"g0": found, **totals}


def slices(packed: Columns, rows: int) -> Iterator[tuple[Columns, tuple[int, int]]]:
    """Split rows between persons into slices of about `rows` rows; the rows may be in any order.

    Yield each slice with its range of persons.
    """
    person, begin = packed["a"] >> INDEX_BITS, 0
    if not bool(np.all(person[1:] >= person[:-1])):
        order = np.argsort(person, kind="stable")
        person, packed = person[order], {name: rows[order] for name, rows in packed.items()}
    while begin < len(person):
        last = person[min(begin + rows, len(person)) - 1]
        end = int(np.searchsorted(person, last, side="right"))
        some = {name: column[begin:end] for name, column in packed.items()}
        yield some, (int(person[begin]), int(last) + 1)
        begin = end


def _unpacked(packed: Columns, cold: KernelPlan) -> Columns:
    columns: dict[str, NDArray[Any]] = {"person": packed["a"] >> INDEX_BITS}
    code = "cell" if cold.cells is not None else "g0"
    if cold.has_rank:
        columns["place"] = (packed["a"] & _PLACES).astype(np.uint32)
        columns["rr"] = (packed["b"] & _PLACES).astype(np.uint32)
        columns[code] = packed["b"] >> INDEX_BITS
    else:
        columns["rr"] = (packed["a"] & _PLACES).astype(np.uint32)
        columns |= {code: packed["b"]} if "b" in packed else {}
    summed = {tally.value for tally in cold.tallies if tally.kind == "sum"}
    for i in range(cold.values):
        values = packed[f"w{i}"]
        columns[f"w{i}"] = values if i in summed else values.astype(bool)
    return columns
