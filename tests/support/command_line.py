"""The real command line, each time in a process of its own that need not import it anew.

A process imports the package once and is forked for every command: what a command does, says and
ends with is its own, and it ends as any process does.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from support import forked_service, warm_workers

_PATIENCE_S: Final = 300
_START: Final = (
    "import runpy, sys; sys.path[0] = sys.argv.pop(1); "
    "runpy.run_module('support.command_line', run_name='__main__')"
)
_IMPORTED: Final = (
    "sfumato.app.vault",
    "sfumato.app.doctor",
    "sfumato.app.command_line",
    "sfumato.engines.ingest.prepare",
    "sfumato.engines.duckdb.worker",
    "sfumato.cli.main",
)
_UNKNOWN: Final[int | None] = None  # how it ended
_PTRACER: Final = 0x59616D61  # PR_SET_PTRACER
# what Python and libraries read before any code of ours
_AT_START: Final = ("PYTHON", "LC_", "LANG", "TZ", "OPENBLAS", "LD_")
_begun: list[tuple[subprocess.Popen[bytes], str]] = []  # who forks for us, and where it listens
_keeping: list[tuple[subprocess.Popen[bytes], str]] = []  # who forks services
_ENTRY: Final = """#!{python} -IS
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({where!r})
socket.send_fds(line, [b"."], [0, 1, 2, os.open(os.devnull, os.O_RDONLY)])
place = {{"environment": dict(os.environ), "folder": os.getcwd()}}
line.sendall(json.dumps({{"words": sys.argv[1:], **place, **{usual!r}}}).encode())
line.shutdown(socket.SHUT_WR)
_, code = line.makefile("rb")
sys.exit(int(code) if int(code) >= 0 else 128 - int(code))
"""


def shell(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    *,
    is_hurried: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `sfumato` with these words, in this environment and nothing of ours.

    Where it is hurried, blocks of strangers' programs begin as soon as the last one has ended.
    """
    with _held(_told(arguments, environment, folder, is_hurried=is_hurried)) as (_, ended):
        return ended()


def script(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script of ours that uses the package, as `python PATH WORDS` does."""
    with _held(_told(words, _kept(), None, script=str(path))) as (_, ended):
        return ended()


def traced(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    options: Sequence[str],
    script: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `sfumato`, or a script, under strace; every thread and child is followed.

    It is traced from its first step on: not while a package is imported, which writes nothing.
    """
    words = ["strace", "-f", "-qq", *options, "-o", str(log), "-p"]
    told = _told(arguments, environment, None, script=str(script or ""), workers="")
    with (
        _held(told) as (pid, ended),
        subprocess.Popen([*words, str(pid)], stdin=subprocess.DEVNULL) as strace,
    ):
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            assert strace.poll() is None, "strace may not trace here: see `make system`"
            time.sleep(0.005)
        return ended()


def entry(folder: Path) -> Path:
    """Write a `sfumato` for a PATH, which runs every command as `shell` does; return it."""
    found = folder / "sfumato"
    found.write_text(_ENTRY.format(python=sys.executable, where=_address(), usual=_usual()))
    found.chmod(0o755)
    return found


def _told(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None, **how: object
) -> dict[str, object]:
    assert not any(name.startswith(_AT_START) for name in environment)
    place = {"environment": dict(environment), "folder": str(folder or Path.cwd())}
    return {"words": list(arguments), **place, **_usual(), **how}


def _usual() -> dict[str, object]:
    return {"script": "", "is_hurried": False, "is_kept": False, "workers": warm_workers.address()}


class Kept:
    """A `sfumato` that goes on until it is told to end: what is asked of a `Popen`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Begin it, forked, and so is all that it starts."""
        kept = {name: text for name, text in environment.items() if not name.startswith(_AT_START)}
        told = json.dumps(_told(words, kept, None, is_kept=True)).encode()
        self.args, self.returncode = list(words), _UNKNOWN
        (heard, says), (held, let) = os.pipe(), os.pipe()
        self.stderr = open(heard, encoding="utf-8")  # noqa: SIM115  # who ends it closes this
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(_found(_keeping, forked_service.IMPORTED))
        with (
            open(says, "wb"),
            open(held, "rb"),
            open(let, "wb"),
            open(os.devnull, "r+b") as nothing,
        ):
            socket.send_fds(self._line, [b"."], [nothing.fileno(), nothing.fileno(), says, held])
            self._line.sendall(told)
            self._line.shutdown(socket.SHUT_WR)
            self.pid = self._number()
            self._life = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, most_s: float | None = None) -> int:
        """Return how it ended, once it has."""
        if self.returncode is None:
            if not select.select([self._line], [], [], most_s)[0]:
                raise subprocess.TimeoutExpired(self.args, most_s or 0)
            self.returncode = self._number()
            self._line.close()
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._life, number)

    def _number(self) -> int:
        """Return the next number that is said of it: which process it is, then how it ended."""
        said = b""
        while not said.endswith(b"\n"):
            part = self._line.recv(1)
            assert part, "whoever forks services has ended"
            said += part
        return int(said)

    def __del__(self) -> None:
        """Let go of the handle."""
        with suppress(AttributeError):
            os.close(self._life)


Ended = Callable[[], subprocess.CompletedProcess[str]]


@contextmanager
def _held(told: dict[str, object]) -> Iterator[tuple[int, Ended]]:
    """Give a command that has not begun: its process id, and what lets it run to its end."""
    line, (held, let) = socket.socket(socket.AF_UNIX), os.pipe()
    with line, open(let, "wb") as gate, TemporaryFile() as out, TemporaryFile() as err:
        line.connect(_address())
        with open(held, "rb") as read, open(os.devnull, "rb") as nothing:
            fds = [one.fileno() for one in (nothing, out, err, read)]
            socket.send_fds(line, [b"."], fds)
        line.sendall(json.dumps(told).encode())
        line.shutdown(socket.SHUT_WR)  # whoever hangs up ends the command
        line.settimeout(_PATIENCE_S)
        with line.makefile("rb") as said:

            def ended() -> subprocess.CompletedProcess[str]:
                gate.close()
                code = int(said.readline())
                return subprocess.CompletedProcess("sfumato", code, _read(out), _read(err))

            yield int(said.readline()), ended


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    with os.fdopen(os.dup(file.fileno()), encoding="utf-8") as text:
        return text.read()


def _address() -> str:
    """Return where the process listens that is forked; this process begins its own."""
    return _found(_begun, _IMPORTED)


def _found(begun: list[tuple[subprocess.Popen[bytes], str]], modules: Sequence[str]) -> str:
    if not begun or begun[0][0].poll() is not None:
        where = f"\0sfumato-shells-{os.getpid()}-{secrets.token_hex(8)}"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(where)
            listening.listen(64)
            words = [
                sys.executable,
                "-c",
                _START,
                str(Path(__file__).parents[1]),
                str(listening.fileno()),
                *modules,
            ]
            process = subprocess.Popen(
                words, env=_kept(), stdin=subprocess.PIPE, pass_fds=[listening.fileno()]
            )
        begun[:] = [(process, where)]
        atexit.register(_end, process, where)
    return begun[0][1]


def _kept() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def _end(process: subprocess.Popen[bytes], _where: str) -> None:
    if process.stdin is not None:
        process.stdin.close()  # it ends when nobody holds this
    process.wait(30)


# --- in the process that is forked ----------------------------------------------------------------


def _serve(listening: socket.socket) -> int:
    """Fork for every command until standard input ends; return what a command ends with."""
    while True:
        ready, _, _ = select.select([0, listening.fileno()], [], [])
        _reap()
        if 0 in ready:
            return 0
        asker, _ = listening.accept()
        with asker:
            if warm_workers.is_ours(asker) and os.fork() == 0:
                listening.close()
                return _mind(asker)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _mind(asker: socket.socket) -> int:
    """Fork once more, for the command; say how it ended, and end it if nobody listens."""
    _, (given, out, err, gate), _, _ = socket.recv_fds(asker, 1, 4)
    told = json.loads(b"".join(iter(lambda: asker.recv(65536), b"")))
    pid = os.fork()
    if pid > 0:
        for one in (given, out, err, gate):
            os.close(one)
        _wait_for(pid, asker)
        os._exit(0)
    ctypes.CDLL(None).prctl(_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # whoever asked may trace it
    asker.sendall(f"{os.getpid()}\n".encode())
    asker.close()
    os.read(gate, 1)  # until it is let
    os.close(gate)
    for place, one in enumerate((given, out, err)):
        os.dup2(one, place)
        os.close(one)
    return _be(told)


def _wait_for(pid: int, asker: socket.socket) -> None:
    ended = os.pidfd_open(pid)
    hung_up = select.poll()
    hung_up.register(ended, select.POLLIN)
    hung_up.register(asker, select.POLLHUP)
    if all(found != ended for found, _ in hung_up.poll()):
        os.kill(pid, 9)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        asker.sendall(f"{code}\n".encode())
    except OSError:
        return


def _be(told: dict[str, object]) -> int:
    os.environ.clear()
    os.environ.update(told["environment"])  # type: ignore[call-overload]  # a message of our own
    os.chdir(str(told["folder"]))
    sys.argv[1:] = told["words"]  # type: ignore[call-overload]
    warm_workers.warm(str(told["workers"])) if told["workers"] else warm_workers.within()
    if told["is_kept"]:
        forked_service.within()
    if told["is_hurried"]:
        hurried = import_module("sfumato.sandbox.sandbox_pool").SandboxPool.__init__.__kwdefaults__
        hurried["sleep"] = lambda _: None
    if told["script"]:
        sys.argv[0] = str(told["script"])
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    code: int = import_module("sfumato.app.command_line").main()
    return code


if __name__ == "__main__":
    sys.path[0] = ""  # as where a command is typed
    for module in sys.argv[2:]:
        import_module(module)
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
