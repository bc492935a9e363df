"""The cold path on PostgreSQL and Spark: the engine filters, the driver process bounds and sums.

A query with a filter or with clamped sums needs every person's rows one by one. The engine returns
them for one range of persons at a time, packed into a few integers (engines/kernel/packed_rows.py).
The kernel then bounds contributions.

If a person has more cells than may count, the kernel takes the first ones in a secret order. This
is the order stored with the copy, which is that of query/printing/statements.py. Without a stored
order, it is the kernel's own keyed order, as for DuckDB. Private keys without a stored order use
plain SQL instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sfumato.engines.kernel.row_arrays import INDEX_BITS
from sfumato.engines.shared.cold_path import MAX_SLOTS, NULL, KernelKey, KernelPlan, kernel_tally
from sfumato.engines.shared.driver_rank_path import Stored, stored_place
from sfumato.query.expression import Expr, Ref
from sfumato.query.measure import Measure
from sfumato.query.printing.expressions import (
    Dialect,
    Text,
    filled,
    joined,
    print_expr,
    print_predicate,
)
from sfumato.query.printing.statements import ADDED

# -2**63 as an expression: SQL parses the sign apart from the number, and 2**63 overflows 64 bits.
_NOTHING: Final = f"({NULL + 1} - 1)"
_PLACES: Final = 1 << INDEX_BITS


def lower_to_kernel(
    measure: Measure, stored: Stored, dialect: Dialect, table: str
) -> KernelPlan | None:
    """Return the driver's kernel plan of a measure; None if plain SQL must answer the measure."""
    if not measure.by_person or measure.source is not None or measure.joins or not stored.is_packed:
        return None
    if any(tally.kind not in ADDED for tally in measure.tallies):
        return None
    place = stored_place(measure, stored)
    if place is None and not measure.is_public:
        return None
    values = tuple(dict.fromkeys(t.value for t in measure.tallies if t.value is not None))
    text = _Printer(measure, place, values, dialect).statement(table)
    return KernelPlan(
        text.sql,
        text.bound,
        measure.cells if measure.is_public else None,
        () if measure.is_public else (KernelKey("text", f"c{place}"),),
        place is not None,
        len(values),
        tuple(kernel_tally(tally, values) for tally in measure.tallies),
        measure.max_groups,
        measure.max_rows,
        table,
        _has_slot(measure, place),
    )


def _has_slot(measure: Measure, place: int | None) -> bool:
    if place is None or measure.where is not None:
        return False
    return measure.is_public and measure.max_groups <= MAX_SLOTS


@dataclass(frozen=True)
class _Printer:
    measure: Measure
    place: int | None  # index of the column with stored ranks
    values: tuple[Expr, ...]
    dialect: Dialect

    def statement(self, table: str) -> Text:
        """Return the SELECT of the packed rows; its last two parameters are a range of persons."""
        summed = {tally.value for tally in self.measure.tallies if tally.kind == "sum"}
        columns = self._packed()
        columns += [self._value(i, value, value in summed) for i, value in enumerate(self.values)]
        where = Text("true")
        if self.measure.where is not None:
            where = print_predicate(self.measure.where, self.dialect)
        there = " WHERE b IS NOT NULL" if self.measure.keys else ""
        return filled(
            f"SELECT {self._names()} FROM (SELECT {{}} FROM {table} WHERE {{}}"
            f" AND {self._bounds()}) AS r{there}",
            joined(", ", columns),
            where,
        )

    def _names(self) -> str:
        names = ["a", *(["b"] if self.measure.keys else [])]
        names += [f"w{i}" for i in range(len(self.values))]
        # because the overhead of a row exceeds the cost of its values
        if self.dialect == "postgres":
            return ", ".join(f"array_agg({name}) AS {name}" for name in names)
        return ", ".join(names)

    def _bounds(self) -> str:
        bounds = "person >= ? AND person < ?"
        if self.place is None or self.measure.where is not None:
            return bounds
        few, first = self.measure.max_groups, self.measure.max_rows
        return f"{bounds} AND g{self.place} <= {few} AND n{self.place} <= {first}"

    def _packed(self) -> list[Text]:
        """Return SQL columns that pack person, group and ranks into one or two integers.

        PostgreSQL stores them packed, for speed.
        """
        stored, place = self.dialect == "postgres", self.place
        if place is None:
            rows = Text("a" if stored else f"CAST(person AS BIGINT) * {_PLACES} + rr AS a")
            return [rows, *([filled("{} AS b", self._cell())] if self.measure.keys else [])]
        if stored:
            return [Text(f"a{place} AS a"), Text(f"b{place} AS b")]
        code = f"k{place}" if self.measure.is_public else f"c{place}"
        return [
            Text(f"CAST(person AS BIGINT) * {_PLACES} + g{place} AS a"),
            Text(f"CAST({code} AS BIGINT) * {_PLACES} + n{place} AS b"),
        ]

    def _cell(self) -> Text:
        """Return SQL of a row's group number, numbered as in query/printing/statements.py."""
        cell = Text("CAST(0 AS BIGINT)")
        for place, key in enumerate(self.measure.keys):
            code = filled("CAST({} AS BIGINT)", print_expr(key.value, self.dialect))
            if not isinstance(key.value, Ref) or key.value.column[0] != "k":
                last = (key.size or 0) - 1
                code = filled(f"CASE WHEN {{}} BETWEEN 0 AND {last} THEN {{}} END", code, code)
            cell = code if place == 0 else filled(f"({{}} * {key.size} + {{}})", cell, code)
        return cell

    def _value(self, place: int, value: Expr, is_summed: bool) -> Text:
        text = print_expr(value, self.dialect)
        if not is_summed:
            return filled(
                f"CAST(CASE WHEN {{}} IS NULL THEN 0 ELSE 1 END AS BIGINT) AS w{place}", text
            )
        return filled(f"coalesce(CAST({{}} AS BIGINT), {_NOTHING}) AS w{place}", text)
