"""BROKEN. Leave-one-out means, each with noise as wide as they are apart.

Never use it to protect anything. The width comes from the data; it shrinks as 1/n, as fast as what
one person adds to a mean, so that more people hide nobody better; and every person is in all the
means but one, so that whoever averages them is rid of most of the noise. An entry error stands out
of it by many widths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.lab.broken.leave_one_out_shared_noise import FloatArray, loo_means


def loo_std_releases(
    values: Sequence[float], dice: np.random.Generator, *, runs: int
) -> FloatArray:
    """Return that many independent releases, one a row, every mean with noise of its own."""
    means = loo_means(values)
    releases: FloatArray = means + dice.normal(0.0, means.std(), size=(runs, len(means)))
    return releases
