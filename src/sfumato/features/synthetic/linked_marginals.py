"""What hangs together across tables: a pair of columns of two, counted over both joined.

One table has one row of each person, the first that does; every other is linked to it. How many
people are in both is counted, then the pair of columns that lies farthest from chance is chosen
privately, and counted. A person has one row of the join that counts, as everywhere in a twin.
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
from sfumato.features.synthetic.measurement_release import AtTheDoor
from sfumato.features.synthetic.schema_twin import most_rows
from sfumato.features.synthetic.table_assembly import Drawn
from sfumato.query.model import Aggregate, Joined, Output, Query
from sfumato.query.plan import make_plan
from sfumato.vault.card.data_card import Card, Table

SHARES: Final = (Fraction(1, 10), Fraction(2, 10), Fraction(7, 10))  # people, choice, pair
MOST_PAIRS: Final = 300  # that one is chosen from


def anchor_of(card: Card) -> Table | None:
    """Return the table that others are linked to, if there is one and there are others."""
    people = [table for table in card.every_table if table.unit is not None]
    return next((t for t in people if len(people) > 1 and most_rows(t) == 1), None)


def can_join(card: Card, table: Table, anchor: Table) -> bool:
    """Say whether the card lets both be counted together; nothing is read or charged."""
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
    """Return the pairs that may be counted: a column of the one, and one of the other behind it."""
    every = product(enumerate(anchor), enumerate(own, len(anchor)))
    small = ((a, o) for (a, one), (o, other) in every if is_countable((one.size, other.size)))
    return list(islice(small, MOST_PAIRS))


def linked(device: AtTheDoor, own: Drawn, anchor: tuple[str, Drawn], share: Fraction) -> Drawn:
    """Return the table with what links it to the other, at that share of the whole price."""
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


def _beside(device: AtTheDoor, own: Drawn, name: str, other: Drawn) -> AtTheDoor:
    """Return the tables at the door as one, the other's columns first; it goes on counting."""
    columns = (*_named(name, other.columns), *_named(device.table, own.columns))
    return replace(device, columns=columns, joins=(Joined(name),))


def _named(table: str, columns: tuple[Coded, ...]) -> tuple[Coded, ...]:
    return tuple(
        replace(one, column=replace(one.column, name=f"{table}.{one.column.name}"))
        for one in columns
    )


def _candidates(both: AtTheDoor, own: Drawn, other: Drawn, people: float) -> list[Candidate]:
    """Return each pair with what is expected of it if nothing hangs together."""
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
