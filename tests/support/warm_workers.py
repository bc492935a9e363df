"""The engine's workers as forks of a process that has imported what they need.

A worker is started for every preparation and every vault, thousands of times in the tests, and most
of what a small table costs is the import. A forked worker is a process of its own as a started one
is: it has the two pipes and nothing else of ours, an empty environment, a session of its own.
`engines/test_warm_workers.py` holds one against the other; files in COLD start theirs as the house
does.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Final, NoReturn

from sfumato.system import child_process

COLD: Final = (  # these are about the start itself, or about what a service's processes hold
    "engines/duckdb/test_worker.py", "engines/shared/test_exit_causes.py", "server/test_row_canaries.py",  # noqa: E501
    "server/test_serve.py", "engines/duckdb/test_worker_kills.py",
    "features/jobs/test_jobs.py", "server/test_tls.py",
)  # fmt: skip
_FORKED: Final = "engines.duckdb.worker"
_IMPORTED: Final = (
    "ingest.value_census", "ingest.column_types", "duckdb.training", "ingest.prepare", "duckdb.block_files", "duckdb.bids_blocks", "duckdb.stream_period", "duckdb.worker",  # noqa: E501
)  # fmt: skip
# as in sfumato/system/child_process.py
_START: Final = (
    "import os, sys; os.environ['OPENBLAS_NUM_THREADS'] = '1'; "
    "sys.path[:0] = sys.argv[1:3]; import sfumato; from support import warm_workers; "
    "del sys.path[:2]; warm_workers.serve(int(sys.argv[3]))"
)
_HOUSE: Final = str(Path(child_process.__file__).resolve().parents[2])
begin_cold: Final = child_process.ChildProcess.__init__
_begun: list[tuple[subprocess.Popen[bytes], str]] = []  # who forks for us, and where it listens


class Forked:
    """A process that another one forked for us: what `Piped` asks of a `Popen`."""

    def __init__(self, fork: Callable[[int, int], tuple[int, int]]) -> None:
        """Have one forked, at the other ends of two new pipes."""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            self.pid, self._life = fork(theirs_in, theirs_out)
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.stdin: IO[bytes] = open(ours_out, "wb", buffering=0)  # noqa: SIM115  # `let_go` ends it
        self.stdout: IO[bytes] = open(ours_in, "rb", buffering=0)  # noqa: SIM115  # and this
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return something once it has ended; how it ended, only who forked it could know."""
        return self._waited(0)

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._life, signal.SIGKILL)

    def wait(self) -> int | None:
        """Return once it has ended."""
        return self._waited(None)

    def _waited(self, most_ms: int | None) -> int | None:
        ended = select.poll()
        ended.register(self._life, select.POLLIN)
        if self.returncode is None and ended.poll(most_ms):
            self.returncode = -signal.SIGKILL
            with contextlib.suppress(ChildProcessError):  # another's child
                os.waitpid(self.pid, 0)
        return self.returncode

    def __del__(self) -> None:
        """Let go of the handle; the process ends when nobody holds its pipes."""
        with contextlib.suppress(AttributeError):
            os.close(self._life)


def warm(where: str = "") -> None:
    """Have workers forked from now on, by who listens there or else by whom we begin."""
    _have(lambda read, write: _asked(where or address(), read, write))


def within() -> None:
    """Have them forked by this process itself, so that who traces it traces them too."""
    _have(_fork_here)


def _have(fork: Callable[[int, int], tuple[int, int]]) -> None:
    def begin(self: child_process.ChildProcess, module: str) -> None:
        if module != _FORKED:
            begin_cold(self, module)
            return
        forked = Forked(fork)
        self._process = forked  # type: ignore[assignment]  # it has what is asked of it
        self._inward, self._outward = forked.stdin.fileno(), forked.stdout.fileno()
        os.set_blocking(self._inward, False)

    child_process.ChildProcess.__init__ = begin  # type: ignore[method-assign]  # the seam


def cold() -> None:
    """Have workers started as the house does."""
    child_process.ChildProcess.__init__ = begin_cold  # type: ignore[method-assign]  # as it was


def is_warm() -> bool:
    """Say whether what begins now is forked."""
    return child_process.ChildProcess.__init__ is not begin_cold


def address() -> str:
    """Return where the process listens that forks for this one; begin it if there is none."""
    if not _begun or _begun[0][0].poll() is not None:
        where = f"\0sfumato-warm-{os.getpid()}-{secrets.token_hex(8)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(where)
            listening.listen(64)
            words = [_HOUSE, str(Path(__file__).parents[1]), str(listening.fileno())]
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, *words],
                stdin=subprocess.PIPE,  # it ends when nobody holds this
                stdout=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                cwd="/",
                env={},
                start_new_session=True,
            )
        _begun[:] = [(process, where)]
        atexit.register(_end, process)
    return _begun[0][1]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.wait(30)


def _asked(where: str, *fds: int) -> tuple[int, int]:
    """Return the process id of a new worker, and a handle of its life."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(where)
        socket.send_fds(line, [b"."], fds)
        said, (life,), _, _ = socket.recv_fds(line, 32, 1)
    return int(said), life


def _fork_here(read: int, write: int) -> tuple[int, int]:
    pid = os.fork()
    if pid == 0:
        os.environ.clear()
        os.chdir("/")
        _become(read, write)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        _work()
    return pid, os.pidfd_open(pid)


# --- in the process that is forked ----------------------------------------------------------------


def serve(number: int) -> None:
    """Fork a worker for whoever sends two pipes, until standard input ends."""
    for name in _IMPORTED:
        import_module(f"sfumato.engines.{name}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever ends is buried at once
    listening = socket.socket(fileno=number)
    while True:
        ready, _, _ = select.select([0, listening.fileno()], [], [])
        if 0 in ready:
            return
        line, _ = listening.accept()
        with line, contextlib.suppress(OSError):  # whoever asked is gone
            if is_ours(line):
                _, pipes, _, _ = socket.recv_fds(line, 1, 2)
                _serve(line, listening, pipes)


def is_ours(line: socket.socket) -> bool:
    """Say whether the user at the other end is the one that we are; all can read an address."""
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.geteuid())


def _serve(line: socket.socket, listening: socket.socket, pipes: list[int]) -> None:
    held, let_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        line.close()
        listening.close()
        os.close(let_go)
        os.read(held, 1)  # until there is a handle of its life
        os.close(held)
        _become(*pipes)
        _work()
    life = os.pidfd_open(pid)
    try:
        socket.send_fds(line, [str(pid).encode()], [life])
    finally:
        for one in (life, held, let_go, *pipes):
            os.close(one)


def _work() -> NoReturn:
    try:
        import_module(f"sfumato.{_FORKED}").main()
    finally:
        os._exit(1)


def _become(read: int, write: int) -> None:
    """Be as a process is that was started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for place, one in enumerate((read, write, nowhere)):
        os.dup2(one, place)
    for one in (read, write, nowhere):
        if one > 2:
            os.close(one)
