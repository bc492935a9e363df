"""BROKEN. Local randomisers, which randomise one respondent's own answer."""

from __future__ import annotations

from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen

TRUTH: Final = 1 / (1 + np.exp(-1.0))  # chance of the truth: binary response at epsilon 1


def binary_odds(data: int, runs: int, dice: Random) -> Floats:
    """Return randomised response over 16 values, with a probability of the truth for two values."""
    other = (data + dice.integers(1, 16, size=runs)) % 16
    return np.where(dice.random(runs) < TRUTH, data, other).astype(np.float64)


def one_bit_budget(data: int, runs: int, dice: Random) -> Floats:
    """Return a randomised one-hot code of four bits: two bits differ, but only one is paid for."""
    bits = np.arange(4) == data
    return np.asarray((bits ^ (dice.random((runs, 4)) >= TRUTH)).astype(np.float64))


def told_twice(data: int, runs: int, dice: Random) -> Floats:
    """Return the same yes or no twice with fresh randomness; epsilon pays for one report only."""
    return np.asarray((bool(data) ^ (dice.random((runs, 2)) >= TRUTH)).astype(np.float64))


SPECIMENS: Final = (
    Specimen("L1", "16 values with a coin's odds", "randomised response with the odds of two",
             (0, 1), binary_odds, relation="answers"),
    Specimen("L2", "unary code, half paid", "two bits differ, one is paid",
             (0, 1), one_bit_budget, relation="answers"),
    Specimen("L3", "told twice", "a new coin each time, paid once", (0, 1), told_twice,
             relation="answers"),
)  # fmt: skip
