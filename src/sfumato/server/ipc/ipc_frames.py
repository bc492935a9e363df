"""One message of the line: a small header as JSON and a body of bytes, each with its length."""

from __future__ import annotations

import json
import struct
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass
from typing import Final

from sfumato.wire.query_json import Json

MAX_HEADER: Final = 64 * 1024
MAX_REQUEST: Final = 1024 * 1024  # the body of what the edge passes on
MAX_BODY: Final = 256 * 1024 * 1024  # of an answer
MAX_PART: Final = 1024 * 1024  # of a file that is sent in parts
_LENGTHS: Final = struct.Struct(">II")


@dataclass(frozen=True)
class Frame:
    """One message."""

    header: Json
    body: bytes = b""

    def as_bytes(self) -> bytes:
        """Return the message as it goes over the line."""
        header = json.dumps(self.header).encode()
        return _LENGTHS.pack(len(header), len(self.body)) + header + self.body


async def read_frame(reader: StreamReader, most: int = MAX_BODY) -> Frame | None:
    """Return the next message, or None where the line ends or what comes is none."""
    try:
        header_bytes, body_bytes = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        if header_bytes > MAX_HEADER or body_bytes > most:
            return None
        rest = await reader.readexactly(header_bytes + body_bytes)
        header, body = json.loads(str(rest[:header_bytes], "utf-8")), rest[header_bytes:]
    except (IncompleteReadError, ConnectionError, ValueError, RecursionError):
        return None
    return Frame(header, body) if isinstance(header, dict) else None
