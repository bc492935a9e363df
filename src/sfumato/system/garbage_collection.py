"""When a process that serves looks for garbage: seldom among what it keeps, for that stops it.

Python frees what nobody refers to at once; its collector is for cycles alone. A full collection
walks all that is kept while every thread waits: 0.1 to 0.2 s beside two thousand remembered plans,
so somebody's question took that much longer every few seconds (decision 0014). What was
loaded at the start is walked no more, and the rest only after so many collections of what is young.
"""

from __future__ import annotations

import gc
from typing import Final

SELDOM: Final = 100  # collections of the middle ages to a full one; the interpreter's own is 10


def collect_seldom() -> None:
    """Leave all that is here for ever, and look through what comes to be kept less often."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, SELDOM)


def collect_normally() -> None:
    """Look through all of it again: what is left at the end, a library in C calls a leak."""
    gc.unfreeze()
