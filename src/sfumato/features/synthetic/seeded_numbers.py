"""Reproducible pseudo-random numbers from a seed: for synthetic rows only, never for noise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Thing = TypeVar("Thing")


class Seeded:
    """A reproducible stream of pseudo-random numbers; the seed and a name determine it.

    Equal seeds give equal synthetic rows. It must never make noise.
    """

    __slots__ = ("_count", "_key")

    def __init__(self, seed: str, name: str = "") -> None:
        self._key = hashlib.sha256(f"{len(seed)} {seed} {name}".encode()).digest()
        self._count = 0

    def draw(self, count: int) -> bytes:
        """Return the next `count` bytes of the pseudo-random stream."""
        self._count += 1
        head = self._key + self._count.to_bytes(8, "big")
        return hashlib.shake_128(head).digest(count)

    def uniforms(self, count: int) -> Floats:
        """Return pseudo-random floats, uniform in [0, 1)."""
        words = np.frombuffer(self.draw(8 * count), dtype="<u8")
        return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)

    def integers(self, below: int, count: int) -> Integers:
        """Return pseudo-random integers, uniform in [0, below)."""
        found = np.floor(self.uniforms(count) * below).astype(np.int64)
        return np.minimum(found, below - 1)

    def integer(self, below: int) -> int:
        """Return one pseudo-random integer in [0, below)."""
        return int(self.integers(below, 1)[0])

    def order(self, count: int) -> Integers:
        """Return a pseudo-random permutation of 0 to count - 1."""
        return np.asarray(np.argsort(self.uniforms(count), kind="stable"), dtype=np.int64)

    def one_of(self, things: Sequence[Thing]) -> Thing:
        """Return one pseudo-randomly chosen element of the sequence."""
        return things[self.integer(len(things))]
