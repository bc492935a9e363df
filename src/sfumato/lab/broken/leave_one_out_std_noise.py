"""BROKEN. Leave-one-out means, each with noise scaled by the standard deviation of those means.

Never use it to protect anything. The noise scale comes from the data. It shrinks as 1/n, as fast
as one person's share of a mean, so more people hide nobody better. Every person is in all means
but one, so averaging the means removes most of the noise. An entry error differs from the rest by
many times the noise scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.lab.broken.leave_one_out_shared_noise import FloatArray, loo_means


def loo_std_releases(
    values: Sequence[float], dice: np.random.Generator, *, runs: int
) -> FloatArray:
    """Return `runs` independent releases of the leave-one-out means, one release per row.

    Each mean has its own noise draw.
    """
    means = loo_means(values)
    releases: FloatArray = means + dice.normal(0.0, means.std(), size=(runs, len(means)))
    return releases
