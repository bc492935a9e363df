"""A keeper whose door and edge are forks of itself: a service that need not be imported anew.

This is in the process that is forked (`command_line.py`). Door and edge are processes of their own,
and of the keeper's, as started ones are: each leads a session, has the two pipes and what it is
passed, and says in its command line which one it is. `server/test_forked_service.py` holds them
against started ones; where a test is about the start, or about what a process holds, they are
started.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NoReturn

# what door and edge load when they begin
IMPORTED: Final = (
    "sfumato.app.vault", "sfumato.app.command_line", "sfumato.cli.main", "sfumato.app.processes",
    "sfumato.server.http.edge_app", "sfumato.server.http.connection_limits", "sfumato.server.http.tls_event_loop",  # noqa: E501
    "sfumato.server.ipc.door_server", "sfumato.server.ipc.edge_client", "sfumato.server.ipc.call_metrics",  # noqa: E501
    "argon2", "uvicorn.lifespan.on", "uvicorn.protocols.http.httptools_impl", "uvloop",
)  # fmt: skip
_CHEAP: Final = (1, 8, 1)  # rounds, KiB, lanes


def within() -> None:
    """Have this process fork what it keeps, and hash passwords in no time."""
    instead = SimpleNamespace(
        Popen=Forked, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )
    setattr(import_module("sfumato.app.processes"), "subprocess", instead)  # noqa: B010  # the seam
    hashing = import_module("argon2").PasswordHasher.__init__
    hashing.__defaults__ = (*_CHEAP, *hashing.__defaults__[len(_CHEAP) :])


class Forked:
    """A door or an edge: what a keeper asks of a `Popen`."""

    def __init__(self, words: Sequence[str], *, pass_fds: Sequence[int] = (), **_: object) -> None:
        """Fork it, at the other ends of two new pipes; the last word says what it is."""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be(words[-1], theirs_in, theirs_out, pass_fds)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin = open(ours_out, "wb")  # noqa: SIM115  # the keeper closes it
        self.stdout = open(ours_in, "rb")  # noqa: SIM115  # and this
        self.returncode: int | None = None
        self._life = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, most_s: float | None = None) -> int | None:
        """Return how it ended, once it has."""
        life = select.poll()
        life.register(self._life, select.POLLIN)
        if self.returncode is None and not life.poll(None if most_s is None else most_s * 1000):
            raise subprocess.TimeoutExpired("", most_s or 0)
        return self.poll()

    def terminate(self) -> None:
        """Ask it to end."""
        self._told(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._told(signal.SIGKILL)

    def _told(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def __del__(self) -> None:
        """Let go of the handle."""
        with suppress(AttributeError):
            os.close(self._life)


def _be(what: str, read: int, write: int, passed: Sequence[int]) -> NoReturn:
    """Be as a process is that was started, until what it does is done."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        os.dup2(read, 0)
        os.dup2(write, 1)
        for held in [int(one.name) for one in Path("/proc/self/fd").iterdir()]:
            if held > 2 and held not in passed:
                with suppress(OSError):  # that of the list itself
                    os.close(held)
        _say_what(what)
        import_module("sfumato.app.processes").child(what)
        threading._shutdown()  # type: ignore[attr-defined]  # as at the end of any process
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def _say_what(what: str) -> None:
    """Write it where the command line ends."""
    end = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[46])
    word = b"\0" + what.encode() + b"\0"
    ctypes.memmove(end - len(word), word, len(word))
