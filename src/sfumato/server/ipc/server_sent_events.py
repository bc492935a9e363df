"""A state, told again and again as server-sent events, until what it is of is over."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.server.ipc.edge_client import Answered

EVERY_S: Final = 0.5
LONGEST_S: Final = 3600.0  # then whoever listens comes again
AT_ONCE: Final = 200
OF_ONE_USER: Final = 10  # with whatever tokens: a user may have a hundred
OVER: Final = ("done", "failed", "cancelled")
EVENTS: Final = "text/event-stream"
NOT_KEPT: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Look = Callable[[], Awaitable[Answered]]

_LISTENING: Final[Counter[str]] = Counter()  # streams of this process, by user


def check_listeners(user: str) -> None:
    """Refuse one more where too many listen."""
    if _LISTENING.total() >= AT_ONCE or _LISTENING[user] >= OF_ONE_USER:
        raise Refused("too-many", "Too many listen already.", "Ask for the state instead.")


async def send_state_events(first: Answered, look: Look) -> AsyncIterator[bytes]:
    """Yield the state every half second; a revoked token is told nothing more.

    Of those who came at once each was one of few when it was looked at: here it is one too many.
    """
    until, user = time.monotonic() + LONGEST_S, first.user
    _LISTENING[user] += 1
    try:
        if _LISTENING.total() > AT_ONCE or _LISTENING[user] > OF_ONE_USER:
            return
        answer = first
        while True:
            yield b"event: state\ndata: " + answer.body.replace(b"\n", b" ") + b"\n\n"
            if answer.code is not None or _is_over(answer.body) or time.monotonic() > until:
                return
            await asyncio.sleep(EVERY_S)
            answer = await look()
    except Refused:
        return  # the door is not there just now: whoever listens comes again
    finally:
        _LISTENING[user] -= 1
        if not _LISTENING[user]:
            del _LISTENING[user]


def _is_over(body: bytes) -> bool:
    return json.loads(body).get("state") in OVER
