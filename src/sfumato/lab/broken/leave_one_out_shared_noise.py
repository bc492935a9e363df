"""BROKEN. Leave-one-out means with one shared noise value, as a research notebook released them.

Never use it to protect anything: the shared noise cancels in every difference, its scale comes
from the data, and it is never small. `test_everyone_is_rebuilt_exactly_by_who_knows_one_person`
reconstructs every value from it. It takes a numpy generator, so the guarded release, which has
another random source, cannot call it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def loo_means(values: Sequence[float]) -> FloatArray:
    """Return the leave-one-out means: one mean per person, each without that person."""
    everyone = np.asarray(values, dtype=np.float64)
    if len(everyone) < 2:
        raise ValueError("a leave-one-out mean needs at least two people")
    means: FloatArray = (everyone.sum() - everyone) / (len(everyone) - 1)
    return means


def broken_release(values: Sequence[float], dice: np.random.Generator) -> FloatArray:
    """Return the notebook's release: every leave-one-out mean plus the same noise value.

    The shared noise cancels in every difference, so the release protects nobody.
    """
    release: FloatArray = broken_releases(values, dice, runs=1)[0]
    return release


def broken_releases(values: Sequence[float], dice: np.random.Generator, *, runs: int) -> FloatArray:
    """Return `runs` independent releases of the means with shared noise, one release per row."""
    means = loo_means(values)
    distances = np.abs(means - means.mean())
    noise = _noise(dice, scale=float(means.std()), sensitivity=float(distances.max()), runs=runs)
    releases: FloatArray = means + noise[:, np.newaxis]
    return releases


def _noise(dice: np.random.Generator, *, scale: float, sensitivity: float, runs: int) -> FloatArray:
    """Return the shared noise value of each run.

    The notebook draws Laplace(0, scale) until |noise| >= sensitivity. The exponential tail is
    memoryless, so |noise| = sensitivity + Exp(scale) with a random sign has the same distribution.
    One draw replaces a loop that, with one outlier among many equal values, would hardly ever end.
    """
    signs = dice.choice(np.array([-1.0, 1.0]), size=runs)
    noise: FloatArray = signs * (sensitivity + dice.exponential(scale, size=runs))
    return noise
