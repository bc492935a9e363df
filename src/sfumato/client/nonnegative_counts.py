"""Round counts to non-negative integers that add up to their totals (a projection)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def nonnegative_counts(values: Floats, levels: Sequence[Integers]) -> Integers:
    """Round cells (groups' numbers) to non-negative integers, and keep the sums of every level.

    A level is an array that says, for each cell, in which of the level's sums the cell counts. Each
    level splits the sums of the level before. The sums are rounded too, and keep their rounded
    values.
    """
    above = np.zeros(len(values), dtype=np.int64)
    totals = np.array([max(0, round(float(values.sum())))], dtype=np.int64)
    for level in [*levels, np.arange(len(values), dtype=np.int64)]:
        sums = np.bincount(level, weights=values).astype(np.float64)
        parents = np.zeros(len(sums), dtype=np.int64)
        parents[level] = above
        totals = _split(sums, parents, totals)
        above = level
    return totals


def _split(sums: Floats, parents: Integers, totals: Integers) -> Integers:
    """Round sums to non-negative integers that add up to the total of their parent.

    `parents` says to which total each sum belongs.
    """
    made = np.zeros(len(sums), dtype=np.int64)
    order = np.argsort(parents, kind="stable")
    ends = np.cumsum(np.bincount(parents, minlength=len(totals)))[:-1]
    for members, total in zip(np.split(order, ends), totals.tolist(), strict=True):
        made[members] = rounded(onto_simplex(sums[members], total), total)
    return made


def onto_simplex(values: Floats, total: int) -> Floats:
    """Project values onto the simplex.

    It returns the nearest non-negative values whose sum is `total`.
    """
    falling = np.sort(values)[::-1]
    lowered = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(falling > lowered)
    shift = lowered[kept[-1]] if len(kept) else math.inf
    return np.asarray(np.maximum(values - shift, 0), dtype=np.float64)


def rounded(values: Floats, total: int) -> Integers:
    """Round values to integers whose sum is `total`.

    The values with the largest remainders are rounded up.
    """
    made = np.floor(values).astype(np.int64)
    missing = total - int(made.sum())
    made[np.argsort(made - values, kind="stable")[:missing]] += 1
    return made
