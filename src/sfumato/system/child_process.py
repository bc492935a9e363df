"""A child process that runs a module of the package, with a pipe in and a pipe out.

The child has an empty environment, and none of the parent's open files except its ends of the
pipes. Each read and each write has a deadline. The callers set resource limits, and end the child.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

# -I makes imports independent of the environment and of the current folder. The child imports the
# package from where this process found it, even from a checkout, and then removes that path again.
# OpenBLAS gets one thread, because its idle threads would spin.
_START: Final = (
    "import os, sys; os.environ['OPENBLAS_NUM_THREADS'] = '1'; "
    "sys.path.insert(0, sys.argv[1]); import sfumato; del sys.path[0]; "
    "from sfumato.{module} import main; main()"
)
_HOME: Final = str(Path(__file__).resolve().parents[2])
_WRITTEN: Final = 1 << 16  # bytes per write; small, so that a slow reader meets the deadline
_READ: Final = 1 << 20


class ChildProcess:
    """One child process that runs a module, with a pipe to it and a pipe from it."""

    def __init__(self, module: str) -> None:
        """Start `main` of a module in a new session, so that Ctrl-C reaches only the parent."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START.format(module=module), _HOME],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            cwd="/",
            env={},
            start_new_session=True,
        )
        self._inward = _number(self._process.stdin)
        self._outward = _number(self._process.stdout)
        os.set_blocking(self._inward, False)

    @property
    def pid(self) -> int:
        """Return the process id of the child."""
        return self._process.pid

    def write(self, message: bytes, until: float) -> None:
        """Send a message to the child; raise TimeoutError if it isn't sent by the time `until`.

        `until` is a time of the monotonic clock, in seconds.
        """
        view = memoryview(message)
        while view:
            _wait(self._inward, select.POLLOUT, until)
            view = view[os.write(self._inward, view[:_WRITTEN]) :]

    def read(self, count: int, until: float) -> bytes:
        """Read exactly `count` bytes from the child.

        Raise EOFError if the child has ended, and TimeoutError after `until`, a time of the
        monotonic clock.
        """
        parts: list[bytes] = []
        while count > 0:
            _wait(self._outward, select.POLLIN, until)
            part = os.read(self._outward, min(count, _READ))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def let_go(self) -> None:
        """Close our ends of the pipes to the child, which then ends by itself."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _wait(descriptor: int, event: int, until: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0, int((until - time.monotonic()) * 1000))):
        raise TimeoutError


def _number(pipe: IO[bytes] | None) -> int:
    if pipe is None:
        raise OSError("no pipe to the process")
    return pipe.fileno()
