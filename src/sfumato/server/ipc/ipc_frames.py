"""The format of messages between HTTP process and vault process: a JSON header, and bytes.

Header and bytes are each preceded by their length.
"""

from __future__ import annotations

import json
import struct
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass
from typing import Final

from sfumato.wire.query_json import Json

MAX_HEADER: Final = 64 * 1024
MAX_REQUEST: Final = 1024 * 1024  # the most bytes in the body of a forwarded request
MAX_BODY: Final = 256 * 1024 * 1024  # the most bytes in a reply
MAX_PART: Final = 1024 * 1024  # the most bytes in a part of an uploaded file
_LENGTHS: Final = struct.Struct(">II")


@dataclass(frozen=True)
class Frame:
    """A message between HTTP process and vault process: a JSON header, and bytes."""

    header: Json
    body: bytes = b""

    def as_bytes(self) -> bytes:
        """Return the message as bytes, with the lengths of its header and body in front."""
        header = json.dumps(self.header).encode()
        return _LENGTHS.pack(len(header), len(self.body)) + header + self.body


async def read_frame(reader: StreamReader, most: int = MAX_BODY) -> Frame | None:
    """Read the next message; return None at the end of the stream or after an invalid message."""
    try:
        header_bytes, body_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        if header_bytes > MAX_HEADER or body_bytes > most:
            return None
        rest = await reader.readexactly(header_bytes + body_bytes)
        header, body = json.loads(str(rest[:header_bytes], "utf-8")), rest[header_bytes:]
    except (IncompleteReadError, ConnectionError, ValueError, RecursionError):
        return None
    return Frame(header, body) if isinstance(header, dict) else None
