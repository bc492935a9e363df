"""Call many sites in parallel, and give up on sites that are far slower than the others.

A site may never answer, or may send its reply one byte a minute. Once enough sites have answered, a
site that takes much longer is late and drops out of the round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from sfumato.dp.refusal import Refused

# the least time to wait for the rest, in seconds, once enough sites have answered
PATIENCE_S: Final = 300.0
LATE: Final = 10  # ... and at least this multiple of the time that those sites took


def call_all_sites(
    calls: Mapping[str, Callable[[], object]], enough: int, patience_s: float
) -> Iterator[tuple[str, object]]:
    """Yield each site's reply or refusal as it arrives; late sites yield a refusal.

    The thread of a late site is abandoned, and its reply is discarded.
    """
    came: SimpleQueue[tuple[str, object]] = SimpleQueue()
    for name, call in calls.items():
        Thread(target=_ask, args=(name, call, came), daemon=True).start()
    begun, waited_for, answers = time.monotonic(), set(calls), 0
    until: float | None = None
    while waited_for:
        try:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            name, reply = came.get(timeout=left_s)
        except Empty:
            break
        if isinstance(reply, BaseException) and not isinstance(reply, Refused):
            raise reply
        waited_for.remove(name)
        answers += not isinstance(reply, Refused)
        if until is None and answers >= enough:
            now = time.monotonic()
            until = now + max(patience_s, LATE * (now - begun))
        yield name, reply
    for name in sorted(waited_for):
        yield name, _late()


def _ask(name: str, call: Callable[[], object], came: SimpleQueue[tuple[str, object]]) -> None:
    try:
        reply = call()
    except BaseException as wrong:  # noqa: BLE001  # raised again in the caller's thread
        reply = wrong
    came.put((name, reply))


def _late() -> Refused:
    return Refused(
        "service-down",
        "The site did not answer in time. The other sites continued without it.",
        "Ask the site's owner whether it runs and can be reached, then ask again.",
    )
