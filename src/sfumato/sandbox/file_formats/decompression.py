"""Undoing a stranger's compression, up to a size and no further."""

from __future__ import annotations

import zlib
from typing import Final

MOST: Final = 262_144  # bytes that a result may unfold to: what is read of one is far less
ZLIB, GZIP = 15, 31  # how the bytes begin


def inflated(found: bytes, form: int, most: int = MOST) -> bytes:
    """Return the bytes unfolded, or raise ValueError of what is none, not whole or too large."""
    machine = zlib.decompressobj(form)
    made = None
    try:
        made = machine.decompress(found, most) if most > 0 else None
    except zlib.error:
        made = None
    if made is None or not machine.eof:
        raise ValueError
    return made
