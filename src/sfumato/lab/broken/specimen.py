"""Describe one BROKEN mechanism: its claim, its flaw, and two neighbours that reveal the flaw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Random = np.random.Generator
GRID: Final = 2.0**20
Mechanism = Callable[..., Any]  # Any: each mechanism has outputs of its own kind
# The neighbouring relation of a pair. "joins" is the platform's own: one person is added. "swaps"
# replaces one person, which is two such steps and may cost twice. "answers" is what a local
# randomiser protects: one respondent's answer differs. "reorders" changes no person's data at all.
Relation = Literal["joins", "swaps", "answers", "reorders"]


@dataclass(frozen=True)
class Specimen:
    """A broken mechanism: its claim, its flaw, and neighbours (`pair`) that reveal the flaw."""

    id: str
    name: str
    flaw: str
    pair: tuple[Any, Any]  # Any: each mechanism has data of its own kind
    mechanism: Mechanism
    epsilon: float = 1.0  # as claimed
    delta: float = 0.0  # as claimed
    rho: float | None = None  # as claimed, instead of epsilon and delta
    catchable: bool = True  # the auditor can catch it in at most 131,072 runs
    relation: Relation = "joins"  # the neighbouring relation of the claim and of the pair


def laplace(dice: Random, scale: float, *shape: int) -> Floats:
    """Draw Laplace noise, rounded to a grid of 2**-20 so that its lowest bits reveal nothing."""
    return on_grid(dice.laplace(0.0, scale, size=shape))


def on_grid(numbers: Floats) -> Floats:
    """Round numbers to a grid of 2**-20, so that their lowest bits do not reveal another flaw."""
    return np.asarray(np.round(numbers * GRID) / GRID)
