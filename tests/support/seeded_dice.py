"""Dice for tests: seeded, scripted, or counting what they are asked for."""

from __future__ import annotations

import numpy as np


class SeededDice:
    """Random bytes that are the same in every run."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, count: int) -> bytes:
        """Return the next bytes of the seeded stream."""
        return self._generator.bytes(count)


class ScriptedDice:
    """Says the given bytes, one after the other, then the same byte for ever."""

    def __init__(self, script: bytes, then: int = 0) -> None:
        self._script = script
        self._then = then

    def draw(self, count: int) -> bytes:
        """Return the next bytes of the script."""
        said, self._script = self._script[:count], self._script[count:]
        return said + bytes([self._then]) * (count - len(said))


class ColumnDice:
    """Gives whole columns to the draws of their size, in order; zeros to every other draw."""

    def __init__(self, *columns: bytes) -> None:
        self._columns = list(columns)

    def draw(self, count: int) -> bytes:
        """Return the next column if it has that size."""
        if self._columns and len(self._columns[0]) == count:
            return self._columns.pop(0)
        return bytes(count)


class CountingDice:
    """Seeded dice which remember how many bytes they gave."""

    def __init__(self, seed: int) -> None:
        self._dice = SeededDice(seed)
        self.given = 0

    def draw(self, count: int) -> bytes:
        """Return the next bytes and count them."""
        self.given += count
        return self._dice.draw(count)
