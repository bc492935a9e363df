"""What the theory needs from the world: random bytes, handed in; and arrays of integers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntegerArray = NDArray[np.int64]


class Dice(Protocol):
    """A source of uniform random bytes."""

    def draw(self, count: int) -> bytes:
        """Return that many fresh random bytes."""
        ...
