"""Columns made blunt before a table is recoded: ends cut, numbers rounded or averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.core.crowd.blunted import averaged, cut_ends, rounded
from sfumato.core.crowd.coded import Column, Table, coded, replaced, written_as
from sfumato.core.refusal import Refused


@dataclass(frozen=True)
class Blunting:
    """What is done to one column: `cut` to an interval, `round` to a step, `average` over k."""

    column: str
    kind: str
    numbers: tuple[float, ...]


def blunted(table: Table, blunt: Sequence[Blunting]) -> Table:
    """Return the table with those columns made blunt, in that order."""
    columns = dict(table.columns)
    for one in blunt:
        (column,) = Table(columns, table.rows).of([one.column])
        columns[one.column] = _made(column, one)
    return Table(columns, table.rows, table.weights)


def _made(column: Column, one: Blunting) -> Column:
    match one.kind, one.numbers:
        case "cut", (low, high):
            return replaced(column, cut_ends(column.values, low, high))
        case "round", (step,):
            return replaced(column, rounded(column.values, step))
        case "average", (k,) if k.is_integer():
            values = [column.values[code] for code in column.codes.tolist()]
            return written_as(column, coded(column.name, averaged(values, int(k))))
    raise Refused(
        "bad-request",
        f"{one.kind!r} is nothing that is done to {one.column!r}.",
        "Cut to LOW..HIGH, round to a step, or average over a whole number of neighbours.",
    )
