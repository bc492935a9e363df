"""Make and hash secret access tokens.

A token is random. Its prefix lets secret scanners find it. Its checksum detects a typing error
without a database lookup.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from sfumato.dp.ports import RandomSource

PREFIX: Final = "sfm1_"
SECRET_BYTES: Final = 32
_CHECK: Final = b"sfumato-token-check/1\n"
_DIGEST: Final = b"sfumato-token/1\n"


def make_secret_text(dice: RandomSource) -> str:
    """Return a new access token: 256 random bits and their checksum."""
    secret = base64.urlsafe_b64encode(dice.draw(SECRET_BYTES)).decode().rstrip("=")
    return f"{PREFIX}{secret}{_checksum(secret)}"


def token_digest(text: str) -> str | None:
    """Return the hash to store for an access token; None if its prefix or checksum is wrong."""
    body = text.removeprefix(PREFIX)
    is_ours = body != text and len(text) <= 100 and text.isascii()
    if not is_ours or _checksum(body[:-6]) != body[-6:]:
        return None
    return hashlib.sha256(_DIGEST + text.encode("ascii")).hexdigest()


def _checksum(secret: str) -> str:
    return hashlib.sha256(_CHECK + secret.encode()).hexdigest()[:6]
