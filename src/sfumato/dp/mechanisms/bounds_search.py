"""Private bounds search: find powers of two between which most values are.

The mechanism counts rows in public bins: zero, and [2**j, 2**(j+1)) for both signs. It adds
discrete Laplace noise to the counts. The outermost bins whose noisy count exceeds a public
threshold give the bounds. So the result depends on the noisy counts only (bounds_search.proof.md).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from sfumato.dp.mechanisms import laplace
from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.threshold_table import Integers

MAX_EXPONENTS: Final = 62


def bin_count(exponents: int) -> int:
    """Return the number of histogram bins for values whose magnitude is below 2**exponents.

    There is one bin for zero, and one for each power of two and sign.
    """
    if not 1 <= exponents <= MAX_EXPONENTS:
        raise Bug("bins are kept for 1 to 62 binary digits")
    return 2 * exponents + 1


def bin_starts(exponents: int) -> tuple[int, ...]:
    """Return the smallest integer of each histogram bin of the bounds search, in rising order.

    Integers below the first bin are counted in the first bin too.
    """
    return tuple(_starts(exponents).tolist())


@lru_cache(maxsize=64)
def _starts(exponents: int) -> Integers:
    """Return the smallest integer of each bounds-search bin as an array, in rising order."""
    bin_count(exponents)
    below = [1 - (2 << j) for j in reversed(range(exponents))]
    above = [1 << j for j in range(exponents)]
    return np.array([*below, 0, *above], dtype=np.int64)


def edges(place: int, exponents: int) -> tuple[int, int]:
    """Return the lower and upper edge of the bin with index `place`, as bounds of the values in it.

    Edges are in steps of the integer grid. Each is 0 or plus or minus a power of two.
    """
    digit = place - exponents
    if digit == 0:
        return 0, 0
    inner, outer = 1 << abs(digit) - 1, 1 << abs(digit)
    return (inner, outer) if digit > 0 else (-outer, -inner)


def threshold(epsilon: Fraction, rows: int, bins: int, false_positive: Fraction) -> int:
    """Return the smallest threshold that the noisy count of an empty bin rarely exceeds.

    The probability that any of the `bins` empty bins exceeds the threshold is at most
    `false_positive`. One person has at most `rows` rows.
    """
    if not 0 < false_positive < 1:
        raise Bug("a chance of false positives is between 0 and 1")
    scale = laplace.scale_for(rows, epsilon)
    return laplace.interval(scale, 1 - 2 * false_positive / bins)


def search_bounds(
    counts: Integers, *, epsilon: Fraction, rows: int, false_positive: Fraction, dice: RandomSource
) -> tuple[int, int] | None:
    """Return private lower and upper bounds of the values, or None if no bin passes the threshold.

    `counts` has the row count of each bin of `bin_starts`. One person has at most `rows` rows over
    all bins. The search costs epsilon, or rho = epsilon**2 / 2 under zCDP.
    """
    exponents = counts.size // 2
    if counts.shape != (bin_count(exponents),):
        raise Bug("there must be one count for each bin")
    noise = laplace.sample(laplace.scale_for(rows, epsilon), counts.size, dice)
    limit = threshold(epsilon, rows, counts.size, false_positive)
    passing = np.flatnonzero(counts + noise > limit)
    if passing.size == 0:
        return None
    return edges(int(passing[0]), exponents)[0], edges(int(passing[-1]), exponents)[1]
