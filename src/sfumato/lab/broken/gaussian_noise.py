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
    """Return Gaussian noise on a grid of 2**-20."""
    return on_grid(dice.normal(0.0, sigma, size=shape))


def largest_for_length(data: Values, runs: int, dice: Random) -> Floats:
    """Return several numbers, with the noise of one number, not of their joint L2 sensitivity."""
    return np.asarray(data, dtype=np.float64) + gaussian(dice, deviation(0.1), runs, len(data))


def paid_once(data: float, runs: int, dice: Random) -> Floats:
    """Return x eight times, each time with the noise of the whole rho: composition is ignored."""
    return data + gaussian(dice, deviation(0.1), runs, 8)


def variance_for_deviation(data: float, runs: int, dice: Random) -> Floats:
    """Return x with noise that uses the required variance as its standard deviation."""
    return data + gaussian(dice, deviation(2.0) ** 2, runs)


def same_noise(data: Values, runs: int, dice: Random) -> Floats:
    """Return two numbers that share one noise draw."""
    return np.asarray(data, dtype=np.float64) + gaussian(dice, deviation(0.1), runs, 1)


def pulled_in(data: float, runs: int, dice: Random) -> Floats:
    """Return x with noise that is clamped to two standard deviations."""
    sigma = deviation(0.02)
    return data + on_grid(
        np.clip(gaussian(dice, sigma, runs), -TAIL_STDS * sigma, TAIL_STDS * sigma)
    )


def rate_of_another(data: float, runs: int, dice: Random) -> Floats:
    """Return x with Laplace noise of epsilon 1, claimed to cost rho = 1/8."""
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
