"""Key files of mode 0600: the vault's salt, receipt key, site identity and engine secrets.

If the vault is encrypted at rest, these files are encrypted too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.system.durable_files import sync, write_new
from sfumato.vault.encryption_at_rest import AtRest, DecryptionError

# the file name used for encrypting texts, because their files may be renamed
_PRIVATE: Final = "private"


def make_secret(path: Path, dice: RandomSource, rest: AtRest | None = None) -> None:
    """Write 32 random bytes to a new key file that only its owner can read."""
    write_new(path, encrypted_at_rest(rest, path.name, dice.draw(32)))


def encrypted_at_rest(rest: AtRest | None, name: str, content: bytes) -> bytes:
    """Encrypt a key file's content if the vault is encrypted at rest; else return it unchanged."""
    return content if rest is None else rest.encrypt(name, content)


def decrypted_at_rest(rest: AtRest | None, name: str, content: bytes) -> bytes | None:
    """Decrypt the content of a key file if the vault is encrypted at rest; None if that fails.

    If the vault isn't encrypted, return the content unchanged.
    """
    if rest is None:
        return content
    try:
        return rest.decrypt(name, content)
    except DecryptionError:
        return None


def read_secret(path: Path, rest: AtRest | None = None) -> bytes:
    """Read a 32-byte secret from its key file; refuse if the file is missing or damaged."""
    secret = decrypted_at_rest(rest, path.name, path.read_bytes()) if path.is_file() else b""
    if secret is None or len(secret) != 32:
        raise Refused(
            "vault-missing",
            "A secret key file of the vault is missing or incomplete.",
            "Restore the vault's keys/ folder from its backup.",
        )
    return secret


def site_secret(path: Path, dice: RandomSource, rest: AtRest | None = None) -> bytes:
    """Return the secret key of the vault's identity as a federated site; create it on first use."""
    if not path.exists():
        draft = path.with_name(f".{path.name}-{dice.draw(8).hex()}")
        write_new(draft, encrypted_at_rest(rest, path.name, dice.draw(32)))
        with contextlib.suppress(FileExistsError):  # another process created it first: use that one
            os.link(draft, path)
        draft.unlink()
        sync(path.parent)  # without this, a crash could lose a key that other sites have registered
    return read_secret(path, rest)


def write_private(path: Path, text: str, rest: AtRest | None = None) -> None:
    """Write a private text to a new file that only its owner can read."""
    write_new(path, encrypted_at_rest(rest, _PRIVATE, text.encode()))


def read_private(path: Path, rest: AtRest | None = None) -> str:
    """Read a private text; refuse if its file is missing, damaged or readable by others."""
    if not path.is_file():
        raise Refused(
            "vault-missing",
            f"The vault's private file {path.name} is missing.",
            "Restore the vault's keys/ folder from its backup.",
        )
    if path.stat().st_mode & 0o077:
        raise Refused(
            "engine-unsafe",
            f"Other users can read {path}, which contains secrets of the vault.",
            "Make the file private (chmod 600), and change the secrets in it, because others may "
            "have read them.",
        )
    text = decrypted_at_rest(rest, _PRIVATE, path.read_bytes())
    if text is None:
        raise Refused(
            "vault-missing",
            f"The encrypted file {path} is damaged, or belongs to another vault.",
            "Restore the vault's keys/ folder from its backup.",
        )
    return text.decode()


class ReceiptKey:
    """Ed25519 key pair that signs receipts, derived from 32 secret bytes."""

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self._public = self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return the Ed25519 signature of a message, in hex."""
        return self._key.sign(message).hex()

    def public_key(self) -> str:
        """Return the public key that verifies receipts, in hex."""
        return self._public
