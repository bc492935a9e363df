"""The only real randomness in the house; everyone else is handed it."""

from __future__ import annotations

import os


class SystemDice:
    """Random bytes of the operating system: no state of ours, so safe under fork and threads."""

    __slots__ = ()

    def draw(self, count: int) -> bytes:
        """Return that many fresh random bytes."""
        return os.urandom(count)
