"""Bins of values, by search: an oracle for those that an engine finds by comparing."""

from __future__ import annotations

import numpy as np

from sfumato.dp.mechanisms.bounds_search import bin_starts
from sfumato.dp.sampling.threshold_table import Integers


def bins_of(values: Integers, exponents: int) -> Integers:
    """Return the bin of each value, given in steps; values outside go to the outermost bins."""
    places = np.searchsorted(np.array(bin_starts(exponents)), values, side="right") - 1
    return np.maximum(places, 0).astype(np.int64)
