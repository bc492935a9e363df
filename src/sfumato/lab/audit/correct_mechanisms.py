"""Correct mechanisms, written independently of the platform: the auditor must not accuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.lab.audit.auditor import Random

Control = Callable[[Any, int, Random], NDArray[Any]]  # Any: each control has its own data


def discrete_laplace(data: int, runs: int, dice: Random) -> NDArray[np.int64]:
    """Return the data with discrete Laplace noise of epsilon 1.

    The noise is the difference of two geometric draws.
    """
    chance = 1 - np.exp(-1.0)
    return np.asarray(data + dice.geometric(chance, size=runs) - dice.geometric(chance, size=runs))


def randomised_response(data: int, runs: int, dice: Random) -> NDArray[np.int64]:
    """Return a randomised bit that is true as often as epsilon 1 allows."""
    lies = dice.random(runs) >= 1 / (1 + np.exp(-1.0))
    return np.asarray(data ^ lies, dtype=np.int64)


def eight_values(data: int, runs: int, dice: Random) -> NDArray[np.int64]:
    """Return one of eight values, and the true one as often as epsilon 1 allows."""
    truth = dice.random(runs) < np.e / (np.e + 7)
    return np.where(truth, data, (data + dice.integers(1, 8, size=runs)) % 8)


def told_in_full(data: int, runs: int, dice: Random) -> NDArray[np.float64]:
    """Return randomised response of epsilon 1, or the truth with probability delta = 0.05."""
    found = randomised_response(data, runs, dice).astype(np.float64)
    return np.where(dice.random(runs) < 0.05, 10.0 + data, found)


CONTROLS: Final[dict[str, tuple[Control, float]]] = {  # name -> mechanism, delta; epsilon is 1
    "numpy's discrete Laplace": (discrete_laplace, 0.0),
    "randomised response": (randomised_response, 0.0),
    "randomised response of eight values": (eight_values, 0.0),
    "randomised response with a delta": (told_in_full, 0.05),
}
