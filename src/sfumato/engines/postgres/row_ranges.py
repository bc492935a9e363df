"""Fetch packed rows from PostgreSQL as integer arrays, one range of persons at a time.

It runs in the driver process and feeds the kernel (contribution_bounding.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Buffer, Loader
from psycopg.postgres import types
from psycopg.pq import Format

from sfumato.dp.refusal import Bug
from sfumato.engines.kernel.packed_rows import (
    Extent,
    Ordered,
    extent_sql,
    keys_sql,
    named,
    needs_keys,
    ordered_by,
    parts_of_rows,
    texts_sql,
    unordered,
    whole_of,
)
from sfumato.engines.kernel.row_arrays import INDEX_BITS, Columns, Part
from sfumato.engines.shared.cell_assembly import Columns as Answer
from sfumato.engines.shared.cold_path import KernelPlan

Link = psycopg.Connection[tuple[Any, ...]]

RANGE_ROWS: Final = 1 << 17
_HEAD: Final = 20  # header bytes of a one-dimensional array in the binary protocol
_ELEMENT: Final = np.dtype([("size", ">i4"), ("value", ">i8")])
_IS_FIRST: Final = f"a & {(1 << INDEX_BITS) - 1} = 1"


class _Numbers(Loader):
    """Loader of int8[] in the binary protocol; a null element raises `Bug`."""

    format = Format.BINARY

    def load(self, data: Buffer) -> NDArray[np.int64]:
        """Decode the array to numpy."""
        elements = np.frombuffer(data, _ELEMENT, offset=_HEAD)
        if not bool(np.all(elements["size"] == 8)):
            raise Bug("an array with a null in it")
        return elements["value"].astype(np.int64)


def extent_of(link: Link, cold: KernelPlan) -> Extent:
    """Return the size of a plan's table: its persons, its rows, and the codes of its text key."""
    found = link.execute(extent_sql(cold).encode()).fetchone()
    return Extent(*map(int, found or ()))


def add_up(links: Sequence[Link], cold: KernelPlan, extent: Extent, salt: str) -> Answer:
    """Run a kernel plan over all ranges of persons, in parallel; return the result columns.

    Each connection works on one range at a time.
    """
    idle: SimpleQueue[Link] = SimpleQueue()
    for link in links:
        idle.put(link)

    def part(ends: tuple[int, int]) -> list[Part]:
        link = idle.get()
        try:
            packed = _fetched(link, cold.sql, [*cold.parameters, *ends])
            ordered = _ordered(link, cold, ends, salt)
        finally:
            idle.put(link)
        return parts_of_rows(packed, cold, ends, extent, ordered)

    with ThreadPoolExecutor(len(links)) as pool:
        parts = (part for found in pool.map(part, extent.ranges(RANGE_ROWS)) for part in found)
        whole = whole_of(parts, cold, extent)
    texts = links[0].execute(texts_sql(cold).encode()).fetchall() if cold.keys else []
    return named(whole, cold, dict(texts))


def counted(link: Link, sql: str, bound: list[object]) -> Columns:
    """Run a statement that counts rows per person; return the arrays `person` and `n`."""
    arrays = "array_agg(person) AS person, array_agg(n) AS n"
    return _fetched(link, f"SELECT {arrays} FROM ({sql}) AS c", bound)


def _ordered(link: Link, cold: KernelPlan, ends: tuple[int, int], salt: str) -> Ordered:
    if not needs_keys(cold):
        return unordered
    of_all = "array_agg(person) AS person, array_agg(person_key) AS person_key"
    keys = _fetched(link, f"SELECT {of_all} FROM ({keys_sql(cold, _IS_FIRST)}) AS k", [*ends])
    return ordered_by(salt, cold, keys, ends)


def _fetched(link: Link, sql: str, bound: list[object]) -> Columns:
    text = sql.replace("%", "%%").replace("?", "%s")  # our SQL has no ? inside a string
    with link.cursor(binary=True) as cursor:
        cursor.adapters.register_loader(types["int8"].array_oid, _Numbers)
        cursor.execute(text.encode(), bound, prepare=False)
        found = cursor.fetchone() or ()
        names = [column.name for column in cursor.description or ()]
    nothing = np.zeros(0, np.int64)
    return dict(zip(names, (nothing if a is None else a for a in found), strict=True))
