"""Coarsen numeric columns before recoding: top and bottom coding, rounding, microaggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.dp.anonymity.coarsening import (
    microaggregate,
    microaggregate_rows,
    rounded,
    top_and_bottom_code,
)
from sfumato.dp.anonymity.coded_table import Column, Table, coded, replaced, written_as
from sfumato.dp.refusal import Refused


@dataclass(frozen=True)
class Coarsening:
    """A coarsening: `cut` (clamp) to an interval, `round` to a step, `average` over k near rows.

    If it averages several columns together, two rows are near if they are near in all of these
    columns.
    """

    columns: tuple[str, ...]
    kind: str
    numbers: tuple[float, ...]


def blunted(table: Table, blunt: Sequence[Coarsening]) -> Table:
    """Return the table after coarsening (blunting) its numeric columns, in the given order."""
    columns = dict(table.columns)
    for one in blunt:
        named = Table(columns, table.rows).of(one.columns)
        made = [_made(named[0], one)] if len(named) == 1 else _together(named, one)
        columns.update(zip(one.columns, made, strict=True))
    return Table(columns, table.rows, table.weights)


def _together(named: Sequence[Column], one: Coarsening) -> list[Column]:
    match one.kind, one.numbers:
        case "average", (k,) if k.is_integer() and len({*one.columns}) > 1:
            values = [[column.values[code] for code in column.codes.tolist()] for column in named]
            means = microaggregate_rows(values, int(k))
            pairs = zip(named, means, strict=True)
            return [written_as(column, coded(column.name, mean)) for column, mean in pairs]
    raise _nothing(one)


def _made(column: Column, one: Coarsening) -> Column:
    match one.kind, one.numbers:
        case "cut", (low, high):
            return replaced(column, top_and_bottom_code(column.values, low, high))
        case "round", (step,):
            return replaced(column, rounded(column.values, step))
        case "average", (k,) if k.is_integer():
            values = [column.values[code] for code in column.codes.tolist()]
            return written_as(column, coded(column.name, microaggregate(values, int(k))))
    raise _nothing(one)


def _nothing(one: Coarsening) -> Refused:
    return Refused(
        "bad-request",
        f"The coarsening {one.kind!r} cannot be applied to {', '.join(one.columns)!r} in this "
        "form.",
        "Use cut with LOW..HIGH, round with a step, or average with a whole number of values in "
        "a group.",
    )
