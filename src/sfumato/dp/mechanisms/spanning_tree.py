"""Private choice of a spanning tree, or of a candidate with a high utility.

Both use the exponential mechanism. The code builds the tree as in Kruskal's algorithm. Each round
chooses one pair among those that join two separate components. All rounds use the same utilities,
and each uses fresh randomness. Only earlier choices decide which pairs are left, so the rounds
compose (spanning_tree.proof.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from sfumato.dp.mechanisms.exponential import exponential_mechanism
from sfumato.dp.ports import RandomSource
from sfumato.dp.sampling.threshold_table import Integers


def choose_highest_utility(utilities: Integers, rate: Fraction, dice: RandomSource) -> int:
    """Choose one candidate by the exponential mechanism; return its index.

    A candidate with a larger utility is more likely.
    """
    return exponential_mechanism(utilities, None, rate, dice)


def choose_tree(
    utilities: Integers, pairs: Sequence[tuple[int, ...]], rate: Fraction, dice: RandomSource
) -> tuple[int, ...]:
    """Choose a spanning tree of high utility privately; return the indices of its pairs.

    `pairs` are the possible edges of the tree, each with a utility. Each round is one exponential
    mechanism with this rate.
    """
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
