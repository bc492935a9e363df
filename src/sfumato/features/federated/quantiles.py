"""Quantiles over sites from one noisy histogram; this is post-processing, and free.

The sites sum up noisy bin counts. The quantile of a share (0.5 is the median) is a bin. It is the
first bin at which the running sum reaches that share of all rows. If noise makes the running sum
fall again later, the first bin still counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Final

from sfumato.dp.refusal import Refused

Z: Final = 1.959963984540054  # normal quantile for 95 %


@dataclass(frozen=True)
class Bins:
    """Released counts of consecutive bins of equal width, and the std of each count."""

    starts: Sequence[float]
    counts: Sequence[float]
    stds: Sequence[float]
    width: float


@dataclass(frozen=True)
class BinnedQuantile:
    """A quantile read off a noisy histogram: its bin, and a 95 % confidence range of bins.

    The range covers the noise alone.
    """

    p: float
    start: float
    end: float
    low: float
    high: float

    @property
    def value(self) -> float:
        """Return the middle of the quantile's bin."""
        return (self.start + self.end) / 2


def quantiles_of(bins: Bins, shares: Sequence[float]) -> tuple[BinnedQuantile, ...]:
    """Return the bin of each quantile in `shares` (0.5 is the median), in the same order."""
    check_shares(shares)
    return tuple(_quantile(bins, share) for share in shares)


def check_shares(shares: Sequence[float]) -> None:
    """Refuse quantile shares outside 0 to 1 (0.5 is the median), before anything is paid."""
    is_list = isinstance(shares, Sequence) and not isinstance(shares, str)
    if not is_list or not shares or not all(_is_share(share) for share in shares):
        raise Refused(
            "not-in-language",
            "A quantile must be a share from 0 to 1 of the rows.",
            "Give shares such as 0.25, 0.5 and 0.75.",
        )


def check_width(width: object) -> None:
    """Refuse a bin width that is not positive, before anything is paid."""
    is_number = isinstance(width, int | float | Decimal) and not isinstance(width, bool)
    if not is_number or not float(str(width)) > 0:
        raise Refused(
            "not-in-language",
            "A bin must have a width above zero.",
            "Give a width such as 5, in the column's own units.",
        )


def _is_share(share: object) -> bool:
    is_number = isinstance(share, int | float | Decimal) and not isinstance(share, bool)
    return is_number and 0 <= float(str(share)) <= 1


def _quantile(bins: Bins, share: float) -> BinnedQuantile:
    total = max(0.0, math.fsum(bins.counts))
    running = [0.0, *accumulate(bins.counts)][1:]
    over = [count - share * total for count in running]
    doubt = _doubts(bins.stds, share)
    here = _first(
        [o >= 0 and count > 0 for o, count in zip(over, running, strict=True)], len(over) - 1
    )
    low = _first([o + Z * d >= 0 for o, d in zip(over, doubt, strict=True)], here)
    high = _first([o - Z * d >= 0 for o, d in zip(over, doubt, strict=True)], len(over) - 1)
    low, high = min(low, here), max(high, here)
    ends = [start + bins.width for start in bins.starts]
    return BinnedQuantile(share, bins.starts[here], ends[here], bins.starts[low], ends[high])


def _doubts(stds: Sequence[float], share: float) -> list[float]:
    """Return the standard deviation of (running sum - share * total) at each bin.

    It says how uncertain the noise makes the place where the running sum reaches that share. The
    noises of the bins are taken to be independent.
    """
    squares = [std**2 for std in stds]
    whole = math.fsum(squares)
    below = [0.0, *accumulate(squares)][1:]
    return [math.sqrt((1 - share) ** 2 * b + share**2 * max(0.0, whole - b)) for b in below]


def _first(claims: Sequence[bool], otherwise: int) -> int:
    return next((place for place, is_so in enumerate(claims) if is_so), otherwise)
