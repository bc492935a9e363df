"""Decompress untrusted zlib and gzip data up to a size limit."""

from __future__ import annotations

import zlib
from typing import Final

MOST: Final = 262_144  # most bytes of a decompressed result
ZLIB, GZIP = 15, 31  # `wbits` values of zlib, which select the header format


def inflated(found: bytes, form: int, most: int = MOST) -> bytes:
    """Decompress zlib or gzip bytes, up to `most` bytes.

    Raise ValueError if they are invalid, incomplete or too large.
    """
    machine = zlib.decompressobj(form)
    made = None
    try:
        made = machine.decompress(found, most) if most > 0 else None
    except zlib.error:
        made = None
    if made is None or not machine.eof:
        raise ValueError
    return made
