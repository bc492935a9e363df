"""BROKEN. Bounds and noise scales that depend on the rows, and clamping that comes too late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace

Values = Sequence[float]
EIGHT_TO_THREE: Final = ((0.0,) * 7 + (10.0,) * 4, (0.0,) * 6 + (10.0,) * 5)


def secret_size(data: Values, runs: int, dice: Random) -> Floats:
    """Return a mean with noise of scale 1/n, where n is the private number of rows.

    The noise scale depends on whether a person is in the data.
    """
    return float(np.mean(data)) + laplace(dice, 1 / len(data), runs)


def clamped_too_late(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy sum that is clamped after the noise; the values are never clamped.

    So one huge value can move the sum by far more than the noise covers.
    """
    return np.clip(float(np.sum(data)) + laplace(dice, 1.0, runs), 0, 100)


def bounds_of_the_rows(data: Values, runs: int, dice: Random) -> Floats:
    """Return a mean with noise scaled by the range of its own rows: equal rows get no noise."""
    spread = (max(data) - min(data)) / len(data)
    return float(np.mean(data)) + spread * laplace(dice, 1.0, runs)


def local_sensitivity(data: Values, runs: int, dice: Random) -> Floats:
    """Return a median with noise scaled by its local sensitivity on these rows.

    Local sensitivity depends on the rows, so the width of the noise reveals them.
    """
    return _median(data) + _gap(data) * laplace(dice, 1.0, runs)


def untested_distance(data: Values, runs: int, dice: Random) -> Floats:
    """Return a propose-test-release median whose test has no noise; a failed test gives NaN.

    One person can decide the outcome of the exact test.
    """
    if _gap(data) > 0:
        return np.full(runs, np.nan)
    return _median(data) + laplace(dice, 1.0, runs)


def relative_noise(data: float, runs: int, dice: Random) -> Floats:
    """Return a value with noise in proportion to the value itself; a value of 0 gets no noise."""
    return data * (1 + laplace(dice, 1.0, runs))


def range_of_the_blocks(data: Values, runs: int, dice: Random) -> Floats:
    """Return a sample-and-aggregate mean with noise scaled by the range of the blocks' results.

    Equal blocks get no noise, so one outlier is visible.
    """
    blocks = np.array([np.mean(block) for block in np.array_split(np.asarray(data), 4)])
    return float(blocks.mean()) + float(np.ptp(blocks)) / 4 * laplace(dice, 1.0, runs)


def clipped_batch(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy mean gradient that is clipped as a whole, not for each person.

    One person's huge gradient can move the mean from end to end of the clipping range.
    """
    mean = min(max(float(np.mean(data)), -1.0), 1.0)
    return mean + laplace(dice, 1 / len(data), runs)


def _median(data: Values) -> float:
    return float(np.sort(data)[len(data) // 2])


def _gap(data: Values) -> float:
    ordered, middle = np.sort(data), len(data) // 2
    return float(max(ordered[middle + 1] - ordered[middle], ordered[middle] - ordered[middle - 1]))


SPECIMENS: Final = (
    Specimen("M1", "noise by the secret size", "noise (U - L)/(n epsilon), and n is secret",
             ((0.5,), (0.5, 0.5)), secret_size),
    Specimen("M2", "clamped after the noise", "values are not clamped, only the answer is",
             ((0.5,) * 3, (0.5, 0.5, 0.5, 50.0)), clamped_too_late),
    Specimen("M3", "bounds from the rows", "the least and largest row are the bounds",
             ((5.0,) * 9, (*(5.0,) * 8, 6.0)), bounds_of_the_rows, relation="swaps"),
    Specimen("M10", "local sensitivity", "noise by how far the median moves here, not anywhere",
             EIGHT_TO_THREE, local_sensitivity, relation="swaps"),
    Specimen("M11", "noise in proportion", "noise is proportional to the answer",
             (0.0, 1.0), relative_noise),
    Specimen("G6", "blocks set their range", "sample and aggregate with the blocks' own range",
             ((5.0,) * 12, (*(5.0,) * 11, 90.0)), range_of_the_blocks, relation="swaps"),
    Specimen("G10", "untested distance", "propose-test-release whose test has no noise",
             EIGHT_TO_THREE, untested_distance, relation="swaps"),
    Specimen("G12", "clipped as a batch", "the mean gradient is clipped, not each person's",
             ((0.1,) * 9, (*(0.1,) * 9, 1000.0)), clipped_batch),
)  # fmt: skip
