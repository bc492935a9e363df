"""The exponential mechanism over distances: of the farthest candidate, or of a spanning tree.

The tree is grown like Kruskal's: each round chooses among the pairs that join what is not joined
yet, by the same utilities and with fresh randomness. Which pairs are left is decided by what was
chosen before, so the rounds compose (spanning_tree.proof.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sfumato.dp.mechanisms.exponential import exponential_mechanism
from sfumato.dp.ports import Dice
from sfumato.dp.sampling.threshold_table import Integers


def choose_worst(utilities: Integers, rate: Fraction, dice: Dice) -> int:
    """Return one place, likelier the larger its utility."""
    return exponential_mechanism(utilities, None, rate, dice)


def choose_tree(
    utilities: Integers, pairs: Sequence[tuple[int, ...]], rate: Fraction, dice: Dice
) -> tuple[int, ...]:
    """Return the places of pairs that join everything to everything, each round at the rate."""
    group = {end: end for pair in pairs for end in pair}
    chosen: list[int] = []
    while len(set(group.values())) > 1:
        open_ = [i for i, (one, other) in enumerate(pairs) if group[one] != group[other]]
        place = open_[
            exponential_mechanism(np.ascontiguousarray(utilities[open_]), None, rate, dice)
        ]
        one, other = (group[end] for end in pairs[place])
        group = {end: one if held == other else held for end, held in group.items()}
        chosen.append(place)
    return tuple(chosen)
