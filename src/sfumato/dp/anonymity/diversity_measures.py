"""How well a class hides what its people have in common: one number per class and measure.

Counts stay whole numbers, and what is divided is divided once, so a figure does not depend on the
order of the rows. `p` is a value's share of the whole table, `q` its share of the class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.class_contents import Contents
from sfumato.dp.anonymity.coded_table import Codes, Floats

_EXACT = 2**62


def alphas(of: Contents) -> Floats:
    """Return the share of each class that its most frequent value has (Wong 2006)."""
    return _share(np.maximum.reduceat(of.counts, of.starts), of.sizes)


def distinct_ls(of: Contents) -> Codes:
    """Return how many values each class holds (Machanavajjhala 2007)."""
    return np.bincount(of.of_class, minlength=len(of.sizes)).astype(np.int64)


def entropy_ls(of: Contents) -> Floats:
    """Return the exponential of each class's entropy: as if it held so many even values.

    Values that are even indeed give their whole number, not a hair less.
    """
    q = _share(of.counts, of.sizes[of.of_class])
    entropy = -np.bincount(of.of_class, q * np.log(q), minlength=len(of.sizes))
    values = distinct_ls(of)
    most = np.maximum.reduceat(of.counts, of.starts)
    found: Floats = np.where(most * values == of.sizes, values, np.exp(entropy))
    return found


def recursive_cs(of: Contents, l: int) -> Floats:  # noqa: E741  # the l of l-diversity
    """Return what c has to be above, in each class, for recursive (c, l)-diversity.

    The most frequent value's count over those of the l-th most frequent and all after it; where
    fewer than l values are, no c is enough. For l = 1 the tail holds the most frequent too.
    """
    order = np.lexsort((-of.counts, of.of_class))
    counts, rank = of.counts[order], np.arange(len(order)) - of.starts[of.of_class]
    tail = np.bincount(of.of_class, np.where(rank >= l - 1, counts, 0), minlength=len(of.sizes))
    most = counts[of.starts]
    cs: Floats = np.divide(most, tail, out=np.full(len(most), np.inf), where=tail > 0)
    return cs


def ts(of: Contents) -> Floats:
    """Return how far each class is from the whole table: by steps of order for numbers."""
    return ordered_ts(of) if of.is_ordered else equal_ts(of)


def equal_ts(of: Contents) -> Floats:
    """Return the distance of each class to the table where all values are equally far (Li 2007).

    Half the sum of |q - p|: what q is above p, over the values that the class holds.
    """
    people = int(of.totals.sum())
    above = of.counts * people - of.sizes[of.of_class] * of.totals[of.of_value]
    moved = np.bincount(of.of_class, np.maximum(above, 0), minlength=len(of.sizes))
    return _share(moved, of.sizes * people)


def ordered_ts(of: Contents) -> Floats:
    """Return the earth mover's distance of each class to the table, one step per value in order.

    Between two values that a class holds its running share stays, while the table's grows: of
    each such stretch the values below and above the crossing are summed from running sums.
    """
    totals = of.totals[of.totals > 0]
    if len(totals) < 2:
        return np.zeros(len(of.sizes))
    people = int(totals.sum())
    kind = np.int64 if people * people * len(totals) < _EXACT else np.float64
    running: NDArray[Any] = np.cumsum(totals).astype(
        kind
    )  # Any: whole, or floats; people with this value or a smaller one
    sums = np.concatenate([np.zeros(1, kind), np.cumsum(running)])
    place = (np.cumsum(of.totals > 0) - 1)[of.of_value]
    here = np.cumsum(of.counts)
    below = here - here[of.starts][of.of_class] + of.counts[of.starts][of.of_class]
    size: NDArray[Any] = of.sizes[of.of_class].astype(kind)
    ends = np.append(place[1:], len(totals))
    ends[of.starts[1:] - 1] = len(totals)
    level: NDArray[Any] = below.astype(kind) * people  # a running share, over size * people
    cross = np.searchsorted(running, level // size, side="right").clip(place, ends)
    after = size * (sums[ends] - sums[cross]) - level * (ends - cross)
    before = level * (cross - place) - size * (sums[cross] - sums[place])
    moved: NDArray[Any] = np.zeros(len(of.sizes), kind)
    np.add.at(moved, of.of_class, before + after)
    moved += of.sizes.astype(kind) * sums[place[of.starts]]  # where the class has nothing yet
    return _share(moved, of.sizes.astype(np.float64) * people * (len(totals) - 1))


def betas(of: Contents) -> Floats:
    """Return the largest (q - p)/p of each class: basic beta-likeness (Cao and Karras 2012)."""
    return np.maximum.reduceat(_gains(of), of.starts)


def enhanced_betas(of: Contents) -> Floats:
    """Return the least beta that each class has in enhanced beta-likeness, or infinity.

    Every value may gain at most min(beta, -ln p): one that gains more than -ln p has no beta.
    """
    gains = _gains(of)
    most = -np.log(_share(of.totals, np.full(of.values, of.totals.sum()))[of.of_value])
    return np.maximum.reduceat(np.where(gains > most, np.inf, gains), of.starts)


def deltas(of: Contents) -> Floats:
    """Return the largest |ln(q / p)| of each class, over the values that it holds.

    Brickell and Shmatikov (2008) ask it of all values of the table, and a class that lacks one is
    infinitely far; see `lacking`.
    """
    people = int(of.totals.sum())
    q = of.counts.astype(np.float64) * people
    p = of.sizes[of.of_class].astype(np.float64) * of.totals[of.of_value]
    return np.maximum.reduceat(np.abs(np.log(q / p)), of.starts)


def lacking(of: Contents) -> Codes:
    """Return how many values of the table each class does not hold."""
    return int(np.count_nonzero(of.totals)) - distinct_ls(of)


def _gains(of: Contents) -> Floats:
    people = int(of.totals.sum())
    expected = of.sizes[of.of_class] * of.totals[of.of_value]
    return _share(of.counts * people - expected, expected)


def _share(part: Codes | Floats, whole: Codes | Floats) -> Floats:
    return np.divide(part, whole, dtype=np.float64)
