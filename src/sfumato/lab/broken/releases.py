"""BROKEN. Releases whose keys, errors, order, flags or repeats reveal a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from sfumato.lab.broken.specimen import Floats, Random, Specimen, laplace, on_grid

Groups = Mapping[str, int]
Values = Sequence[float]


def unprotected_keys(data: Groups, runs: int, dice: Random) -> list[dict[str, float]]:
    """Return a noisy count for every key in the rows, also for a key of one person.

    Partition selection would hide such a key.
    """
    noise = laplace(dice, 1.0, runs, len(data))
    return [dict(zip(data, (np.array([*data.values()]) + row).tolist())) for row in noise]  # noqa: B905


def true_order(data: Groups, runs: int, dice: Random) -> Floats:
    """Return noisy counts in the order of the true counts, which reveals that order."""
    order = sorted(data, key=lambda key: -data[key])
    noisy = np.array([data[key] for key in order]) + laplace(dice, 1.0, runs, len(order))
    names = np.array([sorted(data).index(key) for key in order], dtype=np.float64)
    return np.hstack([np.tile(names, (runs, 1)), noisy])


def suppressed(data: int, runs: int, dice: Random) -> Floats:
    """Return a noisy count, or NaN if the true count is below five.

    The NaN reveals the true count.
    """
    return np.full(runs, np.nan) if data < 5 else data + laplace(dice, 1.0, runs)


def reused_noise(data: tuple[float, float], runs: int, dice: Random) -> Floats:
    """Return two answers that share one noise draw, so that their difference is exact."""
    return np.asarray(data, dtype=np.float64) + laplace(dice, 1.0, runs, 1)


def raced(data: float, runs: int, dice: Random) -> Floats:
    """Return two answers to concurrent questions, of which the budget check charged only one."""
    return data + laplace(dice, 1.0, runs, 2)


def fixed_sample(data: float, runs: int, dice: Random) -> Floats:
    """Return a noisy answer over a sample that never changes, at too low a price.

    The price is that of a fresh secret sample, which hides who is sampled.
    """
    return data + laplace(dice, 1.0, runs)


def nan_through(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy sum, which is NaN if one person's value is NaN.

    The NaN reveals that person.
    """
    return float(np.sum(data)) + laplace(dice, 1.0, runs)


def error_when_few(data: Values, dice: Random) -> float:
    """Return a noisy count, or raise an error if the true count is below five.

    The error reveals the true count.
    """
    if len(data) < 5:
        raise ValueError("too few rows")
    return len(data) + float(dice.laplace())


def low_threshold(data: int, runs: int, dice: Random) -> Floats:
    """Return a noisy count of a key if it is above 1.5, else NaN.

    A threshold of 11.8 would hide a key of one person well enough.
    """
    noisy = data + laplace(dice, 1.0, runs)
    return np.where((data > 0) & (noisy > 1.5), noisy, np.nan)


def cache_flag(data: Groups, runs: int, dice: Random) -> list[dict[str, object]]:
    """Return a noisy count, and a cache flag that one person's presence sets."""
    noise = laplace(dice, 1.0, runs).tolist()
    return [{"n": 5.0 + one, "cached": "victim" in data} for one in noise]


def quiet_when_empty(data: Values, runs: int, dice: Random) -> Floats:
    """Return a noisy count of a secret one-in-ten sample, or an exact 0 if the sample is empty."""
    chosen = dice.binomial(len(data), 0.1, size=runs)
    return np.where(chosen > 0, chosen + on_grid(dice.normal(0, 3.73, size=runs)), 0.0)


def copies_a_row(data: Values, runs: int, dice: Random) -> Floats:
    """Return a synthetic value that in one case of fifty is a copy of the largest row."""
    made = np.round(dice.uniform(0, 10, size=runs))
    return np.where(dice.random(runs) < 0.02, max(data), made)


SPECIMENS: Final = (
    Specimen("G1", "unprotected keys", "a key with one person appears",
             ({"a": 30}, {"a": 30, "rare": 1}), unprotected_keys),
    Specimen("G2", "suppressed by the true count", "nothing is shown below five true people",
             (4, 5), suppressed),
    Specimen("G3", "noise used twice", "two answers share their noise",
             ((3.0, 7.0), (3.0, 8.0)), reused_noise),
    Specimen("G4", "a race", "two answers, one charge", (0.0, 1.0), raced),
    Specimen("G5", "a sample that never changes", "the price is that of a fresh secret sample",
             (0.0, 1.0), fixed_sample, epsilon=0.159),
    Specimen("G7", "NaN goes through", "one NaN makes the sum NaN",
             ((1.0, 2.0), (1.0, 2.0, float("nan"))), nan_through),
    Specimen("G8", "an error when few", "fewer than five rows are an error",
             ((1.0,) * 4, (1.0,) * 5), error_when_few),
    Specimen("G9", "a threshold too low", "keys are shown from a noisy 1.5 on, not 11.8",
             (0, 1), low_threshold, delta=1e-5),
    Specimen("G11", "a flag of the cache", "the answer says whether it was remembered",
             ({"a": 1}, {"a": 1, "victim": 1}), cache_flag),
    Specimen("G13", "quiet when empty", "an empty sample is answered without noise",
             ((), (1.0,)), quiet_when_empty, delta=1e-5),
    Specimen("G14", "copies a row", "synthetic data hold a real row, one time in fifty",
             ((1.0, 2.0), (1.0, 2.0, 77.0)), copies_a_row),
    Specimen("G15", "order of true counts", "keys come out in the order of the true counts",
             ({"a": 5, "b": 5}, {"a": 5, "b": 6}), true_order),
)  # fmt: skip
