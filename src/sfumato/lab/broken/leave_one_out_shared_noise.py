"""BROKEN. Leave-one-out means with one shared noise value, as a research notebook released them.

Never use it to protect anything: one noise value cancels in every difference, the scale comes from
the data, and the noise is never small. `test_everyone_is_rebuilt_exactly_by_who_knows_one_person`
rebuilds every value from it. It takes a numpy generator, so no door could call it with its dice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def loo_means(values: Sequence[float]) -> FloatArray:
    """Return one mean per person, each without that person."""
    everyone = np.asarray(values, dtype=np.float64)
    if len(everyone) < 2:
        raise ValueError("a leave-one-out mean needs at least two people")
    means: FloatArray = (everyone.sum() - everyone) / (len(everyone) - 1)
    return means


def broken_release(values: Sequence[float], dice: np.random.Generator) -> FloatArray:
    """Return the notebook's release: every leave-one-out mean plus one and the same noise."""
    release: FloatArray = broken_releases(values, dice, runs=1)[0]
    return release


def broken_releases(values: Sequence[float], dice: np.random.Generator, *, runs: int) -> FloatArray:
    """Return that many independent releases, one a row."""
    means = loo_means(values)
    distances = np.abs(means - means.mean())
    noise = _noise(dice, scale=float(means.std()), sensitivity=float(distances.max()), runs=runs)
    releases: FloatArray = means + noise[:, np.newaxis]
    return releases


def _noise(dice: np.random.Generator, *, scale: float, sensitivity: float, runs: int) -> FloatArray:
    """Return one noise value per run.

    The notebook draws Laplace(0, scale) until |noise| >= sensitivity. The exponential tail forgets
    how far it has come, so |noise| = sensitivity + Exp(scale) with a random sign is the same
    distribution, in one draw: one outlier among many equals would keep the loop busy for ever.
    """
    signs = dice.choice(np.array([-1.0, 1.0]), size=runs)
    noise: FloatArray = signs * (sensitivity + dice.exponential(scale, size=runs))
    return noise
