"""Message framing between engine and worker: two lengths, a JSON header and a binary body."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Final

from sfumato.query.printing.expressions import Secret
from sfumato.query.printing.statements import Statement

Header = dict[str, object]
_LENGTHS: Final = struct.Struct("<QQ")  # of the header, of the body


def framed(header: Header, body: bytes = b"") -> bytes:
    """Return one message as bytes: two lengths, the JSON header and the body."""
    text = json.dumps(header, ensure_ascii=True).encode("ascii")
    return _LENGTHS.pack(len(text), len(body)) + text + body


def read_frame(read: Callable[[int], bytes]) -> tuple[Header, bytes]:
    """Return the header and body of the next message; `read(n)` must return exactly n bytes."""
    header_length, body_length = _LENGTHS.unpack(read(_LENGTHS.size))
    rest = read(header_length + body_length)
    header: Header = json.loads(rest[:header_length])
    return header, rest[header_length:]


def statement_json(statement: Statement) -> Header:
    """Return an SQL statement as JSON for a worker; null stands for the secret salt."""
    return {
        "sql": statement.sql,
        "parameters": [None if p is Secret.SALT else p for p in statement.parameters],
        "tallies": list(statement.tallies),
    }
