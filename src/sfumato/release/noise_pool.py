"""Draw noise in advance in blocks, so that a query's time reveals nothing about a single draw.

A background thread refills the block of each noise distribution in use. A release takes the next
draws. A release waits for a block only if the distribution is new in this process, or if it is
faster than the thread. Its time then depends on all draws of the block.
tests/release/test_timing.py (slow) tests it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.ports import RandomSource

BLOCK: Final = 4096
KINDS: Final = 256  # most noise distributions for which a block is kept


class NoisePool:
    """Unused noise draws, drawn in blocks per distribution; each draw is used at most once."""

    def __init__(self, dice: RandomSource) -> None:
        self.dice = dice
        self._begin()
        _POOLS.add(self)

    def take(self, noise: Noise, count: int) -> NDArray[np.int64]:
        """Return `count` draws of a noise distribution, which no other release uses."""
        if count > BLOCK:
            return noise.sample(count, self.dice)
        with self._changed:
            block = self._blocks.pop(noise, None)
            if block is None or len(block) < count:
                block = noise.sample(BLOCK, self.dice)
            self._keep(noise, block[count:])
            return block[:count].copy()

    def _begin(self) -> None:
        self._blocks: OrderedDict[Noise, NDArray[np.int64]] = OrderedDict()
        self._low: set[Noise] = set()  # distributions that the thread has to refill
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def _keep(self, noise: Noise, rest: NDArray[np.int64]) -> None:
        self._blocks[noise] = rest
        while len(self._blocks) > KINDS:
            self._blocks.popitem(last=False)
        if len(rest) < BLOCK // 2:
            self._low.add(noise)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._fill, daemon=True, name="noise")
                self._thread.start()
            self._changed.notify_all()

    def _fill(self) -> None:
        """Refill the blocks of draws that run low, in an endless loop of the background thread.

        The thread draws without the lock, so nobody waits.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._low))
                noise = next(iter(self._low))
            try:
                block = noise.sample(BLOCK, self.dice)
            finally:
                with self._changed:
                    self._low.discard(noise)
            with self._changed:
                if noise in self._blocks:
                    self._blocks[noise] = np.concatenate([self._blocks[noise], block])


_POOLS: Final[weakref.WeakSet[NoisePool]] = weakref.WeakSet()


def _begin_anew() -> None:
    """Drop the parent's noise in a forked child, so that no two processes use the same noise."""
    for pool in list(_POOLS):
        pool._begin()


os.register_at_fork(after_in_child=_begin_anew)
