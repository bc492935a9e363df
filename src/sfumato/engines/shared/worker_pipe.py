"""A worker's end of the pipes to its parent: receive requests, send answers, exit with it."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from sfumato.engines.shared.message_frames import Header, read_frame
from sfumato.engines.shared.process_hardening import harden_process


@dataclass(frozen=True)
class WorkerPipe:
    """A worker's end of the pipes to its parent; `leave` ends the process with an exit code."""

    read: int
    write: int
    leave: Callable[[int], NoReturn]

    def receive(self) -> Header:
        """Return the header of the next request; exit if the parent has closed the pipe."""
        return read_frame(self._exactly)[0]

    def send(self, message: bytes) -> None:
        """Send a whole message to the parent process."""
        view = memoryview(message)
        while view:
            view = view[os.write(self.write, view) :]

    def exit_with_parent(self) -> None:
        """Wait until the parent process closes its end of the pipe, then exit.

        PR_SET_PDEATHSIG is no alternative: it fires when the *thread* that started this process
        ends, and a server's threads end often. Drivers release the GIL, so this thread always gets
        to run.
        """
        poll = select.poll()
        poll.register(self.read, 0)  # hang-ups are always reported
        poll.poll()
        self.leave(1)

    def _exactly(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0:
            part = os.read(self.read, min(count, 1 << 20))
            if not part:
                self.leave(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def open_worker_pipe(leave: Callable[[int], NoReturn]) -> WorkerPipe:
    """Harden this process and return its pipe; from now on it exits when the parent does."""
    pipe = WorkerPipe(*harden_process(), leave)
    threading.Thread(target=pipe.exit_with_parent, daemon=True).start()
    return pipe
