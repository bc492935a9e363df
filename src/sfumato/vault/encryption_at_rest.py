"""Encryption at rest: encrypt and authenticate files by AES-256-GCM, in pieces of a megabyte.

An encrypted file is a magic string, 32 random bytes, and the pieces. Each file has its own key,
by HKDF-SHA256 of the vault's key, those bytes and the file's name. So a piece's nonce can be its
number and a flag for the last piece (the STREAM construction: Hoang, Reyhanitabar, Rogaway and
Vizár, 2015). A file that was truncated, changed, reordered or renamed is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK: Final = b"sfumato sealed 1"
KEY_BYTES: Final = 32
PIECE: Final = 1 << 20
_FRESH: Final = 32
_TAG: Final = 16

Read = Callable[[int], bytes]  # returns that many bytes, or fewer at the end


class Unsealable(Exception):
    """The file wasn't encrypted with this key and name, or is damaged; the message is constant."""

    def __init__(self) -> None:
        super().__init__("not sealed by this key, or damaged")


@dataclass(frozen=True)
class AtRest:
    """The vault's encryption key, and a source of random bytes."""

    key: bytes = field(repr=False)
    draw: Callable[[int], bytes] = field(repr=False)

    def sealer(self, name: str) -> Sealer:
        """Return an encryptor for a file of that name, which takes it part by part."""
        fresh = self.draw(_FRESH)
        return Sealer(MARK + fresh, _cipher(self.key, fresh, name))

    def sealed(self, name: str, content: bytes) -> bytes:
        """Encrypt the whole content of a file of that name."""
        sealer = self.sealer(name)
        return sealer.taken(content) + sealer.end()

    def pieces(self, name: str, read: Read) -> Iterator[bytes]:
        """Decrypt a file piece by piece; trust nothing of it before the last piece was yielded."""
        if read(len(MARK)) != MARK:
            raise Unsealable
        cipher = _cipher(self.key, read(_FRESH), name)
        number, piece = 0, read(PIECE + _TAG)
        while True:
            following = read(PIECE + _TAG)
            yield _opened(cipher, _nonce(number, is_last=not following), piece)
            if not following:
                return
            number, piece = number + 1, following

    def opened(self, name: str, content: bytes) -> bytes:
        """Decrypt the whole file of that name, or raise Unsealable."""
        return b"".join(self.pieces(name, BytesIO(content).read))


@dataclass
class Sealer:
    """Encrypts one file as a stream; it buffers no more than one piece between calls."""

    head: bytes
    cipher: AESGCM
    number: int = 0
    held: bytearray = field(default_factory=bytearray)

    def taken(self, part: bytes) -> bytes:
        """Add a part of the content; return the encrypted bytes that are complete."""
        self.held += part
        out, self.head = [self.head], b""
        while len(self.held) > PIECE:  # keep the rest: it may be the last piece, which has a flag
            out.append(self._sealed(bytes(self.held[:PIECE]), is_last=False))
            del self.held[:PIECE]
        return b"".join(out)

    def end(self) -> bytes:
        """Return the last encrypted bytes of the file."""
        head, self.head = self.head, b""
        return head + self._sealed(bytes(self.held), is_last=True)

    def _sealed(self, piece: bytes, *, is_last: bool) -> bytes:
        nonce = _nonce(self.number, is_last=is_last)
        self.number += 1
        return self.cipher.encrypt(nonce, piece, None)

    def all_of(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the encrypted file of these parts."""
        for part in parts:
            yield self.taken(part)
        yield self.end()


def _cipher(key: bytes, fresh: bytes, name: str) -> AESGCM:
    # Imported on first use, so that workers of vaults without encryption use less memory.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if len(key) != KEY_BYTES or len(fresh) != _FRESH:
        raise Unsealable
    derived = HKDF(SHA256(), KEY_BYTES, salt=fresh, info=MARK + b"\0" + name.encode())
    return AESGCM(derived.derive(key))


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if is_last else b"\0")


def _opened(cipher: AESGCM, nonce: bytes, piece: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    opened = None
    try:
        opened = cipher.decrypt(nonce, piece, None)
    except InvalidTag:
        opened = None
    if opened is None:
        raise Unsealable
    return opened
