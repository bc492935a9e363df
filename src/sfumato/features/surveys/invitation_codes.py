"""Invitation codes that people can type, and the base64url encoding of tokens."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from typing import Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused

CODE_BYTES: Final = 10  # 80 bits: sixteen letters
_DIGEST: Final = b"sfumato-survey-invitation/1\n"
_TO_ADDRESS: Final = bytes.maketrans(b"+/", b"-_")
_FROM_ADDRESS: Final = bytes.maketrans(b"-_", b"+/")
_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


def make_code(dice: RandomSource) -> str:
    """Create a random invitation code, in groups of four letters."""
    letters = base64.b32encode(dice.draw(CODE_BYTES)).decode("ascii")
    return "-".join(letters[at : at + 4] for at in range(0, 16, 4))


def code_digest(code: str) -> str:
    """Return the digest under which a typed code is stored; refuse text that is no code."""
    letters = code.upper().replace("-", "").replace(" ", "") if len(code) <= 40 else ""
    if len(letters) != 16 or not set(letters) <= _LETTERS:
        raise unknown_invitation()
    return hashlib.sha256(_DIGEST + letters.encode("ascii")).hexdigest()


def unknown_invitation() -> Refused:
    """Return the refusal of an invitation code, the same for malformed and for unknown codes."""
    return Refused(
        "invitation-unknown",
        "This survey has no invitation with this code.",
        "Type the code as you got it: sixteen letters and digits, in groups of four.",
    )


def shown_bytes(value: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return _shown(value).decode("ascii")


def read_bytes(text: str, size: int, name: str) -> bytes:
    """Decode base64url of exactly `size` bytes; refuse any non-canonical encoding."""
    value, sent = None, text.encode("ascii", "replace")
    with contextlib.suppress(binascii.Error):
        value = binascii.a2b_base64(sent.translate(_FROM_ADDRESS) + b"=" * (-len(sent) % 4))
    if value is None or len(value) != size or _shown(value) != sent:  # a2b_base64 is lenient
        raise Refused(
            "bad-request",
            f"The field {name} of the request is not {size} bytes in base64url.",
            "Load the survey's page again, and answer there.",
        )
    return value


def _shown(value: bytes) -> bytes:
    return binascii.b2a_base64(value, newline=False).translate(_TO_ADDRESS).rstrip(b"=")
