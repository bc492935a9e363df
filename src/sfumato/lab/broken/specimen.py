"""BROKEN mechanisms as specimens: what each claims, what is wrong, who shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Random = np.random.Generator
GRID: Final = 2.0**20
Mechanism = Callable[..., Any]  # Any: what comes out is whatever was broken
# How the two of a pair are neighbours. The house's own relation is the first: somebody joins. A
# swap is two such steps, and so may cost twice; one's own answer is what local noise protects; the
# order of the rows is nothing that anybody has.
Relation = Literal["joins", "swaps", "answers", "reorders"]


@dataclass(frozen=True)
class Specimen:
    """One broken mechanism; `pair` are two neighbours that it tells apart."""

    id: str
    name: str
    what_is_wrong: str
    pair: tuple[Any, Any]  # Any: each mechanism has data of its own kind
    mechanism: Mechanism
    epsilon: float = 1.0  # as claimed
    delta: float = 0.0  # as claimed
    rho: float | None = None  # as claimed, instead of both
    catchable: bool = True  # by running it at most 131,072 times
    relation: Relation = "joins"  # what the claim is about, and the pair is a case of


def laplace(dice: Random, scale: float, *shape: int) -> Floats:
    """Return Laplace noise, on a fine grid."""
    return on_grid(dice.laplace(0.0, scale, size=shape))


def on_grid(numbers: Floats) -> Floats:
    """Return the numbers on a grid of 2**-20: their lowest bits shall not show another fault."""
    return np.asarray(np.round(numbers * GRID) / GRID)
