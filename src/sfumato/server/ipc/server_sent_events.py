"""Stream a job's state as server-sent events until the job is over."""

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
LONGEST_S: Final = 3600.0  # a stream ends after so many seconds; then the client reconnects
AT_ONCE: Final = 200
OF_ONE_USER: Final = 10  # the most streams of a user, over all of their tokens
OVER: Final = ("done", "failed", "cancelled")
EVENTS: Final = "text/event-stream"
NOT_KEPT: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Look = Callable[[], Awaitable[Answered]]

_LISTENING: Final[Counter[str]] = Counter()  # open streams of this process, by user


def check_listeners(user: str) -> None:
    """Refuse a new event stream if the process, or the user, has too many open streams."""
    if _LISTENING.total() >= AT_ONCE or _LISTENING[user] >= OF_ONE_USER:
        raise Refused(
            "too-many",
            "Too many clients already follow jobs by event streams, so no more can be opened.",
            "Ask for the job's state every few seconds instead.",
        )


async def send_state_events(first: Answered, look: Look) -> AsyncIterator[bytes]:
    """Yield a job's state every half second, as server-sent events, until the job is over.

    The stream also ends when a poll is refused, as for a revoked token. The limits are checked
    again, because several requests may have passed `check_listeners` at once.
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
        return  # the door is down; the client reconnects
    finally:
        _LISTENING[user] -= 1
        if not _LISTENING[user]:
            del _LISTENING[user]


def _is_over(body: bytes) -> bool:
    return json.loads(body).get("state") in OVER
