"""People's folders in one piece, as a block unfolds them (sandbox/study.py): records, one a file.

A record is a head and what follows it: of a file its path and bytes, of a person their name and all
that their own run has left.
"""

from __future__ import annotations

import struct
from typing import Final

FILE, SAID = b"I", b"O"  # a file of the folder; all that a person's own run has said
HEAD: Final = struct.Struct("<cHQ")  # kind, bytes of the path, bytes of what follows it


def record(kind: bytes, path: str, size: int) -> bytes:
    """Return what stands before so many bytes of a file."""
    named = path.encode()
    return HEAD.pack(kind, len(named), size) + named


def whole(kind: bytes, path: str, text: bytes) -> bytes:
    """Return a record with all that follows it."""
    return record(kind, path, len(text)) + text
