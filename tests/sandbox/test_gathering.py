"""Who reads what an image's program has left is believed only if it came to its end."""

from __future__ import annotations

import os
import signal
import time
from typing import Final

import pytest

from sfumato.sandbox import inside

_LONG_S: Final = 120.0


def reader(said: bytes, how: str) -> tuple[int, int, int]:
    """Start one that waits for the word, says that, and ends in that way."""
    told, tell = os.pipe()
    hear, say = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(hear)
        os.close(tell)
        if os.read(told, 1) == inside.READY:
            os.write(say, said)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1 if how == "failed" else 0)
    os.close(told)
    os.close(say)
    return process, tell, hear


@pytest.mark.parametrize(("how", "said", "ended"), [
    ("whole", b"{}\x02", inside.DONE),
    ("whole", b"\x02", inside.DONE),
    ("whole", b"x" * 18 + b"\x02", inside.DONE),  # the first eight bytes are the orphans' time
    ("whole", b"x" * 19 + b"\x02", inside.BROKEN),
    ("whole", b"{}", inside.BROKEN),
    ("whole", b"", inside.BROKEN),
    ("failed", b"{}\x02", inside.BROKEN),
    ("killed", b"{", inside.BROKEN),
    ("killed", b"{}\x02", inside.BROKEN),
], ids=range(9))  # fmt: skip
def test_a_reader_is_heard_that_has_said_all_and_ended_by_itself(
    how: str, said: bytes, ended: int
) -> None:
    started = reader(said, how)
    found = inside._gathered(started, inside.DONE, {"most_bytes": 10}, time.monotonic() + _LONG_S)
    for descriptor in started[1:]:
        os.close(descriptor)
    assert found == (ended, said[:-1] if ended == inside.DONE else b"")
