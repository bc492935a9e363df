"""The lock of a sum over sites: exact integers, this site's share of the noise, and masks.

One site's share is not all of the noise: without the masks its numbers are not private. So both go
on in one breath, and what leaves is the masked message alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.core.measure import Cells
from sfumato.core.noise import skellam
from sfumato.core.ports import Dice, IntegerArray
from sfumato.core.refusal import Bug
from sfumato.core.sealed import Sealed
from sfumato.core.secure import Participant
from sfumato.door.unseal import unseal
from sfumato.plan.summed import SumPlan

GUARANTEE: Final = "central-dp"


def shares_of(sum_: SumPlan, dice: Dice) -> list[IntegerArray]:
    """Return this site's share of each part's noise, a fresh draw for every cell."""
    cells = sum_.plan.measure.cells
    return [skellam.sample(sum_.share(summand), cells, dice) for summand in sum_.summands]


def masked(
    sealed: Sealed[Cells],
    sum_: SumPlan,
    participant: Participant,
    shares: Sequence[IntegerArray],
) -> bytes:
    """Return the site's numbers with its share of the noise, under its masks."""
    exact = unseal(sealed)
    if exact.keys is not None:
        raise Bug("the engine answered private keys that nobody chose from")
    parts = []
    for place, (summand, share) in enumerate(zip(sum_.summands, shares, strict=True)):
        parts.append(summand.on_grid(exact.parts[sum_.plan.tally_of(place)]) + share)
    return participant.masked(np.concatenate(parts).astype(np.int64))
