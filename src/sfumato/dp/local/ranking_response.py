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
    """Return all orders of the items; the answer number of an order is its index."""
    if not 2 <= things <= MAX_AS_ONE:
        raise Refused(
            "bad-request",
            "The options have too many rankings.",
            "Ask about pairs, or rank fewer options.",
        )
    return tuple(permutations(range(things)))


def pairs(things: int) -> tuple[tuple[int, int], ...]:
    """Return all pairs of items, in order."""
    return tuple(combinations(range(things), 2))


def by_pairs(things: int, epsilon: Fraction) -> Sampled:
    """Build the ballot on one random pair: first item before the second, after it, or silence."""
    return Sampled((KAry.within(3, epsilon),) * len(pairs(things)))


def answers_by_pairs(order: Sequence[int] | None, things: int) -> tuple[int, ...]:
    """Convert an order to the answers on all pairs; None (no order) gives silence for each pair."""
    if order is None:
        return (SILENT,) * len(pairs(things))
    place = {thing: where for where, thing in enumerate(order)}
    return tuple(BEFORE if place[a] < place[b] else AFTER for a, b in pairs(things))


def mean_places(shares: Floats, things: int) -> Floats:
    """Return the mean rank of each item, from 1 (best), given the shares of orders and silence."""
    ranked = shares[: len(orders(things))]
    places = np.array([[order.index(t) + 1 for t in range(things)] for order in orders(things)])
    return np.asarray(ranked @ places / ranked.sum())


def mean_places_by_pairs(before: Floats, things: int) -> Floats:
    """Return the mean rank of each item, from 1 (best), given the share of people per pair.

    `before` holds for each pair the share of people who rank its first item before its second.
    """
    places = np.ones(things)
    for (first, second), share in zip(pairs(things), before, strict=True):
        places[first] += 1 - share
        places[second] += share
    return places
