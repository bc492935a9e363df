"""Fetch packed rows from Spark as Arrow integer columns, one range of persons at a time.

It runs in the driver process and feeds the kernel (contribution_bounding.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from sfumato.engines.kernel.packed_rows import (
    Extent,
    Ordered,
    keys_sql,
    named,
    needs_keys,
    ordered_by,
    parts_of_rows,
    slices,
    texts_sql,
    unordered,
    whole_of,
)
from sfumato.engines.kernel.row_arrays import Columns, Part
from sfumato.engines.shared.cell_assembly import Columns as Answer
from sfumato.engines.shared.cold_path import KernelPlan

_RANGE_NUMBERS: Final = 1 << 23  # integers per Spark job; it skips row groups of other persons
_SLICE_ROWS: Final = 1 << 18


def add_up(session: Any, cold: KernelPlan, extent: Extent, salt: str) -> Answer:  # a SparkSession
    """Run a kernel plan over all ranges of persons; return the result columns."""

    def parts() -> Iterator[Part]:
        for ends in extent.ranges(_RANGE_NUMBERS // (2 + cold.values)):
            packed = fetched(session, cold.sql, [*cold.parameters, *ends])
            ordered = _ordered(session, cold, ends, salt)
            for some, few in slices(packed, _SLICE_ROWS):
                yield from parts_of_rows(some, cold, few, extent, ordered)

    whole = whole_of(parts(), cold, extent)
    return named(whole, cold, _texts(session, cold) if cold.keys else {})


def _ordered(session: Any, cold: KernelPlan, ends: tuple[int, int], salt: str) -> Ordered:
    if not needs_keys(cold):
        return unordered
    return ordered_by(salt, cold, fetched(session, keys_sql(cold, "rr = 1"), [*ends]), ends)


def fetched(session: Any, sql: str, bound: list[object]) -> Columns:  # a SparkSession
    """Run a statement whose columns are all integers without nulls; return them as arrays."""
    table = session.sql(sql, args=bound).toArrow()
    return {
        name: np.asarray(table.column(name).to_numpy(), np.int64) for name in table.column_names
    }


def _texts(session: Any, cold: KernelPlan) -> dict[int, str]:
    codes, texts = session.sql(texts_sql(cold)).toArrow().columns
    return dict(zip(codes.to_pylist(), texts.to_pylist(), strict=True))
