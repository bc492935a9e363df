"""BROKEN. Private selection that releases too much, or adds too little noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace, on_grid

Scores = Sequence[float]


def _scores(data: Scores, runs: int) -> Floats:
    return np.tile(np.asarray(data, dtype=np.float64), (runs, 1))


def noisy_max_value(data: Scores, runs: int, dice: Random) -> Floats:
    """Return the largest noisy score; epsilon pays only for which candidate has it.

    The score itself is not paid for.
    """
    scores = _scores(data, runs)
    return np.asarray((scores + laplace(dice, 2.0, *scores.shape)).max(axis=1))


def one_sided_max_value(data: Scores, runs: int, dice: Random) -> Floats:
    """Return the largest score with exponential noise; epsilon pays only for the candidate.

    The score itself is not paid for.
    """
    scores = _scores(data, runs)
    return on_grid((scores + dice.exponential(2.0, size=scores.shape)).max(axis=1))


def too_sharp(data: Scores, runs: int, dice: Random) -> Floats:
    """Return an exponential-mechanism choice whose weights lack the factor 1/2.

    The weights are exp(epsilon u) for a utility u, where exp(epsilon u / 2) is due.
    """
    scores = _scores(data, runs)
    return np.asarray((scores + dice.gumbel(size=scores.shape)).argmax(axis=1).astype(np.float64))


def best_of_five(data: float, runs: int, dice: Random) -> Floats:
    """Return the largest of five noisy answers, though epsilon pays for one answer only."""
    return np.asarray((data + laplace(dice, 1.0, runs, 5)).max(axis=1))


def chooses_a_record(data: Scores, runs: int, dice: Random) -> Floats:
    """Return a median that is chosen among the records, so that it can be one person's value.

    The candidates must be public.
    """
    records = np.sort(np.asarray(data, dtype=np.float64))
    ranks = -np.abs(np.arange(len(records)) - (len(records) - 1) / 2) / 2
    places = (ranks + dice.gumbel(size=(runs, len(records)))).argmax(axis=1)
    return np.asarray(records[places])


SPECIMENS: Final = (
    Specimen("R1", "noisy maximum with its value", "the largest noisy count leaves with its name",
             ((0.0,) * 20, (1.0,) * 20), noisy_max_value),
    Specimen("R2", "one-sided maximum with its value", "exponential noise, and the value leaves",
             ((0.0,) * 20, (1.0,) * 20), one_sided_max_value),
    Specimen("R3", "exponential mechanism without the 2", "scores go up and down, and the factor 2 "
             "is missing", ((0.0, *(1.0,) * 9), (1.0, *(0.0,) * 9)), too_sharp, relation="swaps"),
    Specimen("R4", "best of five", "asked five times, the best kept, paid once",
             (0.0, 1.0), best_of_five),
    Specimen("R5", "a quantile that is a record", "candidates are the records, not a public grid",
             ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0, 99.0)), chooses_a_record),
)  # fmt: skip
