"""Show a progress bar for slow calls, in notebooks and at the Python prompt."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

QUIET_S: Final = 2.0  # a shorter call shows no bar
WIDTH: Final = 24


@contextmanager
def show_progress(what: str) -> Iterator[None]:
    """Show a moving bar and the elapsed seconds, if the session is interactive."""
    if not _is_looked_at():
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _is_looked_at() -> bool:
    return "ipykernel" in sys.modules or hasattr(sys, "ps1")


def _tell(what: str, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(QUIET_S):
        return
    while not done.wait(0.25):
        spent = time.monotonic() - start
        _write(f"\r{what} {bar(spent)} {spent:.0f} s")
    _write("\r" + " " * (len(what) + WIDTH + 12) + "\r")


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def bar(spent_s: float) -> str:
    """Return a progress bar of text that moves with time; the time left is not known."""
    place = int(spent_s * 4) % (2 * (WIDTH - 1))
    place = min(place, 2 * (WIDTH - 1) - place)
    return "[" + " " * place + "=" + " " * (WIDTH - 1 - place) + "]"
