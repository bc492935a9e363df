"""The only real randomness in the house; everyone else is handed it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

_FEW = 4096


class SystemDice:
    """Random bytes of the operating system: no state of ours, so safe under fork and threads."""

    __slots__ = ()

    def draw(self, count: int) -> bytes:
        """Return that many fresh random bytes."""
        return os.urandom(count)


class StretchedDice:
    """Random bytes by the million: a fresh key of the operating system, stretched by AES-256-CTR.

    Every draw takes a key of its own, so there is no state of ours here either. Below a few
    thousand bytes the system is asked directly.
    """

    __slots__ = ()

    def draw(self, count: int) -> bytes:
        """Return that many fresh random bytes."""
        return os.urandom(count) if count <= _FEW else _stretching()(os.urandom(32), count)


@lru_cache(maxsize=1)
def _stretching() -> Callable[[bytes, int], bytes]:
    """Return what stretches a key to so many bytes; the shell starts without the cipher.

    It is looked up once: three imports cost more than the cipher of a small draw.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    begin = CTR(bytes(16))
    return lambda key, count: Cipher(AES(key), begin).encryptor().update(_zeros(count))


@lru_cache(maxsize=4)
def _zeros(count: int) -> bytes:
    return bytes(count)
