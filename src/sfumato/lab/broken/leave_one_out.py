"""BROKEN. Releases of leave-one-out means, on the bundled synthetic heights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.leave_one_out_shared_noise import broken_releases, loo_means
from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace, on_grid
from sfumato.lab.sample_data import HEIGHTS, read_numbers

Values = Sequence[float]


def shared_noise(data: Values, runs: int, dice: Random) -> Floats:
    """Return all leave-one-out means with one shared noise draw, so that differences are exact.

    A leave-one-out mean is the mean without one person.
    """
    return broken_releases(data, dice, runs=runs)


def adds_the_deviation(data: Values, runs: int, dice: Random) -> Floats:
    """Return the mean plus the standard deviation of the leave-one-out means, without any noise.

    A leave-one-out mean is the mean without one person.
    """
    del dice
    return np.full(runs, np.mean(data) + np.std(loo_means(data)))


def noise_of_that_deviation(data: Values, runs: int, dice: Random) -> Floats:
    """Return the mean with Gaussian noise as wide as the deviation of the leave-one-out means.

    That deviation depends on the rows: an outlier sets the width of the noise.
    """
    return on_grid(np.mean(data) + dice.normal(0, np.std(loo_means(data)), size=runs))


def local_laplace(data: Values, runs: int, dice: Random) -> Floats:
    """Return the mean with Laplace noise scaled by the farthest leave-one-out mean.

    That is the local sensitivity, which an outlier in the rows changes.
    """
    mean = float(np.mean(data))
    return on_grid(mean + laplace(dice, float(np.abs(loo_means(data) - mean).max()), runs))


def _heights() -> tuple[Values, Values, Values]:
    """Return three data sets: all heights, the first person 1 cm taller, and one height left out.

    The height that is left out is the smallest, an entry error (1.65).
    """
    values = read_numbers(HEIGHTS, "Height")
    return values, [values[0] + 1, *values[1:]], [one for one in values if one != min(values)]


EVERYBODY, TALLER, WITHOUT = _heights()
SPECIMENS: Final = (
    Specimen("S1", "one noise for all means", "differences of leave-one-out means have no noise",
             (EVERYBODY, TALLER), shared_noise, relation="swaps"),
    Specimen("S2", "adds the deviation", "there is no randomness in it",
             (EVERYBODY, TALLER), adds_the_deviation, delta=1e-5, relation="swaps"),
    Specimen("S3", "noise of that deviation", "the outlier sets the width of the noise",
             (EVERYBODY, WITHOUT), noise_of_that_deviation, delta=1e-5),
    Specimen("S4", "noise of the largest distance", "local sensitivity, outlier and all",
             (EVERYBODY, WITHOUT), local_laplace),
)  # fmt: skip
