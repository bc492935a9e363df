"""Tables that hang together: who of one is in another, and with what their rows there go.

One table has one row of each person. Of another, a pair of columns, one of each table, is counted
over both joined by the person. Its sums by the first column say how many people of each kind have
rows there; its rows say which values these have. What is drawn is made of released numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.features.synthetic.junction_tree import Floats
from sfumato.features.synthetic.row_sampling import in_shares
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded

HARDLY: Final = 1e-6  # of the other table's own shares, so that no kind is without any


@dataclass(frozen=True, eq=False)
class Link:
    """People in both tables by a column of each, counted privately."""

    anchor: str  # the table with one row of each person
    of: int  # its column
    groups: tuple[int, ...]  # in which group each category of that column counts
    own: int  # the other table's column, in the groups of its model
    pair: Floats
    slack: float = 0.0  # people whom the noise alone may hide from the join


@dataclass(frozen=True, eq=False)
class Partners:
    """Whose rows there are, and which kind of person each is; the last kind is of no partner."""

    people: Integers
    kinds: Integers


def partners(
    link: Link, anchor: tuple[Integers, Integers], size: tuple[int, float], stream: Seeded
) -> Partners:
    """Return so many people: of each kind as many as were counted, by that scale; then others.

    The anchor's people are numbered from 0, and the others come after them. Where the noise could
    hide that there are no others, there are none.
    """
    people, codes = anchor
    count, scale = size
    kinds = np.asarray(link.groups)[codes[:, link.of]]
    wanted = np.maximum(link.pair.sum(axis=1), 0) * scale
    is_everybody = wanted.sum() > 0 and count <= wanted.sum() + link.slack * scale
    if is_everybody:
        wanted = wanted * (count / wanted.sum())
    order = stream.order(len(people))
    rank = np.empty(len(people), dtype=np.int64)
    for kind in range(len(wanted)):
        members = order[kinds[order] == kind]
        rank[members] = np.arange(len(members))
    is_inside = rank[order] < np.rint(wanted)[kinds[order]]
    inside = order[is_inside][:count]
    if is_everybody:
        inside = np.concatenate([inside, order[~is_inside][: count - len(inside)]])
    others = len(people) + np.arange(count - len(inside))
    found = np.concatenate([people[inside], others])
    theirs = np.concatenate([kinds[inside], np.full(len(others), len(wanted))])
    by_person = np.argsort(found, kind="stable")
    return Partners(found[by_person], theirs[by_person])


def drawn_with(link: Link, kinds: Integers, alone: Floats, stream: Seeded) -> Integers:
    """Return the own column's group of each row, by the kind of person it is of."""
    even = alone / alone.sum()
    pair = np.maximum(link.pair, 0)
    shares = np.vstack([pair + (pair.sum(axis=1, keepdims=True) + 1) * HARDLY * even, even])
    return in_shares(kinds, len(shares), shares, stream)
