"""Link a synthetic twin's tables: choose which people are in both, and with which values.

The anchor table has one row per person. A pair of columns, one of each table, was counted over the
join by person. Sums of these counts give the number of people of each group in the other table. The
counts of one group give the distribution of its people's values there. Everything is drawn from
released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sfumato.features.synthetic.junction_tree import Floats
from sfumato.features.synthetic.row_sampling import in_shares
from sfumato.features.synthetic.seeded_numbers import Integers, Seeded

# the weight of the other table's own distribution, so that no row of `pair` is empty
HARDLY: Final = 1e-6


@dataclass(frozen=True, eq=False)
class Link:
    """The measured link of two tables: a column of each, counted over the people in both."""

    anchor: str  # the anchor table, with one row per person
    of: int  # the anchor's column
    groups: tuple[int, ...]  # category -> group of that column
    own: int  # the other table's column; `pair` counts it by the groups of its model
    pair: Floats
    slack: float = 0.0  # the number of people whom the join may lack because of noise alone


@dataclass(frozen=True, eq=False)
class Partners:
    """The people of a linked table, by number, and the group of each in the anchor table.

    The group is that of the linked column. The last group is for people who are not in the anchor
    table.
    """

    people: Integers
    kinds: Integers


def partners(
    link: Link, anchor: tuple[Integers, Integers], size: tuple[int, float], stream: Seeded
) -> Partners:
    """Choose which people are in a linked table, so that their groups match the noisy counts.

    The anchor table's people are numbered from 0. The noisy counts say how many of them are also in
    the linked table. If the linked table has more people, the others get higher numbers. If the
    noise alone could explain the difference, there are no others.
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
    """Draw a group of the linked table's column for each row, given its person's anchor group.

    So the pair of columns gets the correlation that was measured.
    """
    even = alone / alone.sum()
    pair = np.maximum(link.pair, 0)
    shares = np.vstack([pair + (pair.sum(axis=1, keepdims=True) + 1) * HARDLY * even, even])
    return in_shares(kinds, len(shares), shares, stream)
