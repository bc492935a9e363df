"""BROKEN. Noise that is weaker than the rho (zCDP) that it claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace, on_grid

Values = Sequence[float]
TAIL_STDS: Final = 2.0  # the bounds of the clamped noise, in standard deviations


def deviation(rho: float) -> float:
    """Return the standard deviation of Gaussian noise that costs rho at sensitivity 1."""
    return float(np.sqrt(1 / (2 * rho)))


def gaussian(dice: Random, sigma: float, *shape: int) -> Floats:
    """Draw Gaussian noise, rounded to a grid of 2**-20 so that its lowest bits reveal nothing."""
    return on_grid(dice.normal(0.0, sigma, size=shape))


def largest_for_length(data: Values, runs: int, dice: Random) -> Floats:
    """Add noise for a change of one number, although one person changes eight of them.

    The L2 sensitivity is the length of the change, not its largest number.
    """
    return np.asarray(data, dtype=np.float64) + gaussian(dice, deviation(0.1), runs, len(data))


def paid_once(data: float, runs: int, dice: Random) -> Floats:
    """Return one value eight times with independent noise, each time at the whole claimed rho.

    Composition is ignored: all eight together cost eight times the claim.
    """
    return data + gaussian(dice, deviation(0.1), runs, 8)


def variance_for_deviation(data: float, runs: int, dice: Random) -> Floats:
    """Add Gaussian noise whose standard deviation is, by mistake, the variance that is required."""
    return data + gaussian(dice, deviation(2.0) ** 2, runs)


def same_noise(data: Values, runs: int, dice: Random) -> Floats:
    """Add one noise draw to two numbers, so that their difference is exact."""
    return np.asarray(data, dtype=np.float64) + gaussian(dice, deviation(0.1), runs, 1)


def pulled_in(data: float, runs: int, dice: Random) -> Floats:
    """Add Gaussian noise that is clamped to two standard deviations.

    The clamped ends reveal the exact value.
    """
    sigma = deviation(0.02)
    return data + on_grid(
        np.clip(gaussian(dice, sigma, runs), -TAIL_STDS * sigma, TAIL_STDS * sigma)
    )


def rate_of_another(data: float, runs: int, dice: Random) -> Floats:
    """Add Laplace noise of epsilon 1, with a claim of rho = 1/8 that holds for another mechanism.

    rho = epsilon**2 / 8 is right for the exponential mechanism only.
    """
    return data + laplace(dice, 1.0, runs)


EIGHT: Final = (0.0,) * 8
SPECIMENS: Final = (
    Specimen("Z1", "the largest for the length", "one person moves eight numbers by one each, and "
             "the noise is for one", (EIGHT, (1.0,) * 8), largest_for_length, rho=0.1),
    Specimen("Z2", "told eight times, paid once", "each of eight answers has the noise of the "
             "whole rho", (0.0, 1.0), paid_once, rho=0.1),
    Specimen("Z3", "variance for deviation", "sigma is 1/(2 rho), which is its square",
             (0.0, 1.0), variance_for_deviation, rho=2.0),
    Specimen("Z4", "one Gaussian for two", "two numbers have the same noise",
             ((0.0, 0.0), (1.0, 0.0)), same_noise, rho=0.1),
    Specimen("Z5", "far noise pulled in", "noise ends at two deviations, so that the ends name x",
             (0.0, 1.0), pulled_in, rho=0.02),
    Specimen("Z6", "a rho of another mechanism", "epsilon squared by eight is the rho of the "
             "exponential mechanism, not of Laplace noise", (0.0, 1.0), rate_of_another, rho=0.125),
)  # fmt: skip
