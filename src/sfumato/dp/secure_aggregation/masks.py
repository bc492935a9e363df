"""Masks for secure aggregation: X25519 key agreement, expanded by ChaCha20 to random words."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.message_encoding import refused

Words = NDArray[np.unsignedinteger[Any]]  # Any: of 32 bits or of 64
KEY_BYTES: Final = 32
_CHUNK: Final = 1 << 15  # words per chunk, so that they fit in the CPU cache
_NARROW: Final = 32


def word_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the dtype that holds integers modulo 2**bits: 32-bit or 64-bit unsigned words."""
    return np.dtype("<u4") if bits <= _NARROW else np.dtype("<u8")


def reduced(words: Words, bits: int) -> Words:
    """Reduce unsigned words modulo 2**bits, so that the result has no higher bits."""
    kept: Words = words & words.dtype.type((1 << bits) - 1)
    return kept


def from_signed(values: NDArray[np.int64], bits: int) -> Words:
    """Convert signed integers to unsigned words modulo 2**bits, to which masks can be added."""
    wide = values.astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)
    return wide.astype(word_type(bits))


def to_signed(words: Words, bits: int) -> NDArray[np.int64]:
    """Convert words modulo 2**bits to signed integers: of all candidates, the closest to zero."""
    wide = words.astype(np.uint64) << np.uint64(64 - bits)
    return wide.view(np.int64) >> np.int64(64 - bits)


def agreed_key(own: X25519PrivateKey, other: bytes, digest: bytes, use: bytes) -> bytes:
    """Derive the secret 256-bit key that two sites share for this round and purpose (`use`)."""
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    # low order: the shared secret would be public
    except ValueError as wrong:
        raise refused("A site's key cannot be used for a key agreement.") from wrong
    return HKDF(SHA256(), KEY_BYTES, salt=digest, info=b"sfumato sum " + use).derive(shared)


def check_key(key: bytes) -> None:
    """Refuse a site's public key of low order, because its shared secrets would be public.

    The check uses a fixed private key, so it involves no secret.
    """
    agreed_key(X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES))), key, b"", b"check")


def own_key(seed: bytes, digest: bytes) -> bytes:
    """Derive the key of a site's self mask from its secret seed; no other site shares this mask.

    `digest` identifies the round.
    """
    return HKDF(SHA256(), KEY_BYTES, salt=digest, info=b"sfumato sum self").derive(seed)


def commitment(seed: bytes, digest: bytes) -> bytes:
    """Return a site's commitment to its secret seed: a hash that does not reveal the seed.

    It shows later whether a recovered seed is the right one.
    """
    return sha256(b"sfumato sum seed" + digest + seed).digest()


def add_mask(words: Words, key: bytes) -> None:
    """Add the pseudorandom mask of a key to the words, in place, modulo their width."""
    _apply(words, key, np.add)


def take_mask(words: Words, key: bytes) -> None:
    """Subtract the pseudorandom mask of a key from the words, in place, modulo their width."""
    _apply(words, key, np.subtract)


def _apply(words: Words, key: bytes, act: np.ufunc) -> None:
    if len(key) != KEY_BYTES:
        raise Bug("a mask is stretched from a key of 256 bits")
    # each key makes one mask only, so counter and nonce may start at zero
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    zeros = bytes(_CHUNK * words.itemsize)
    drawn = np.empty(_CHUNK, dtype=words.dtype)
    for start in range(0, words.size, _CHUNK):
        part = words[start : start + _CHUNK]
        count = part.size
        stream.update_into(zeros[: count * words.itemsize], drawn.view(np.uint8).data)
        act(part, drawn[:count], out=part)
