"""Measures of l-diversity, t-closeness, beta-likeness and delta-disclosure, for each class.

`p` is the share of a value in the whole table, `q` its share in the class. Counts stay integers
and are divided once, so a measure does not depend on the order of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.anonymity.class_contents import Contents
from sfumato.dp.anonymity.coded_table import Codes, Floats

_EXACT = 2**62


def alphas(of: Contents) -> Floats:
    """Return the share of each class's most frequent sensitive value, for (alpha, k)-anonymity.

    Reference: Wong 2006.
    """
    return _share(np.maximum.reduceat(of.counts, of.starts), of.sizes)


def distinct_ls(of: Contents) -> Codes:
    """Return how many different sensitive values each class has: its distinct l-diversity.

    Reference: Machanavajjhala 2007.
    """
    return np.bincount(of.of_class, minlength=len(of.sizes)).astype(np.int64)


def entropy_ls(of: Contents) -> Floats:
    """Return exp(entropy) of each class: its effective number of values (entropy l-diversity).

    If all values of a class are equally frequent, the result is exactly their number, without
    float rounding.
    """
    q = _share(of.counts, of.sizes[of.of_class])
    entropy = -np.bincount(of.of_class, q * np.log(q), minlength=len(of.sizes))
    values = distinct_ls(of)
    most = np.maximum.reduceat(of.counts, of.starts)
    found: Floats = np.where(most * values == of.sizes, values, np.exp(entropy))
    return found


def recursive_cs(of: Contents, l: int) -> Floats:  # noqa: E741  # the l of l-diversity
    """Return for each class the bound that c must exceed for recursive (c, l)-diversity.

    This criterion limits how frequent the most frequent sensitive value may be. The bound is a
    quotient. Its numerator is the count of the class's most frequent sensitive value. Its
    denominator is the total count of the l-th most frequent value and all rarer ones. The quotient
    is infinite if a class has fewer than l values. For l = 1 the denominator includes the most
    frequent value.
    """
    order = np.lexsort((-of.counts, of.of_class))
    counts, rank = of.counts[order], np.arange(len(order)) - of.starts[of.of_class]
    tail = np.bincount(of.of_class, np.where(rank >= l - 1, counts, 0), minlength=len(of.sizes))
    most = counts[of.starts]
    cs: Floats = np.divide(most, tail, out=np.full(len(most), np.inf), where=tail > 0)
    return cs


def ts(of: Contents) -> Floats:
    """Return the t-closeness distance of each class's sensitive values to the whole table.

    Numbers use the ordered distance, other values the equal distance.
    """
    return ordered_ts(of) if of.is_ordered else equal_ts(of)


def equal_ts(of: Contents) -> Floats:
    """Return the t-closeness distance of each class, with equal distances between values.

    It is half the sum of |q - p| over all values (Li 2007). Here q is the share of a value in the
    class, and p its share in the whole table. Half the sum equals the sum of q - p over the values
    with q above p.
    """
    people = int(of.totals.sum())
    above = of.counts * people - of.sizes[of.of_class] * of.totals[of.of_value]
    moved = np.bincount(of.of_class, np.maximum(above, 0), minlength=len(of.sizes))
    return _share(moved, of.sizes * people)


def ordered_ts(of: Contents) -> Floats:
    """Return the t-closeness distance of each class to the whole table, for a numeric column.

    It is the earth mover's distance: how far the shares of the class must move, in steps between
    neighbouring values. It sums the differences between the cumulative shares of the class and of
    the table. Between two values of a class, its cumulative share is constant while that of the
    table grows. In each such stretch, running sums give the total difference before and after the
    two shares cross.
    """
    totals = of.totals[of.totals > 0]
    if len(totals) < 2:
        return np.zeros(len(of.sizes))
    people = int(totals.sum())
    kind = np.int64 if people * people * len(totals) < _EXACT else np.float64
    running: NDArray[Any] = np.cumsum(totals).astype(
        kind
    )  # Any: integers or floats; people with this value or a smaller one
    sums = np.concatenate([np.zeros(1, kind), np.cumsum(running)])
    place = (np.cumsum(of.totals > 0) - 1)[of.of_value]
    here = np.cumsum(of.counts)
    below = here - here[of.starts][of.of_class] + of.counts[of.starts][of.of_class]
    size: NDArray[Any] = of.sizes[of.of_class].astype(kind)
    ends = np.append(place[1:], len(totals))
    ends[of.starts[1:] - 1] = len(totals)
    level: NDArray[Any] = below.astype(kind) * people  # cumulative share times size * people
    cross = np.searchsorted(running, level // size, side="right").clip(place, ends)
    after = size * (sums[ends] - sums[cross]) - level * (ends - cross)
    before = level * (cross - place) - size * (sums[cross] - sums[place])
    moved: NDArray[Any] = np.zeros(len(of.sizes), kind)
    np.add.at(moved, of.of_class, before + after)
    moved += of.sizes.astype(kind) * sums[place[of.starts]]  # before the first value of the class
    return _share(moved, of.sizes.astype(np.float64) * people * (len(totals) - 1))


def betas(of: Contents) -> Floats:
    """Return the beta of each class: the largest relative gain (q - p)/p of a sensitive value.

    Here q is the share of the value in the class, and p its share in the whole table. This is basic
    beta-likeness (Cao and Karras 2012).
    """
    return np.maximum.reduceat(_gains(of), of.starts)


def enhanced_betas(of: Contents) -> Floats:
    """Return for each class the smallest beta of its enhanced beta-likeness; infinity if none.

    Let q be the share of a sensitive value in the class, and p its share in the whole table.
    Enhanced beta-likeness limits (q - p)/p to min(beta, -ln p). If (q - p)/p of a value exceeds -ln
    p, no beta is large enough.
    """
    gains = _gains(of)
    most = -np.log(_share(of.totals, np.full(of.values, of.totals.sum()))[of.of_value])
    return np.maximum.reduceat(np.where(gains > most, np.inf, gains), of.starts)


def deltas(of: Contents) -> Floats:
    """Return the largest |ln(q / p)| in each class, over its sensitive values (delta-disclosure).

    Here q is the share of a value in the class, and p its share in the whole table. Brickell and
    Shmatikov (2008) take the maximum over all values of the table. Theirs is infinite for a class
    that lacks a value, which `lacking` counts.
    """
    people = int(of.totals.sum())
    q = of.counts.astype(np.float64) * people
    p = of.sizes[of.of_class].astype(np.float64) * of.totals[of.of_value]
    return np.maximum.reduceat(np.abs(np.log(q / p)), of.starts)


def lacking(of: Contents) -> Codes:
    """Return for each class how many sensitive values of the whole table do not occur in it.

    A class that lacks a value violates delta-disclosure as published, which `deltas` does not show.
    """
    return int(np.count_nonzero(of.totals)) - distinct_ls(of)


def _gains(of: Contents) -> Floats:
    people = int(of.totals.sum())
    expected = of.sizes[of.of_class] * of.totals[of.of_value]
    return _share(of.counts * people - expected, expected)


def _share(part: Codes | Floats, whole: Codes | Floats) -> Floats:
    return np.divide(part, whole, dtype=np.float64)
