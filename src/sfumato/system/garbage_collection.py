"""Tune Python's garbage collector for servers: make full collections rare.

The collector only finds reference cycles. A full collection walks all live objects while every
thread waits: 0.1 to 0.2 s with two thousand cached plans. So every few seconds a query took that
much longer (decision 0014). With this tuning, the collector never walks the objects from the start.
It collects the oldest generation only after 100 collections of the middle generation (SELDOM).
"""

from __future__ import annotations

import gc
from typing import Final

SELDOM: Final = 100  # collections of the middle generation before a full one; Python's default: 10


def collect_seldom() -> None:
    """Exclude all current objects from garbage collection, and run full collections less often."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, SELDOM)


def collect_normally() -> None:
    """Undo the exclusion of objects from garbage collection, before the process exits.

    A C library reports objects that are left at exit as leaks.
    """
    gc.unfreeze()
