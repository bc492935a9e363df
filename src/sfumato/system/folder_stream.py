"""The byte stream in which a folder is uploaded, and the parts into which an upload is cut.

The stream of a folder has, for each file, a header, the file's path and its bytes. A zip or tar
file is its own stream. All parts of a stream but the last have the same size. A part is named by
its SHA-256, so an upload that was cut off can go on with the parts that are missing.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, Literal

PART_BYTES: Final = 8 << 20
HEAD: Final = struct.Struct("<HQ")  # length of the path in bytes, length of the file
Kind = Literal["folder", "zip", "tar", "tar.gz"]
KINDS: Final[dict[str, Kind]] = {
    ".zip": "zip", ".tar": "tar", ".tar.gz": "tar.gz", ".tgz": "tar.gz",
}  # fmt: skip


def archive_kind(name: str) -> Kind | None:
    """Return the kind of an archive by the suffix of its file name; None if it is no archive."""
    lower = name.casefold()
    return next((kind for suffix, kind in KINDS.items() if lower.endswith(suffix)), None)


def header(path: str, size: int) -> bytes:
    """Return the header of a file in the stream of a folder; `size` bytes must follow."""
    named = path.encode()
    return HEAD.pack(len(named), size) + named


def part_name(part: bytes) -> str:
    """Return the name of a part: its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(part).hexdigest()


def part_count(size: int) -> int:
    """Return into how many parts a stream of that many bytes is cut."""
    return -(-size // PART_BYTES)


def part_size(number: int, size: int) -> int:
    """Return the size of a part, by its number, of a stream of `size` bytes."""
    return min(PART_BYTES, size - number * PART_BYTES)
