"""Child process for a third-party database driver (psycopg, PySpark), and its serving loop.

A driver's errors, logs and hangs stay in a process that the parent can kill. It returns only
integers and keys.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from sfumato.engines.shared.cell_assembly import Layout, read_cells
from sfumato.engines.shared.message_frames import Header, framed
from sfumato.engines.shared.worker_pipe import open_worker_pipe
from sfumato.engines.shared.worker_process import Child, WorkerLock
from sfumato.query.measure import Cells
from sfumato.vault.engine_port import SIGNAL, START, EngineLost, EngineStopped
from sfumato.vault.sealed import Sealed

START_S: Final = 120.0
_PROBE_S: Final = 20.0
_MAX_S: Final = 5400.0
_ROW_S: Final = 5e-6  # time per row of the slowest query (SQL window functions) on one slow core


def deadline_of(rows: int, least_s: float) -> float:
    """Return the deadline, in seconds, of a query on a table with at most `rows` rows.

    It is ten times what the slowest query takes, at least `least_s`, at most an hour and a half.
    """
    return min(max(least_s, 10 * _ROW_S * rows), _MAX_S)


class DriverChild(Child):
    """Child process of a database driver; killing it also kills the processes that it started."""

    def is_ready(self) -> bool:
        """Say whether the driver's process is ours and alive; leave a dead one unreaped for `kill`.

        As long as it is unreaped, no other process can get its id.
        """
        if self.owner != os.getpid() or self._process.returncode is not None:
            return False
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is None

    def kill(self) -> None:
        """Kill the driver's process and its own children (a JVM), and close the pipes.

        A dead driver was not reaped before, so no other process or process group can have its id.
        """
        if self.owner == os.getpid() and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # the child leads its own session
        super().kill()


class DriverHandle:
    """Handle of an engine's single driver process, started on first use.

    A lock serialises requests. After a fork, the new process starts its own driver. The driver ends
    when its parent ends.
    """

    def __init__(self, module: str, start: Header) -> None:
        """Store the driver's module and start message; the process starts later."""
        self._module = module
        self._start = start
        self._lock = WorkerLock()
        self._child: DriverChild | None = None

    def measure(self, request: Header, layout: Layout, deadline_s: float) -> Sealed[Cells] | None:
        """Return the exact counts and sums that the driver computed, sealed; None if it failed.

        A sealed value can't be printed or compared. A driver without an answer has been killed.
        Raise `EngineLost` if the host ended the driver, or if it could not start.
        """
        answer, lost = self._ask(request, deadline_s)
        if lost is not None:
            raise EngineLost(lost)
        cells = None if answer is None else read_cells(layout, answer)
        return None if cells is None else Sealed(cells)

    def ask(self, request: Header, deadline_s: float) -> bytes | None:
        """Return the body of the driver's answer; None if the driver failed, and is killed."""
        return self._ask(request, deadline_s)[0]

    def _ask(self, request: Header, deadline_s: float) -> tuple[bytes | None, str | None]:
        """Return the driver's answer, or None if it failed.

        If the host ended the driver, also return the cause.
        """
        with self._lock.lock:
            child = self._ready()
            answer = None if child is None else child.ask(request, deadline_s)
            if child is not None and answer is not None and answer[0].get("ok") is True:
                return answer[1], None
            if child is not None:
                child.kill()
            self._child = None
            cause = None if answer is None else answer[0].get("lost")
            lost = START if child is None else child.lost
            return None, cause if cause in {START, SIGNAL} else lost

    def self_test(self) -> tuple[str, ...]:
        """Return the names of what the driver's self-test found wrong; raise if it failed."""
        answer = self.ask({"do": "probe"}, START_S)
        if answer is None:
            raise EngineStopped
        return tuple(str(name) for name in json.loads(answer))

    def pid(self) -> int | None:
        """Return the process id of the driver, or None if none runs."""
        return None if self._child is None else self._child.pid

    def can_start(self, *, with_probe: bool) -> bool:
        """Say whether a driver can be started; with a probe, also whether its self-test passes."""
        try:
            tried = DriverChild(self._module)
        except OSError:
            return False
        try:
            tried.begin(self._start, START_S)
            if tried.lost is not None or not with_probe:
                return tried.lost is None
            answer = tried.ask({"do": "probe"}, _PROBE_S)
        finally:
            tried.kill()
        return answer is not None and answer[0].get("ok") is True and answer[1] == b"[]"

    def close(self) -> None:
        """Kill the driver process."""
        with self._lock.lock:
            child, self._child = self._child, None
            if child is not None:
                child.kill()

    def _ready(self) -> DriverChild | None:
        if self._child is not None and not self._child.is_ready():
            self._child.kill()  # processes that a dead driver started may still be running
            self._child = None
        if self._child is None:
            try:
                self._child = DriverChild(self._module)
            except OSError:  # no process can be started; this depends on no row
                return None
            self._child.begin(self._start, START_S)
        return self._child


# --- inside the child ----------------------------------------------------------------------------

RequestHandler = Callable[[Header], bytes]


class HostEnded(Exception):
    """Error: the database was unreachable before a row was read, or its operator ended a query."""

    def __init__(self, cause: str) -> None:
        super().__init__()
        self.cause = cause


def serve(start_worker: Callable[[Header], Mapping[str, RequestHandler]]) -> None:
    """Serve the parent's requests until it closes the pipe; never send back an error text."""
    pipe = open_worker_pipe(_leave)
    handlers = start_worker(pipe.receive())
    pipe.send(framed({"ok": True}))
    while True:
        pipe.send(_answer(handlers, pipe.receive()))


def _answer(handlers: Mapping[str, RequestHandler], request: Header) -> bytes:
    try:
        return framed({"ok": True}, handlers[str(request["do"])](request))
    except HostEnded as error:
        return framed({"ok": False, "lost": error.cause})
    except Exception:  # noqa: BLE001  # any error text may quote a value, so none is passed on
        return framed({"ok": False})


def _leave(code: int) -> NoReturn:
    """Exit the driver's process; if it leads a process group (with a JVM), kill the group."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(code)
