"""Assemble the tables of a DP twin: draw rows from the models, and assign them to people.

Columns without categories are filled as in a schema twin, and public tables are synthetic. The
assignment to people is random, except for the number of rows per person and the links between
tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.features.synthetic.column_categories import Coded
from sfumato.features.synthetic.column_values import Value
from sfumato.features.synthetic.junction_tree import Floats
from sfumato.features.synthetic.linked_tables import Link, drawn_with, partners
from sfumato.features.synthetic.marginal_selection import FittedTwin
from sfumato.features.synthetic.schema_twin import (
    TwinTable,
    filled,
    person_name,
    pools_of,
    public_tables,
)
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded
from sfumato.vault.card.data_card import Card, Table


@dataclass(frozen=True, eq=False)
class TableMeasurements:
    """What a DP twin measured of one table: the fitted model, and how many rows people have.

    `times` counts the people with 1, 2, ... rows.
    """

    columns: tuple[Coded, ...]
    made: FittedTwin
    times: Floats | None = None  # None if each person has only one row
    link: Link | None = None  # the link to another table

    @property
    def people(self) -> int:
        """Return the measured number of people, or of rows if the table has no person column."""
        return max(1, round(self.made.model.total))


@dataclass(frozen=True, eq=False)
class SampledRows:
    """The rows drawn for a table, as category codes, and the person to whom each row belongs."""

    owners: Integers
    codes: Integers
    stream: Seeded


def dealt(
    drawn: Mapping[str, TableMeasurements], seed: str, people: tuple[int, int]
) -> dict[str, SampledRows]:
    """Draw the rows of every table of a DP twin (synthetic data), as category codes.

    `people` is the number of people in the first table, and the cap for each table.
    """
    first = drawn[next(iter(drawn))].people
    counts = {
        name: min(max(1, one.people * people[0] // first), people[1]) for name, one in drawn.items()
    }
    anchors = {one.link.anchor for one in drawn.values() if one.link is not None}
    everybody = max(counts[name] for name in (anchors or counts))
    made: dict[str, SampledRows] = {}
    for name in (*sorted(anchors), *(name for name in drawn if name not in anchors)):
        made[name] = _dealt(drawn[name], counts[name], everybody, made, Seeded(seed, name))
    return {name: made[name] for name in drawn}


def _dealt(
    one: TableMeasurements,
    count: int,
    everybody: int,
    made: Mapping[str, SampledRows],
    stream: Seeded,
) -> SampledRows:
    if one.link is None:
        owners = _owners(one, count, max(everybody, count), stream)
        return SampledRows(owners, one.made.draw(len(owners), stream), stream)
    anchor = made[one.link.anchor]
    found = partners(one.link, (anchor.owners, anchor.codes), (count, count / one.people), stream)
    each = _times(one, count, stream)
    kinds = np.repeat(found.kinds, each)
    own = drawn_with(one.link, kinds, one.made.model.marginal((one.link.own,)), stream)
    codes = one.made.draw_beside(one.link.own, own, stream)
    return SampledRows(np.repeat(found.people, each), codes, stream)


def dp_tables(
    card: Card, drawn: Mapping[str, TableMeasurements], rows: Mapping[str, SampledRows], seed: str
) -> list[TwinTable]:
    """Create every table of a DP twin; public tables are synthetic, without measurements."""
    public = public_tables(card, seed)
    pools = pools_of(card, public)
    return [
        public[table.name]
        if table.is_public
        else _table(card, table, drawn[table.name], (rows[table.name], pools))
        for table in card.every_table
    ]


def _table(
    card: Card,
    table: Table,
    drawn: TableMeasurements,
    made_with: tuple[SampledRows, Mapping[str, Sequence[Value]]],
) -> TwinTable:
    rows, pools = made_with
    known = {one.column.name: (one, rows.codes[:, i]) for i, one in enumerate(drawn.columns)}
    columns: list[Sequence[Value]] = []
    for column in table.columns:
        if column.name in known:
            one, places = known[column.name]
            columns.append(one.values(places, rows.stream))
        else:
            columns.append(filled(column, len(rows.owners), rows.stream, (table, pools)))
    names = tuple(column.name for column in table.columns)
    if table.unit is None:
        return TwinTable(table.name, names, tuple(zip(*columns, strict=True)))
    persons = [person_name(card, place + 1) for place in rows.owners.tolist()]
    return TwinTable(table.name, (table.unit, *names), tuple(zip(persons, *columns, strict=True)))


def _owners(drawn: TableMeasurements, people: int, everybody: int, stream: Seeded) -> Integers:
    """Choose which people are in a table; return, for each row, the number of its person.

    The choice is random: the table has no link to another one.
    """
    places = np.sort(stream.order(everybody)[:people])
    return np.asarray(np.repeat(places, _times(drawn, people, stream)), dtype=np.int64)


def _times(drawn: TableMeasurements, people: int, stream: Seeded) -> Integers:
    """Draw each person's number of rows, in proportion to the noisy counts of people by rows."""
    if drawn.times is None:
        return np.ones(people, dtype=np.int64)
    weights = np.cumsum(np.maximum(drawn.times, 0) + 1e-6)
    each = np.searchsorted(weights, stream.uniforms(people) * weights[-1], side="right") + 1
    return np.asarray(np.minimum(each, len(weights)), dtype=np.int64)
