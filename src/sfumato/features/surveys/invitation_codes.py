"""Invitation codes, which a person can read out and type; and bytes as they travel."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from typing import Final

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Refused

CODE_BYTES: Final = 10  # 80 bits: sixteen letters
_DIGEST: Final = b"sfumato-survey-invitation/1\n"
_TO_ADDRESS: Final = bytes.maketrans(b"+/", b"-_")
_FROM_ADDRESS: Final = bytes.maketrans(b"-_", b"+/")
_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")


def make_code(dice: Dice) -> str:
    """Return a new code, in groups of four letters."""
    letters = base64.b32encode(dice.draw(CODE_BYTES)).decode("ascii")
    return "-".join(letters[at : at + 4] for at in range(0, 16, 4))


def code_digest(code: str) -> str:
    """Return what is kept of a code, however it was typed; or refuse what was never one."""
    letters = code.upper().replace("-", "").replace(" ", "") if len(code) <= 40 else ""
    if len(letters) != 16 or not set(letters) <= _LETTERS:
        raise unknown_invitation()
    return hashlib.sha256(_DIGEST + letters.encode("ascii")).hexdigest()


def unknown_invitation() -> Refused:
    """Return the one refusal for every code that opens nothing."""
    return Refused(
        "invitation-unknown",
        "This survey has no such invitation.",
        "Type it as it was given to you: sixteen letters and digits, in groups of four.",
    )


def shown_bytes(value: bytes) -> str:
    """Return the bytes as they travel."""
    return _shown(value).decode("ascii")


def read_bytes(text: str, size: int, name: str) -> bytes:
    """Return that many bytes, as they travel in one way only; or refuse."""
    value, sent = None, text.encode("ascii", "replace")
    with contextlib.suppress(binascii.Error):
        value = binascii.a2b_base64(sent.translate(_FROM_ADDRESS) + b"=" * (-len(sent) % 4))
    if value is None or len(value) != size or _shown(value) != sent:  # the decoder is lenient
        raise Refused("bad-request", f"{name} is not {size} bytes.", "Load the page anew.")
    return value


def _shown(value: bytes) -> bytes:
    return binascii.b2a_base64(value, newline=False).translate(_TO_ADDRESS).rstrip(b"=")
