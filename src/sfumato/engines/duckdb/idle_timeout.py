"""A worker that nobody has asked for a while is let go: after a time that is always the same.

What it held goes back to the machine: libraries, pages of tables, the rows of a lesson. The next
question starts another. When it ends hangs on when it was asked last, and on nothing that it read.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable


class IdleTimeout:
    """Has `end` called once something was not used for so long; has state.

    Whoever uses it, and `end`, hold one lock meanwhile, so that nothing ends in the middle of a
    question. It keeps nobody alive whose method `end` is. A forked process counts for itself.
    """

    def __init__(self, after_s: float, end: Callable[[], None]) -> None:
        self._after_s = after_s
        self._end = weakref.WeakMethod(end)
        self._used = 0.0
        self._waits: threading.Timer | None = None
        self._owner = os.getpid()

    def used(self) -> None:
        """Count from now on."""
        self._used = time.monotonic()
        if self._waits is None or self._owner != os.getpid():
            self._wait(self._after_s)

    def is_over(self) -> bool:
        """Say whether it was not used for so long; if it was, go on counting."""
        left_s = self._used + self._after_s - time.monotonic()
        if left_s > 0:
            self._wait(left_s)
            return False
        self._waits = None
        return True

    def stop(self) -> None:
        """Count no further."""
        waits, self._waits = self._waits, None
        if waits is not None and self._owner == os.getpid():
            waits.cancel()

    def _wait(self, left_s: float) -> None:
        self._owner, self._waits = os.getpid(), None
        waits = threading.Timer(left_s, _call, (self._end,))
        waits.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread is to be had: the next use tries again
            waits.start()
            self._waits = waits


def _call(end: weakref.WeakMethod[Callable[[], None]]) -> None:
    found = end()
    if found is not None:
        found()
