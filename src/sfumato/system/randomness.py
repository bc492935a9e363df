"""The only source of real (cryptographic) randomness; other modules get it as a `RandomSource`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

_FEW = 4096


class SystemRandomSource:
    """Source of the operating system's random bytes; stateless, so safe under fork and threads."""

    __slots__ = ()

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes of the operating system."""
        return os.urandom(count)


class BulkRandomSource:
    """Fast source of many random bytes: AES-256-CTR, with a fresh system key per draw.

    Each draw has its own key, so this class has no state. Draws of up to 4096 bytes come directly
    from the operating system.
    """

    __slots__ = ()

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes."""
        return os.urandom(count) if count <= _FEW else _stretching()(os.urandom(32), count)


StretchedDice = BulkRandomSource  # the name of version 0.1


@lru_cache(maxsize=1)
def _stretching() -> Callable[[bytes, int], bytes]:
    """Return the function that stretches a key to `count` random bytes, by AES in CTR mode.

    The cipher is imported on first use, so that the command line starts faster. The function is
    cached, because its three imports cost more than a small draw.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    begin = CTR(bytes(16))
    return lambda key, count: Cipher(AES(key), begin).encryptor().update(_zeros(count))


@lru_cache(maxsize=4)
def _zeros(count: int) -> bytes:
    return bytes(count)
