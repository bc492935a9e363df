"""Read a service's HTTP reply whole, up to a size limit.

The server may be untrusted, such as a site of a federation. It may send as much and as long as it
likes, or compressed data that expands; so the size is limited and nothing is decompressed.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.refusal import Refused

MAX_BYTES: Final = 1 << 29  # the most bytes of a reply; a million cells need a fifth of it
MAX_PAUSE_S: Final = 300.0
PLAIN: Final = {"Accept-Encoding": "identity"}


@dataclass(frozen=True)
class HttpReply:
    """An HTTP reply: status and body; status 0 means that no reply arrived."""

    status: int
    body: bytes
    retry_after_s: float | None = None
    is_untrusted: bool = False  # True: the server's certificate is not trusted, so nothing was sent


def read_whole(
    reply: Any,
) -> HttpReply:  # Any: httpx's response; its body is not read yet
    """Read an HTTP reply whole, or refuse one that is too large; never decompress it."""
    return _came(reply, b"".join(_within(reply.iter_raw())))


async def read_whole_later(reply: Any) -> HttpReply:  # Any: as above
    """Read an HTTP reply like `read_whole`, without blocking the event loop."""
    parts, room = [], MAX_BYTES
    raw: AsyncIterable[bytes] = reply.aiter_raw()
    async for part in raw:
        room -= len(part)
        _check(room)
        parts.append(part)
    return _came(reply, b"".join(parts))


def lost(error: Exception) -> HttpReply:
    """Return the reply that stands for a lost connection, with status 0.

    Its field `is_untrusted` says whether the server's certificate was the cause.
    """
    return HttpReply(0, b"", is_untrusted="CERTIFICATE_VERIFY_FAILED" in str(error))


def _within(parts: Iterable[bytes]) -> Iterable[bytes]:
    room = MAX_BYTES
    for part in parts:
        room -= len(part)
        _check(room)
        yield part


def _check(room: int) -> None:
    if room < 0:
        raise Refused(
            "too-large",
            f"The service's reply is larger than {MAX_BYTES >> 20} MB.",
            "Ask for less at once, or ask the operator of the service.",
        )


def _came(reply: Any, body: bytes) -> HttpReply:
    after = reply.headers.get("retry-after", "")
    is_number = after.isascii() and after.isdecimal()
    return HttpReply(reply.status_code, body, min(float(after), MAX_PAUSE_S) if is_number else None)
