"""The lock of `central-dp`: exact integers, plus noise that was drawn before they were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.ports import IntegerArray
from sfumato.core.refusal import Bug
from sfumato.core.sealed import Sealed
from sfumato.door.unseal import unseal

GUARANTEE: Final = "central-dp"
LARGEST: Final = 2**62


def blurred(
    sealed: Sealed[tuple[IntegerArray, ...]], noise: Sequence[NDArray[np.int64]]
) -> tuple[IntegerArray, ...]:
    """Return each part with its own noise added; one fresh draw per cell, none used twice."""
    exact = unseal(sealed)
    if len(exact) != len(noise):
        raise Bug("the engine answered other parts than were asked")
    return tuple(_sum(part, drawn) for part, drawn in zip(exact, noise, strict=True))


def _sum(part: IntegerArray, drawn: NDArray[np.int64]) -> IntegerArray:
    if part.shape != drawn.shape or part.dtype != np.int64:
        raise Bug("the engine answered other cells than were asked")
    if np.any(np.abs(part) > LARGEST):
        raise Bug("a part passed the bound that the plan proved")
    return np.add(part, drawn)
