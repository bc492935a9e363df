"""What came back from a service: whole, and no more of it than there is room for.

Whoever is asked may be anybody's machine, as a site of a federation is: it says as much as it
likes, for as long as it likes, and packed so that a little becomes very much.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.refusal import Refused

MOST_BYTES: Final = 1 << 29  # of a reply: a million cells are a fifth of that
MOST_PAUSE_S: Final = 300.0
PLAIN: Final = {"Accept-Encoding": "identity"}


@dataclass(frozen=True)
class HttpReply:
    """What came back: a status and a body, or nothing (status 0)."""

    status: int
    body: bytes
    retry_after_s: float | None = None
    is_untrusted: bool = False  # nothing came, as nothing was sent: its certificate was not taken


def read_whole(
    reply: Any,
) -> HttpReply:  # Any: httpx's response, of which the body is still to be read
    """Return the reply, or refuse one that is too large; what is packed is not unpacked."""
    return _came(reply, b"".join(_within(reply.iter_raw())))


async def read_whole_later(reply: Any) -> HttpReply:  # Any: as above
    """Return the same without holding up the loop."""
    parts, room = [], MOST_BYTES
    raw: AsyncIterable[bytes] = reply.aiter_raw()
    async for part in raw:
        room -= len(part)
        _check(room)
        parts.append(part)
    return _came(reply, b"".join(parts))


def lost(error: Exception) -> HttpReply:
    """Return that nothing came, and whether that was for the service's certificate."""
    return HttpReply(0, b"", is_untrusted="CERTIFICATE_VERIFY_FAILED" in str(error))


def _within(parts: Iterable[bytes]) -> Iterable[bytes]:
    room = MOST_BYTES
    for part in parts:
        room -= len(part)
        _check(room)
        yield part


def _check(room: int) -> None:
    if room < 0:
        raise Refused(
            "too-large",
            f"The service's reply is larger than {MOST_BYTES >> 20} MB.",
            "Ask for less at once, or ask whoever serves it.",
        )


def _came(reply: Any, body: bytes) -> HttpReply:
    after = reply.headers.get("retry-after", "")
    is_number = after.isascii() and after.isdecimal()
    return HttpReply(
        reply.status_code, body, min(float(after), MOST_PAUSE_S) if is_number else None
    )
