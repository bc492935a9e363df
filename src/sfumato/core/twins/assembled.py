"""The tables of a DP twin: rows drawn from models, dealt to made-up people, and what is not known.

Columns without categories are filled in as in a schema twin, and public tables are made up. Which
person has which rows is chance, but for how many: tables hang together by the person alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.core.card import Card, Table
from sfumato.core.twins.categories import Coded
from sfumato.core.twins.columns import Value
from sfumato.core.twins.junction import Floats
from sfumato.core.twins.methods import Made
from sfumato.core.twins.schema import (
    TwinTable,
    filled,
    person_name,
    pools_of,
    public_tables,
)
from sfumato.core.twins.seeded import Integers, Seeded


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was measured of a table: its model, and how many of its people have 1, 2, ... rows."""

    columns: tuple[Coded, ...]
    made: Made
    times: Floats | None = None  # none where each person has one row

    @property
    def people(self) -> int:
        """Return how many people (or rows, if nobody is told apart) were measured."""
        return max(1, round(self.made.model.total))


def dp_tables(
    card: Card, drawn: Mapping[str, Drawn], seed: str, people: tuple[int, int]
) -> list[TwinTable]:
    """Return every table of the card; with so many people in the first, and at most in any."""
    public = public_tables(card, seed)
    pools = pools_of(card, public)
    first = drawn[next(iter(drawn))].people
    counts = {
        name: min(max(1, one.people * people[0] // first), people[1]) for name, one in drawn.items()
    }
    everybody = max(counts.values())
    return [
        public[table.name]
        if table.is_public
        else _table(card, table, drawn[table.name], (counts[table.name], everybody), (seed, pools))
        for table in card.every_table
    ]


def _table(
    card: Card,
    table: Table,
    drawn: Drawn,
    people: tuple[int, int],
    made_with: tuple[str, Mapping[str, Sequence[Value]]],
) -> TwinTable:
    seed, pools = made_with
    stream = Seeded(seed, table.name)
    owners = _owners(drawn, *people, stream)
    codes = drawn.made.draw(len(owners), stream)
    known = {one.column.name: (one, codes[:, i]) for i, one in enumerate(drawn.columns)}
    columns: list[Sequence[Value]] = []
    for column in table.columns:
        if column.name in known:
            one, places = known[column.name]
            columns.append(one.values(places, stream))
        else:
            columns.append(filled(column, len(owners), stream, (table, pools)))
    names = tuple(column.name for column in table.columns)
    if table.unit is None:
        return TwinTable(table.name, names, tuple(zip(*columns, strict=True)))
    persons = [person_name(card, place + 1) for place in owners.tolist()]
    return TwinTable(table.name, (table.unit, *names), tuple(zip(persons, *columns, strict=True)))


def _owners(drawn: Drawn, people: int, everybody: int, stream: Seeded) -> Integers:
    """Return whose each row is: who is in the table, each with as many rows as chance deals."""
    places = np.sort(stream.order(everybody)[:people])
    if drawn.times is None:
        return np.asarray(places, dtype=np.int64)
    weights = np.cumsum(np.maximum(drawn.times, 0) + 1e-6)
    each = np.searchsorted(weights, stream.uniforms(people) * weights[-1], side="right") + 1
    return np.asarray(np.repeat(places, np.minimum(each, len(weights))), dtype=np.int64)
