"""The real command line, each time in a process of its own that need not import it anew.

A process imports the package once and is forked for every command: what a command does, says and
ends with is its own, and it ends as any process does.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Final

_PATIENCE_S: Final = 300
_IMPORTED: Final = ("app", "checkup", "command", "faces.cli.main")
# what Python and libraries read before any code of ours
_AT_START: Final = ("PYTHON", "LC_", "LANG", "TZ", "OPENBLAS", "LD_")
_begun: list[tuple[subprocess.Popen[bytes], socket.socket]] = []


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
    assert not any(name.startswith(_AT_START) for name in environment)
    told = {
        "words": list(arguments),
        "environment": dict(environment),
        "folder": str(folder or Path.cwd()),
        "is_hurried": is_hurried,
    }
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with theirs:
            fds = [theirs.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(_server(), [b"."], fds)
        ours.sendall(json.dumps(told).encode())
        ours.shutdown(socket.SHUT_WR)
        ours.settimeout(_PATIENCE_S)
        said = ours.recv(16)  # whoever hangs up ends the command
        code = int(said)
        return subprocess.CompletedProcess(list(arguments), code, _read(out), _read(err))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    with os.fdopen(os.dup(file.fileno()), encoding="utf-8") as text:
        return text.read()


def _server() -> socket.socket:
    """Return the line to the process that is forked; this process begins its own."""
    if not _begun or _begun[0][0].poll() is not None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with theirs:
            words = [sys.executable, __file__, str(theirs.fileno())]
            process = subprocess.Popen(
                words, env=kept, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        _begun[:] = [(process, ours)]
        atexit.register(_end, process, ours)
    return _begun[0][1]


def _end(process: subprocess.Popen[bytes], line: socket.socket) -> None:
    line.close()
    process.wait(30)


# --- in the process that is forked ----------------------------------------------------------------


def _serve(line: socket.socket) -> int:
    """Fork for every command until the other end is closed; return what a command ends with."""
    while True:
        _, fds, _, _ = socket.recv_fds(line, 1, 3)
        _reap()
        if not fds:
            return 0
        if os.fork() == 0:
            line.close()
            return _mind(*fds)
        for one in fds:
            os.close(one)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _mind(answer: int, out: int, err: int) -> int:
    """Fork once more, for the command; say how it ended, and end it if nobody listens."""
    with socket.socket(fileno=answer) as asker:
        told = json.loads(b"".join(iter(lambda: asker.recv(65536), b"")))
        pid = os.fork()
        if pid > 0:
            _wait_for(pid, asker)
            os._exit(0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
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
        asker.sendall(str(code).encode())
    except OSError:
        return


def _be(told: dict[str, object]) -> int:
    os.environ.clear()
    os.environ.update(told["environment"])  # type: ignore[call-overload]  # a message of our own
    os.chdir(str(told["folder"]))
    sys.argv[1:] = told["words"]  # type: ignore[call-overload]
    if told["is_hurried"]:
        hurried = import_module("sfumato.sandbox.bubblewrap").Bubblewrap.__init__.__kwdefaults__
        hurried["sleep"] = lambda _: None
    code: int = import_module("sfumato.command").main()
    return code


if __name__ == "__main__":
    sys.path[0] = ""  # as where a command is typed
    for module in _IMPORTED:
        import_module(f"sfumato.{module}")
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
