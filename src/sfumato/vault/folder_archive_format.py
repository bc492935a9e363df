"""The archive format of people's folders, which sandbox/study.py unpacks: one record per file.

A record is a header and its data. The data is a file's path and bytes, or a person's name and the
output of the program run on that person's files.
"""

from __future__ import annotations

import struct
from typing import Final

FILE, SAID = b"I", b"O"  # kinds: an input file of the folder; the output of a person's own run
HEAD: Final = struct.Struct("<cHQ")  # kind, length of the path, length of the data


def record(kind: bytes, path: str, size: int) -> bytes:
    """Return the header of an archive record with its path; `size` bytes of data must follow."""
    named = path.encode()
    return HEAD.pack(kind, len(named), size) + named


def whole(kind: bytes, path: str, text: bytes) -> bytes:
    """Return a complete archive record: header, path and data."""
    return record(kind, path, len(text)) + text
