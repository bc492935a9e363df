"""A worker process that can be killed at any moment, and the two pipes that lead to it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Final

from sfumato.engines.frames import Header, framed, read_frame

# -I: neither the environment nor the current folder decides what the worker imports. The package is
# found where this process found it, even if that is a checkout; the path is used once and dropped.
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); import sfumato; del sys.path[0]; "
    "from sfumato.engines.worker import main; main()"
)
_HOME: Final = str(Path(__file__).resolve().parents[2])


class Child:
    """One worker process; whatever goes wrong with it, it is killed."""

    def __init__(self) -> None:
        """Start the process with an empty environment and no files but its two pipes."""
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, _HOME],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            cwd="/",
            env={},
            start_new_session=True,  # a Ctrl-C at the terminal is the parent's to handle
        )
        self._inward = _number(self._process.stdin)
        self._outward = _number(self._process.stdout)
        os.set_blocking(self._inward, False)
        _CHILDREN.add(self)

    @property
    def pid(self) -> int:
        """Return the worker's process id."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Say whether the process is ours (not of the parent we were forked from) and alive."""
        return self.owner == os.getpid() and self._process.poll() is None

    def tell(self, header: Header, deadline_s: float) -> None:
        """Send what needs no answer; a worker that does not take it is killed."""
        try:
            self._write(framed(header), time.monotonic() + deadline_s)
        except (OSError, TimeoutError):
            self.kill()

    def ask(self, header: Header, deadline_s: float) -> tuple[Header, bytes] | None:
        """Return the worker's answer, or None; without an answer the worker is dead."""
        until = time.monotonic() + deadline_s
        answer = None
        try:
            self._write(framed(header), until)
            answer = read_frame(lambda count: self._read(count, until))
        except (OSError, ValueError, EOFError, TimeoutError):
            answer = None
        finally:  # also on Ctrl-C: a worker whose answer was not read must not answer the next one
            if answer is None:
                self.kill()
        return answer

    def kill(self) -> None:
        """End the process at once; let go of the pipes."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close our ends of the pipes; the worker ends when nobody holds them."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self.owner != os.getpid():
            self._process.returncode = 0  # not ours to wait for

    def _write(self, message: bytes, until: float) -> None:
        view = memoryview(message)
        while view:
            _wait(self._inward, select.POLLOUT, until)
            view = view[os.write(self._inward, view[:65536]) :]

    def _read(self, count: int, until: float) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            _wait(self._outward, select.POLLIN, until)
            part = os.read(self._outward, min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


_CHILDREN: Final[weakref.WeakSet[Child]] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Let go of the parent's workers: they must not outlive it because a fork holds their pipes."""
    for child in list(_CHILDREN):
        child.forget()


os.register_at_fork(after_in_child=_forget_after_fork)


def _wait(descriptor: int, event: int, until: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left_ms = max(0, int((until - time.monotonic()) * 1000))
    if not poll.poll(left_ms):
        raise TimeoutError


def _number(pipe: object) -> int:
    fileno = getattr(pipe, "fileno", None)
    if fileno is None:
        raise OSError("no pipe to the worker")
    return int(fileno())
