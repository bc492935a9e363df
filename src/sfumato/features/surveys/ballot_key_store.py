"""Store the keys that sign ballot tokens, in files that only the vault's owner may read.

The cryptography library makes and loads the keys and verifies finished signatures. It has no raw
private RSA power, which a blind signature needs; features/surveys/blind_signatures.py has that.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.surveys import blind_signatures
from sfumato.storage.key_files import read_private, write_private
from sfumato.system.durable_files import make_folder, sync
from sfumato.vault.encryption_at_rest import AtRest

BITS: Final = blind_signatures.SMALLEST_KEY
_PSS: Final = padding.PSS(padding.MGF1(SHA384()), blind_signatures.HASH_BYTES)


class FileBallotKeys:
    """A BallotKeys (store of signing keys) in a folder that all nodes of the vault share."""

    def __init__(self, folder: Path, dice: RandomSource, rest: AtRest | None = None) -> None:
        self._folder = folder
        self._rest = rest
        self._dice = dice
        self._lock = threading.Lock()
        self._private: dict[str, blind_signatures.PrivateKey] = {}
        self._proofs: dict[str, tuple[bytes, ...]] = {}
        self._public: dict[blind_signatures.PublicKey, rsa.RSAPublicKey] = {}

    def make(self) -> tuple[blind_signatures.PublicKey, str]:
        """Create a key pair; return its public key and the private key's temporary name."""
        made = rsa.generate_private_key(blind_signatures.EXPONENT, BITS)
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")
        waiting = f"waiting-{self._dice.draw(8).hex()}"
        make_folder(self._folder)
        write_private(self._path(waiting), pem, self._rest)
        return _public_of(made), waiting

    def keep(self, waiting: str, survey: str) -> None:
        """Name a new private key after its survey, durably; until then it has a temporary name."""
        self._path(waiting).rename(self._path(survey))
        sync(self._folder)

    def sign(self, survey: str, blinded: bytes) -> bytes:
        """Sign a blinded ballot token with the survey's private key."""
        return blind_signatures.sign(self._loaded(survey), blinded, self._dice)

    def proof(self, survey: str) -> tuple[bytes, ...]:
        """Return the proof that the survey's key can't make signatures that identify respondents.

        The proof is empty once the key is deleted.
        """
        with self._lock:
            known = self._proofs.get(survey)
        if known is None and self._path(survey).is_file():
            known = blind_signatures.prove(self._loaded(survey), self._dice)
            with self._lock:
                self._proofs[survey] = known
        return known or ()

    def is_signed(self, key: blind_signatures.PublicKey, token: bytes, signature: bytes) -> bool:
        """Return True if the signature of a ballot token was made with the survey's key."""
        with self._lock:
            known = self._public.get(key)
            if known is None:
                known = rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()
                self._public[key] = known
        with contextlib.suppress(InvalidSignature):
            known.verify(signature, token, _PSS, SHA384())
            return True
        return False

    def forget(self, survey: str) -> None:
        """Delete the private key for good, so that the service signs nothing more with it."""
        with self._lock:
            self._private.pop(survey, None)
            self._proofs.pop(survey, None)
        self._path(survey).unlink(missing_ok=True)

    def _loaded(self, survey: str) -> blind_signatures.PrivateKey:
        """Load a survey's private key; refuse if any node of the vault has deleted it."""
        if not self._path(survey).is_file():
            raise Refused(
                "survey-not-open",
                "This survey gives out no more ballot tokens, because its signing key was deleted.",
                "Ask who invited you.",
            )
        with self._lock:
            known = self._private.get(survey)
        if known is None:
            known = _private_of(read_private(self._path(survey), self._rest))
            with self._lock:
                self._private[survey] = known
        return known

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.pem"


def _public_of(key: rsa.RSAPrivateKey) -> blind_signatures.PublicKey:
    numbers = key.public_key().public_numbers()
    return blind_signatures.PublicKey(numbers.n, numbers.e)


def _private_of(pem: str) -> blind_signatures.PrivateKey:
    key = load_pem_private_key(pem.encode("ascii"), None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise Bug("a ballot key that is no RSA key")
    numbers = key.private_numbers()
    return blind_signatures.PrivateKey(_public_of(key), numbers.p, numbers.q, numbers.d)
