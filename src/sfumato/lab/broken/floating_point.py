"""BROKEN. Noise that float rounding, one-sided draws, redraws or a fixed seed gives away."""

from __future__ import annotations

from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace, on_grid


def naive_laplace(data: float, runs: int, dice: Random) -> Floats:
    """Add Laplace(1) noise in floats, whose lowest bits reveal the exact value.

    Only some floats are possible results for each exact value (Mironov 2012).
    """
    return np.asarray(data + dice.laplace(size=runs))


def naive_gaussian(data: float, runs: int, dice: Random) -> Floats:
    """Add Gaussian noise in floats, whose lowest bits reveal the exact value.

    The sigma of 3.73 is right for epsilon = 1 and delta = 1e-5.
    """
    return np.asarray(data + dice.normal(0, 3.73, size=runs))


def one_sided(data: float, runs: int, dice: Random) -> Floats:
    """Add exponential noise, which is never negative.

    So a result below some value shows that this value is not the exact one.
    """
    return data + on_grid(dice.exponential(1.0, size=runs))


def resampled(data: float, runs: int, dice: Random) -> Floats:
    """Add Laplace(1) noise, drawn again until the noisy count is not negative.

    The redraws change the distribution near zero; clamping a negative result to 0 would be right.
    """
    found = data + laplace(dice, 1.0, runs)
    while (again := np.flatnonzero(found < 0)).size:
        found[again] = data + laplace(dice, 1.0, again.size)
    return found


def fixed_seed(data: float, runs: int, dice: Random) -> Floats:
    """Add the same noise in every run, because the seed is fixed."""
    del dice
    return np.full(runs, data + np.random.default_rng(42).laplace())


COUNTS: Final = (0.0, 1.0)
SPECIMENS: Final = (
    Specimen("F1", "float Laplace", "x + numpy's Laplace: the lowest bits name x (Mironov 2012)",
             COUNTS, naive_laplace),
    Specimen("F2", "float Gaussian", "x + numpy's Gaussian: the lowest bits name x",
             COUNTS, naive_gaussian, delta=1e-5),
    Specimen("F3", "one-sided noise", "noise is never negative", COUNTS, one_sided),
    Specimen("F4", "drawn until it is plausible", "Laplace drawn again until the count is not "
             "negative (clamping would be right)", COUNTS, resampled),
    Specimen("F5", "fixed seed", "the generator is seeded alike for every question",
             COUNTS, fixed_seed),
)  # fmt: skip
