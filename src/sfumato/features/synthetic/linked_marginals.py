"""Measure the correlation between two tables: the marginal of one column of each, over a join.

The anchor is the first table with one row per person; other tables are linked to it. First, the
people in both tables are counted. Then the pair of columns farthest from independence is chosen
privately, and counted. One row of a person counts in the join, as everywhere in a twin.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product
from typing import Final

import numpy as np

from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.column_categories import Coded
from sfumato.features.synthetic.junction_tree import Clique
from sfumato.features.synthetic.linked_tables import Link
from sfumato.features.synthetic.marginal_selection import DROWNED, NOISE_OF, is_countable
from sfumato.features.synthetic.measurement_port import Candidate, Choice
from sfumato.features.synthetic.measurement_release import PrivateDevice
from sfumato.features.synthetic.schema_twin import most_rows
from sfumato.features.synthetic.table_assembly import TableMeasurements
from sfumato.query.model import Aggregate, Joined, Output, Query
from sfumato.query.plan import make_plan
from sfumato.vault.card.data_card import Card, Table

# shares of the link's price: for the number of people, the choice, and the pair
SHARES: Final = (Fraction(1, 10), Fraction(2, 10), Fraction(7, 10))
MAX_PAIRS: Final = 300  # the most candidates of the choice


def anchor_of(card: Card) -> Table | None:
    """Return the anchor table, to which other tables of people are linked, or None.

    It is the first table with one row per person.
    """
    people = [table for table in card.every_table if table.unit is not None]
    return next((t for t in people if len(people) > 1 and most_rows(t) == 1), None)


def can_join(card: Card, table: Table, anchor: Table) -> bool:
    """Return True if the card allows a count over the join of a table with the anchor table.

    This reads and charges nothing.
    """
    count = Output("n", Aggregate("count"))
    asked = Query(
        card.name, (count,), max_groups=1, max_rows=1, table=table.name,
        joins=(Joined(anchor.name),),
    )  # fmt: skip
    try:
        make_plan(card, asked)
    except Refused:
        return False
    return True


def pairs_of(anchor: tuple[Coded, ...], own: tuple[Coded, ...]) -> list[Clique]:
    """Return pairs of one anchor column and one own column that are small enough to count.

    There are at most 300 pairs (MAX_PAIRS). The own columns are numbered after those of the anchor.
    """
    every = product(enumerate(anchor), enumerate(own, len(anchor)))
    small = ((a, o) for (a, one), (o, other) in every if is_countable((one.size, other.size)))
    return list(islice(small, MAX_PAIRS))


def linked(
    device: PrivateDevice,
    own: TableMeasurements,
    anchor: tuple[str, TableMeasurements],
    share: Fraction,
) -> TableMeasurements:
    """Measure the link of a table to the anchor table, with `share` of the whole price.

    The link is the noisy counts of one column of each, over the people in both tables.
    """
    name, other = anchor
    both = _beside(device, own, name, other)
    both.share = share
    people, choice, pair = SHARES
    merged = (*other.made.merged, *own.made.merged)
    found = max(0.0, float(both.count((), merged, people)))
    candidates = _candidates(both, own, other, found)
    (place,) = both.choose(Choice("one", tuple(candidates), merged), choice)
    of, to = candidates[place].columns
    counts = both.count((of, to), merged, pair)
    slack = DROWNED * both.std(pair) * math.sqrt(counts.size)
    link = Link(name, of, merged[of], to - len(other.columns), counts, slack)
    return replace(own, link=link)


def _beside(
    device: PrivateDevice, own: TableMeasurements, name: str, other: TableMeasurements
) -> PrivateDevice:
    """Return a device that measures the join of a table with the anchor table.

    The anchor's columns come first.
    """
    columns = (*_named(name, other.columns), *_named(device.table, own.columns))
    return replace(device, columns=columns, joins=(Joined(name),))


def _named(table: str, columns: tuple[Coded, ...]) -> tuple[Coded, ...]:
    return tuple(
        replace(one, column=replace(one.column, name=f"{table}.{one.column.name}"))
        for one in columns
    )


def _candidates(
    both: PrivateDevice, own: TableMeasurements, other: TableMeasurements, people: float
) -> list[Candidate]:
    """Return the pairs of columns to choose from, with the counts expected under independence."""
    std = both.std(SHARES[2])
    made = []
    for of, to in pairs_of(other.columns, own.columns):
        sides = (
            other.made.model.marginal((of,)),
            own.made.model.marginal((to - len(other.columns),)),
        )
        one, two = (side / side.sum() for side in sides)
        expected = np.rint(people * np.outer(one, two)).astype(np.int64)
        penalty = round(NOISE_OF * std * expected.size)
        made.append(Candidate((of, to), expected.ravel(), penalty))
    return made
