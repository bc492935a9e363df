"""Encryption at rest: encrypt and authenticate files by AES-256-GCM, in pieces of a megabyte.

An encrypted file is a magic string, 32 random bytes, and the pieces. Each file has its own key,
which HKDF-SHA256 derives from the vault's key, those bytes and the file's name. So the nonce of a
piece can be its number plus a flag for the last piece (the STREAM construction: Hoang,
Reyhanitabar, Rogaway and Vizár, 2015). A file that was truncated, changed, reordered or renamed is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC: Final = b"sfumato sealed 1"
KEY_BYTES: Final = 32
PIECE: Final = 1 << 20
_FRESH: Final = 32
_TAG: Final = 16

Read = Callable[[int], bytes]  # returns that many bytes, or fewer at the end


class DecryptionError(Exception):
    """The file wasn't encrypted with this key and name, or is damaged; the message is constant."""

    def __init__(self) -> None:
        super().__init__("not sealed by this key, or damaged")


@dataclass(frozen=True)
class AtRest:
    """Encrypts and decrypts files with the vault's key; `draw` returns random bytes."""

    key: bytes = field(repr=False)
    draw: Callable[[int], bytes] = field(repr=False)

    def encryptor(self, name: str) -> FileEncryptor:
        """Return an encryptor for a file of that name; it takes the content in chunks."""
        fresh = self.draw(_FRESH)
        return FileEncryptor(MAGIC + fresh, _cipher(self.key, fresh, name))

    def encrypt(self, name: str, content: bytes) -> bytes:
        """Encrypt the whole content of a file of that name, and return the encrypted file."""
        encryptor = self.encryptor(name)
        return encryptor.update(content) + encryptor.finalize()

    def decrypt_pieces(self, name: str, read: Read) -> Iterator[bytes]:
        """Decrypt a file piece by piece.

        Trust the content only after the last piece was authenticated.
        """
        if read(len(MAGIC)) != MAGIC:
            raise DecryptionError
        cipher = _cipher(self.key, read(_FRESH), name)
        number, piece = 0, read(PIECE + _TAG)
        while True:
            following = read(PIECE + _TAG)
            yield _decrypt(cipher, _nonce(number, is_last=not following), piece)
            if not following:
                return
            number, piece = number + 1, following

    def decrypt(self, name: str, content: bytes) -> bytes:
        """Decrypt a whole encrypted file of that name, or raise `DecryptionError`."""
        return b"".join(self.decrypt_pieces(name, BytesIO(content).read))


@dataclass
class FileEncryptor:
    """Encrypts one file as a stream; at most one piece (1 MB) is buffered between calls."""

    header: bytes
    cipher: AESGCM
    number: int = 0
    buffer: bytearray = field(default_factory=bytearray)

    def update(self, part: bytes) -> bytes:
        """Add a chunk of the content; return the encrypted bytes that are complete."""
        self.buffer += part
        out, self.header = [self.header], b""
        while len(self.buffer) > PIECE:  # keep one piece back: the last piece needs a flag
            out.append(self._encrypt(bytes(self.buffer[:PIECE]), is_last=False))
            del self.buffer[:PIECE]
        return b"".join(out)

    def finalize(self) -> bytes:
        """Encrypt what is buffered as the last piece of the file, and return it."""
        head, self.header = self.header, b""
        return head + self._encrypt(bytes(self.buffer), is_last=True)

    def _encrypt(self, piece: bytes, *, is_last: bool) -> bytes:
        nonce = _nonce(self.number, is_last=is_last)
        self.number += 1
        return self.cipher.encrypt(nonce, piece, None)

    def all_of(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the encrypted file whose content is these chunks."""
        for part in parts:
            yield self.update(part)
        yield self.finalize()


def _cipher(key: bytes, fresh: bytes, name: str) -> AESGCM:
    # Imported on first use, so that workers of vaults without encryption use less memory.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if len(key) != KEY_BYTES or len(fresh) != _FRESH:
        raise DecryptionError
    derived = HKDF(SHA256(), KEY_BYTES, salt=fresh, info=MAGIC + b"\0" + name.encode())
    return AESGCM(derived.derive(key))


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if is_last else b"\0")


def _decrypt(cipher: AESGCM, nonce: bytes, piece: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    opened = None
    try:
        opened = cipher.decrypt(nonce, piece, None)
    except InvalidTag:
        opened = None
    if opened is None:
        raise DecryptionError
    return opened
