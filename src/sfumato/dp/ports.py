"""The types that `dp` takes from its callers: a source of random bytes, and integer arrays."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntegerArray = NDArray[np.int64]


class RandomSource(Protocol):
    """The interface of a source of uniform random bytes, which the caller of `dp` provides.

    `dp` never reads the system's random numbers itself.
    """

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes."""
        ...
