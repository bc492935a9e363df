"""Rankings of a few things: as one answer among all orders, or pair by pair.

An order is a tuple of things, the first the best. Up to five things have 120 orders, which any
oracle takes as answers, silence behind them; more are asked by pairs, one of which is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations
from typing import Final

import numpy as np

from sfumato.dp.local.ballot_split import Sampled
from sfumato.dp.local.frequency_oracle import Floats
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.refusal import Refused

MOST_AS_ONE: Final = 5
BEFORE, AFTER, SILENT = 0, 1, 2  # the answers to a pair


def orders(things: int) -> tuple[tuple[int, ...], ...]:
    """Return all orders of so many things: the number of an order is its place here."""
    if not 2 <= things <= MOST_AS_ONE:
        raise Refused("bad-request", "There are too many orders.", "Ask by pairs, or rank fewer.")
    return tuple(permutations(range(things)))


def pairs(things: int) -> tuple[tuple[int, int], ...]:
    """Return all pairs of things, in order."""
    return tuple(combinations(range(things), 2))


def by_pairs(things: int, epsilon: Fraction) -> Sampled:
    """Return the ballot that asks one pair: the first before the second, after it, or silence."""
    return Sampled((KAry.within(3, epsilon),) * len(pairs(things)))


def answers_by_pairs(order: Sequence[int] | None, things: int) -> tuple[int, ...]:
    """Return the answer to every pair; no order is silence in all of them."""
    if order is None:
        return (SILENT,) * len(pairs(things))
    place = {thing: where for where, thing in enumerate(order)}
    return tuple(BEFORE if place[a] < place[b] else AFTER for a, b in pairs(things))


def mean_places(shares: Floats, things: int) -> Floats:
    """Return the mean place of each thing, from 1, behind the shares of all orders and silence."""
    ranked = shares[: len(orders(things))]
    places = np.array([[order.index(t) + 1 for t in range(things)] for order in orders(things)])
    return np.asarray(ranked @ places / ranked.sum())


def mean_places_by_pairs(before: Floats, things: int) -> Floats:
    """Return the mean place of each thing, from how often the first of each pair comes before."""
    places = np.ones(things)
    for (first, second), share in zip(pairs(things), before, strict=True):
        places[first] += 1 - share
        places[second] += share
    return places
