"""Randomised rankings of a few items: one answer among all orders, or one per pair of items.

An order is a tuple of items, the best first. Five items have 120 orders, so any frequency oracle
can take an order as its answer. Silence (no ranking) is the value after the last order. For more
items, the ballot asks about one randomly chosen pair.
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

MAX_AS_ONE: Final = 5
BEFORE, AFTER, SILENT = 0, 1, 2  # the answers to a pair of items


def orders(things: int) -> tuple[tuple[int, ...], ...]:
    """Return all rankings of a few items; the answer number of a ranking is its index."""
    if not 2 <= things <= MAX_AS_ONE:
        raise Refused(
            "bad-request",
            "The options have too many rankings.",
            "Ask about pairs, or rank fewer options.",
        )
    return tuple(permutations(range(things)))


def pairs(things: int) -> tuple[tuple[int, int], ...]:
    """Return all pairs of items that a ranking by pairs may ask about."""
    return tuple(combinations(range(things), 2))


def by_pairs(things: int, epsilon: Fraction) -> Sampled:
    """Return a ballot that asks how a person ranks one random pair of items.

    The answers are: first item before the second, after it, or silence.
    """
    return Sampled((KAry.within(3, epsilon),) * len(pairs(things)))


def answers_by_pairs(order: Sequence[int] | None, things: int) -> tuple[int, ...]:
    """Convert a person's ranking to the answers about all pairs of items.

    None (no ranking) gives silence for each pair.
    """
    if order is None:
        return (SILENT,) * len(pairs(things))
    place = {thing: where for where, thing in enumerate(order)}
    return tuple(BEFORE if place[a] < place[b] else AFTER for a, b in pairs(things))


def mean_places(shares: Floats, things: int) -> Floats:
    """Return the mean rank of each item, where 1 is the best.

    `shares` has the share of people for each ranking, and for silence.
    """
    ranked = shares[: len(orders(things))]
    places = np.array([[order.index(t) + 1 for t in range(things)] for order in orders(things)])
    return np.asarray(ranked @ places / ranked.sum())


def mean_places_by_pairs(before: Floats, things: int) -> Floats:
    """Return the mean rank of each item, where 1 is the best, from answers about pairs.

    `before` has for each pair the share of people who rank its first item before its second.
    """
    places = np.ones(things)
    for (first, second), share in zip(pairs(things), before, strict=True):
        places[first] += 1 - share
        places[second] += share
    return places
