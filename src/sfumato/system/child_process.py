"""A process that runs a part of the package, and the two pipes that lead to it and back.

It is given an empty environment and no file of ours but its ends of the pipes. Whoever writes or
reads says until when; what it may take and when it ends is for those who build on this.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

# -I: neither the environment nor the current folder decides what is imported. The package is found
# where this process found it, even if that is a checkout; the path is used once and dropped.
# Matrices are multiplied on one thread: others of the library would spin, waiting for more.
_START: Final = (
    "import os, sys; os.environ['OPENBLAS_NUM_THREADS'] = '1'; "
    "sys.path.insert(0, sys.argv[1]); import sfumato; del sys.path[0]; "
    "from sfumato.{module} import main; main()"
)
_HOME: Final = str(Path(__file__).resolve().parents[2])
_WRITTEN: Final = 1 << 16  # at once, so that one that reads slowly is noticed
_READ: Final = 1 << 20


class ChildProcess:
    """One such process; has state."""

    def __init__(self, module: str) -> None:
        """Start `main` of the module; a Ctrl-C at the terminal is the parent's to handle."""
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
        """Return the process id."""
        return self._process.pid

    def write(self, message: bytes, until: float) -> None:
        """Send all of it by that moment of the monotonic clock, or raise TimeoutError."""
        view = memoryview(message)
        while view:
            _wait(self._inward, select.POLLOUT, until)
            view = view[os.write(self._inward, view[:_WRITTEN]) :]

    def read(self, count: int, until: float) -> bytes:
        """Return so many bytes, or raise: EOFError if it ended, TimeoutError if it is too late."""
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
        """Close our ends of the pipes; the process ends when nobody holds them."""
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
