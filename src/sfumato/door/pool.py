"""Noise drawn ahead in blocks, so that the time of a release says nothing of its noise.

A block is drawn in one vectorised call whose time depends on all its draws together; a release
takes the next ones. Held by tests/door/test_timing.py (slow).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.noise.kind import Noise
from sfumato.core.ports import Dice

BLOCK: Final = 4096
KINDS: Final = 256  # how many noises keep a block


class NoisePool:
    """Blocks of unused draws per noise; every draw is handed out once, in one process."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._blocks: OrderedDict[Noise, NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def take(self, noise: Noise, count: int) -> NDArray[np.int64]:
        """Return that many draws that nobody has had and nobody will have."""
        if count > BLOCK:
            return noise.sample(count, self._dice)
        with self._own_lock():
            block = self._blocks.pop(noise, None)
            if block is None or len(block) < count:
                block = noise.sample(BLOCK, self._dice)
            taken, rest = block[:count].copy(), block[count:]
            self._blocks[noise] = rest
            while len(self._blocks) > KINDS:
                self._blocks.popitem(last=False)
            return taken

    def _own_lock(self) -> threading.Lock:
        """Return this process's lock; a child drops what its parent drew, or both would use it."""
        if self._owner != os.getpid():
            self._lock = threading.Lock()
            self._blocks = OrderedDict()
            self._owner = os.getpid()
        return self._lock
