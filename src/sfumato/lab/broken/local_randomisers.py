"""BROKEN. Randomisers of one person's own answer."""

from __future__ import annotations

from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen

TRUTH: Final = 1 / (1 + np.exp(-1.0))  # how often a coin of epsilon 1 tells the truth


def binary_odds(data: int, runs: int, dice: Random) -> Floats:
    """Return one of 16 values, true as often as a coin of two sides may be."""
    other = (data + dice.integers(1, 16, size=runs)) % 16
    return np.where(dice.random(runs) < TRUTH, data, other).astype(np.float64)


def one_bit_budget(data: int, runs: int, dice: Random) -> Floats:
    """Return four bits, each randomised as if it were the only one to differ."""
    bits = np.arange(4) == data
    return np.asarray((bits ^ (dice.random((runs, 4)) >= TRUTH)).astype(np.float64))


def told_twice(data: int, runs: int, dice: Random) -> Floats:
    """Return the same yes or no, randomised anew each of two times."""
    return np.asarray((bool(data) ^ (dice.random((runs, 2)) >= TRUTH)).astype(np.float64))


SPECIMENS: Final = (
    Specimen("L1", "16 values with a coin's odds", "randomised response with the odds of two",
             (0, 1), binary_odds, relation="answers"),
    Specimen("L2", "unary code, half paid", "two bits differ, one is paid",
             (0, 1), one_bit_budget, relation="answers"),
    Specimen("L3", "told twice", "a new coin each time, paid once", (0, 1), told_twice,
             relation="answers"),
)  # fmt: skip
