"""A judge of noise: is this the promised distribution, and is every draw its own?

It accuses an honest mechanism with probability below 1e-6, and with 20,000 draws it catches 0.9
and 1.1 times the scale with probability above 0.999 (tests/release/test_noise_judge.py shows both).
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 1e-6
Kind = Literal["laplace", "gaussian"]


def accusations(noise: NDArray[np.int64], kind: Kind, parameter: Fraction) -> list[str]:
    """Return what is wrong with the noise; an empty list is an acquittal."""
    tests = {
        "centre": _centre(noise, kind, parameter),
        "width": _width(noise, kind, parameter),
        "shape": _shape(noise, kind, parameter),
        "repeats": _repeats(noise),
    }
    return [name for name, p in tests.items() if p < ALPHA / len(tests)]


def _variance(kind: Kind, parameter: Fraction) -> float:
    if kind == "gaussian":
        return float(parameter)
    a = math.exp(-1 / float(parameter))
    return 2 * a / (1 - a) ** 2


def _centre(noise: NDArray[np.int64], kind: Kind, parameter: Fraction) -> float:
    z = noise.mean() / math.sqrt(_variance(kind, parameter) / len(noise))
    return float(2 * stats.norm.sf(abs(z)))


def _width(noise: NDArray[np.int64], kind: Kind, parameter: Fraction) -> float:
    """Compare the mean of |noise| (Laplace) or of its square (Gaussian) with what was promised."""
    if kind == "laplace":
        a = math.exp(-1 / float(parameter))
        mean = 2 * a / (1 - a * a)
        spread = math.sqrt(_variance(kind, parameter) - mean**2)
        z = (np.abs(noise).mean() - mean) / (spread / math.sqrt(len(noise)))
    else:
        variance = float(parameter)
        z = ((noise.astype(float) ** 2).mean() - variance) / (variance * math.sqrt(2 / len(noise)))
    return float(2 * stats.norm.sf(abs(z)))


def _shape(noise: NDArray[np.int64], kind: Kind, parameter: Fraction) -> float:
    """Return the p-value of a chi-square over about 40 cells of equal promise."""
    if kind == "laplace":
        cdf = stats.dlaplace(1 / float(parameter)).cdf
    else:
        sigma = math.sqrt(parameter)

        def cdf(k: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(stats.norm.cdf((k + 0.5) / sigma))

    spread = math.sqrt(_variance(kind, parameter))
    edges = np.unique(np.floor(stats.norm.ppf(np.linspace(0.02, 0.98, 40)) * spread))
    promised = np.diff(np.concatenate([[0.0], cdf(edges), [1.0]])) * len(noise)
    seen = np.bincount(np.searchsorted(edges, noise), minlength=len(edges) + 1)
    return float(stats.chisquare(seen, promised * seen.sum() / promised.sum()).pvalue)


def _repeats(noise: NDArray[np.int64]) -> float:
    """Return how likely it is that the draws echo each other at any distance."""
    echo = _correlation(noise)
    stuck = Counter(zip(noise[:-4].tolist(), noise[1:-3].tolist(), noise[2:-2].tolist(),
                        noise[3:-1].tolist(), strict=True)).most_common(1)[0][1]  # fmt: skip
    p = float(2 * stats.norm.sf(echo)) * len(noise)
    likely = Counter(noise.tolist()).most_common(1)[0][1] / len(noise)
    expected = len(noise) * likely**4
    return min(p, 1.0, float(stats.poisson.sf(stuck - 2, expected)) * len(noise))


def _correlation(noise: NDArray[np.int64]) -> float:
    """Return the largest normalised autocorrelation over all distances, as a z-score."""
    centred = np.sign(noise).astype(float)
    size = 1 << (2 * len(noise) - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    echoes = np.fft.irfft(power, size)[1 : len(noise) - 200]
    overlap = len(noise) - np.arange(1, len(echoes) + 1)
    return float(np.max(np.abs(echoes) / np.sqrt(overlap)))
