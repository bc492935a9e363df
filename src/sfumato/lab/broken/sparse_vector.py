"""BROKEN. Sparse vector techniques, most of them from Lyu, Su, Li 2017 (Alg. 3 to 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace

Answers = Sequence[float]
CUTOFF: Final = 5


def _noisy(data: Answers, runs: int, dice: Random, *, scale: float) -> Floats:
    exact = np.tile(np.asarray(data, dtype=np.float64), (runs, 1))
    return exact + laplace(dice, scale, *exact.shape) if scale else exact


def _cut(is_above: Floats, positives: int) -> Floats:
    """Return the sparse-vector answers up to the last allowed yes, and NaN after it."""
    seen = np.cumsum(is_above, axis=1) - is_above
    return np.where(seen < positives, is_above, np.nan)


def releases_the_value(data: Answers, runs: int, dice: Random) -> Floats:
    """Return the first noisy answer above the threshold; epsilon pays only for a yes.

    This is algorithm 3 of Lyu, Su, Li 2017.
    """
    noisy = _noisy(data, runs, dice, scale=2.0)
    is_above = (noisy >= laplace(dice, 2.0, runs, 1)).astype(np.float64)
    said = _cut(is_above, 1)
    return np.where(said == 1, noisy, np.where(np.isnan(said), np.nan, -1e6))


def ignores_the_cutoff(data: Answers, runs: int, dice: Random) -> Floats:
    """Return yes or no per answer, with noise that does not grow with the five allowed positives.

    This is algorithm 4 of Lyu, Su, Li 2017.
    """
    noisy = _noisy(data, runs, dice, scale=4 / 3)
    return _cut((noisy >= laplace(dice, 4.0, runs, 1)).astype(np.float64), CUTOFF)


def no_answer_noise(data: Answers, runs: int, dice: Random) -> Floats:
    """Return yes or no per answer, from a noisy threshold but exact answers.

    This is algorithm 5 of Lyu, Su, Li 2017.
    """
    exact = _noisy(data, runs, dice, scale=0.0)
    return (exact >= laplace(dice, 2.0, runs, 1)).astype(np.float64)


def no_cutoff(data: Answers, runs: int, dice: Random) -> Floats:
    """Return yes or no per answer, with any number of positives at the price of one.

    This is algorithm 6 of Lyu, Su, Li 2017.
    """
    noisy = _noisy(data, runs, dice, scale=2.0)
    return (noisy >= laplace(dice, 2.0, runs, 1)).astype(np.float64)


def no_threshold_noise(data: Answers, runs: int, dice: Random) -> Floats:
    """Return yes or no per noisy answer, from an exact threshold, at the price of one answer.

    Without noise on the threshold, every answer must be paid for.
    """
    return (_noisy(data, runs, dice, scale=2.0) >= 0.5).astype(np.float64)


def _swapped(low: int, high: int) -> tuple[Answers, Answers]:
    return (0.0,) * low + (1.0,) * high, (1.0,) * low + (0.0,) * high


SPECIMENS: Final = (
    Specimen("V3", "sparse vector with values", "releases the noisy answer that passed the test",
             _swapped(5, 1), releases_the_value, relation="swaps"),
    Specimen("V4", "sparse vector, unscaled", "answer noise is not scaled by the five positives",
             _swapped(10, 5), ignores_the_cutoff, relation="swaps"),
    Specimen("V5", "sparse vector, exact answers", "only the threshold is noisy",
             _swapped(1, 1), no_answer_noise, relation="swaps"),
    Specimen("V6", "sparse vector without an end", "never stops, at the price of one answer",
             _swapped(4, 4), no_cutoff, relation="swaps"),
    Specimen("V7", "sparse vector, exact threshold", "every answer is paid as if it were free",
             ((0.0,) * 20, (1.0,) * 20), no_threshold_noise),
)  # fmt: skip
