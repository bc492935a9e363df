"""BROKEN. Sums with too small a sensitivity, exact by-products, or faulty machine arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace, on_grid

Values = Sequence[float]
BIG: Final = float(1 << 25)  # a number so large that adding 1 to it has no effect in float32


def noised(data: float, runs: int, dice: Random) -> Floats:
    """Add Laplace(1) noise, although one person can change the value by more than 1."""
    return data + laplace(dice, 1.0, runs)


def noised_each(data: Values, runs: int, dice: Random) -> Floats:
    """Add Laplace(1) noise to each number, although one person changes several of them."""
    return np.asarray(data, dtype=np.float64) + laplace(dice, 1.0, runs, len(data))


def exact_spread(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy mean and, without any noise, the exact variance."""
    mean = float(np.mean(data)) + laplace(dice, 1.0, runs)
    return np.column_stack([mean, np.full(runs, np.var(data))])


def rounded_before(data: float, runs: int, dice: Random) -> Floats:
    """Round the value to tens, then add noise for a sensitivity of 1; rounding makes it 10."""
    return round(data / 10) * 10 + laplace(dice, 1.0, runs)


def wrapping(data: Sequence[int], runs: int, dice: Random) -> Floats:
    """Return a noisy 32-bit sum that wraps around on overflow, so one person can flip its sign."""
    total = int(np.array(data, dtype=np.int64).sum()) + (1 << 31)
    return float(total % (1 << 32) - (1 << 31)) + laplace(dice, 1.0, runs)


def running_float32(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy running sum in 32-bit floats, which depends on the order of the rows."""
    total = float(np.cumsum(np.asarray(data, dtype=np.float32), dtype=np.float32)[-1])
    return total + laplace(dice, 1.0, runs)


def exact_count_beside(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy sum and, without any noise, the exact number of rows."""
    return np.column_stack([sum(data) + laplace(dice, 1.0, runs), np.full(runs, len(data))])


def spread_for_scale(data: float, runs: int, dice: Random) -> Floats:
    """Add Laplace noise with a standard deviation of 1/epsilon; the scale should be 1/epsilon.

    The standard deviation is the scale times the square root of 2, so the noise is too narrow.
    """
    return data + laplace(dice, 1 / np.sqrt(2), runs)


def classic_gaussian(data: float, runs: int, dice: Random) -> Floats:
    """Add Gaussian noise of the textbook sigma for epsilon = 20 and delta = 0.01.

    The formula is proved only up to epsilon 1.
    """
    return data + on_grid(dice.normal(0, np.sqrt(2 * np.log(125)) / 20, size=runs))


def rho_for_epsilon(data: float, runs: int, dice: Random) -> Floats:
    """Add Gaussian noise that costs rho = 1 (zCDP), with a claim of epsilon = 1."""
    return data + on_grid(dice.normal(0, np.sqrt(0.5), size=runs))


ZEROS: Final = (0.0,) * 8
SPECIMENS: Final = (
    Specimen("M4", "exact variance", "the mean is noisy, the variance beside it is exact",
             ((1.0, 2.0, 3.0), (1.0, 2.0, 4.0)), exact_spread, relation="swaps"),
    Specimen("M5", "rows without a bound", "counts rows as if everyone had one; somebody has ten",
             (100.0, 110.0), noised),
    Specimen("M6", "a join that multiplies", "one person's row matches four",
             (100.0, 104.0), noised),
    Specimen("M7", "the largest for the sum", "one person moves eight numbers by one each",
             (ZEROS, (1.0,) * 8), noised_each),
    Specimen("M8", "joining for swapping", "noise for somebody who joins, claimed for a swap",
             ((1.0, 0.0), (0.0, 1.0)), noised_each, relation="swaps"),
    Specimen("M9", "rounded before", "rounds to tens, then noise as if it moved by one",
             (14.6, 15.4), rounded_before),
    Specimen("M12", "a sum that wraps", "32 bits overflow",
             ((2**31 - 1,), (2**31 - 1, 1)), wrapping),
    Specimen("M13", "a sum that depends on order", "32-bit floats, added up as the rows lie",
             ((BIG, *(1.0,) * 64), (*(1.0,) * 64, BIG)), running_float32, relation="reorders"),
    Specimen("M14", "an exact count beside", "a noisy sum leaves with the exact number of rows",
             ((1.0, 1.0), (1.0, 1.0, 0.0)), exact_count_beside),
    Specimen("N1", "textbook Gaussian at epsilon 20", "sigma from a formula that holds below 1: a "
             "check of the formula finds it, running does not", (0.0, 1.0), classic_gaussian,
             epsilon=20.0, delta=0.01, catchable=False),
    Specimen("N2", "deviation for scale", "Laplace scale 1/(sqrt 2 epsilon)",
             (0.0, 1.0), spread_for_scale),
    Specimen("N3", "rho sold as epsilon", "zCDP's rho = 1 is sold as epsilon = 1",
             (0.0, 1.0), rho_for_epsilon, delta=1e-5),
)  # fmt: skip
