"""Start a preloaded sandbox process without privileges or secrets, and run one block at a time.

Bubblewrap isolates the process. In a container of another runtime, its own first process does
(nested.py). The only output is messages of the keeper: how a block ended, its processor time, and
its size-limited output. A sandbox ends when this process ends in any way.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sfumato.dp.ports import RandomSource
from sfumato.sandbox.base_environment import Environment
from sfumato.sandbox.container_root import listening
from sfumato.sandbox.container_runtimes import BUBBLEWRAP, Runtime, command, program
from sfumato.sandbox.control_group import GroupHome, SandboxGroups, wall_mb
from sfumato.sandbox.nested import CONTROL
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.program_traces import MAX_OBSERVED

BWRAP: Final = "bwrap"
_DEVICES: Final = ("/dev/null", "/dev/urandom")
# how a block ended; the same numbers as in inside.py
DONE, LATE, STALLED, BROKEN, FULL = 0, 1, 2, 3, 4
_HEAD: Final = struct.Struct("<BQI")
# exit status, most memory in bytes, most processes at once, number of bytes of printed output, and
# number of bytes on commands and files
_TRIAL_HEAD: Final = struct.Struct("<iQIII")
MAX_PRINTED: Final = 65_536  # most bytes of a trial's printed output
_START_S: Final = 180.0  # start timeout for a busy machine; a failed start ends at once
_LOOK_S: Final = 0.1
_TIDY_S: Final = 10.0  # time for a container runtime to clean up after we close the socket
_BUBBLEWRAP: Final = Runtime()
_GRACE_S: Final = 20.0  # how late a message of a keeper may be
# if memory runs out, the OOM killer must choose a sandbox, and its largest process: a block
_FIRST_TO_GO: Final = 'echo "$0" >/proc/self/oom_score_adj; exec "$@"'
_ENTER: Final = "echo 0 >&0 && exec </dev/null || exit 1; "  # a control group (control_group.py)
# an image's sandbox starts with 900, and its blocks set 1000: they end before their keeper
_FIRST, _SECOND = "1000", "900"
_FIRST_UID, _UIDS = 61_184, 4_000  # range of uids that systemd uses for temporary services


class SandboxProcessEnded(Exception):
    """Raised when a sandbox does not start, or has ended; the exception carries no details."""


class BlockNotEnded(SandboxProcessEnded):
    """A block was still ending when its time, and much more, was over; a program can cause this."""


@dataclass(frozen=True)
class Ran:
    """The sandbox's message about a block: how it ended, its processor time, and its output."""

    ended: int
    used_us: int
    output: bytes


@dataclass(frozen=True)
class TrialEnd:
    """The sandbox's second message about a trial block: its status, use, output and traces."""

    status: int  # exit status of the program; a negative number is the signal that ended it
    memory: int  # most bytes that its processes used at once
    processes: int  # most processes at once, as far as they were seen
    printed: bytes  # the end of its standard output and error
    observed: bytes = b"{}"  # its commands and files, as JSON (program_traces.py)


Heard = TypeVar("Heard")


class SandboxProcess:
    """A running sandbox: a zygote (preloaded interpreter) in bubblewrap or in a container."""

    def __init__(
        self,
        made: Environment,
        cpu: int,
        dice: RandomSource,
        runtime: Runtime = _BUBBLEWRAP,
        home: GroupHome | None = None,
    ) -> None:
        """Start the sandbox on one processor, and wait until its libraries are loaded.

        With a `home` for control groups, each block gets a group of its own if the kernel lets the
        sandbox start processes in it. In a container there are none: a block would leave the
        container's own group, and so its limits.
        """
        if shutil.which(program(runtime)) is None:
            raise SandboxProcessEnded
        self._tidy_s = 0.0 if runtime.name == BUBBLEWRAP else _TIDY_S
        uid = own_uid(dice)
        self._groups = _new_groups(home, uid) if runtime.name == BUBBLEWRAP else None
        if self._groups is not None:
            with contextlib.suppress(SandboxProcessEnded):
                self._begin(partial(_in_bubblewrap, made, cpu, uid, self._groups))
                if self._can_enter():
                    return
                self.kill()
            self._groups.close()
            self._groups = None
        start = _in_bubblewrap if runtime.name == BUBBLEWRAP else partial(_in_container, runtime)
        self._begin(partial(start, made, cpu, uid))

    def _begin(self, start: Callable[[], tuple[subprocess.Popen[bytes], socket.socket]]) -> None:
        self._process, self._control = start()
        self._control.settimeout(_START_S)
        try:
            is_ready = self._control.recv(16) == b"ready"
        except OSError:
            is_ready = False
        if not is_ready:
            self.kill()
            raise SandboxProcessEnded

    def _can_enter(self) -> bool:
        """Return True if the sandbox can start a process in a block's control group."""
        nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        order = {**_order(SandboxLimits()), "is_trial_of_groups": True}
        until = time.monotonic() + _GRACE_S
        try:
            with self._block_group(SandboxLimits()) as group:
                opened = nothing, nothing, *group
                return (
                    self._send_order(order, opened, partial(_exactly, count=1, until=until)) != b""
                )
        except SandboxProcessEnded:
            return False
        finally:
            os.close(nothing)

    @property
    def has_groups(self) -> bool:
        """Return True if each block has a control group of its own."""
        return self._groups is not None

    @property
    def pid(self) -> int:
        """Return the process id of the sandbox's launcher."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return True if the sandbox's launcher is running."""
        return self._process.poll() is None

    def run(self, program: int, rows: int, limits: SandboxLimits) -> Ran:
        """Run a program on one block of rows, to its end.

        Only the sandbox reads the two descriptors (program and rows).
        """
        with self._block_group(limits) as group:
            opened = program, rows, *group
            return self._send_order(_order(limits), opened, partial(_receive, limits=limits))

    def try_out(self, program: int, rows: int, limits: SandboxLimits) -> tuple[Ran, TrialEnd]:
        """Run a program on one block of synthetic rows; return also all that was seen of it.

        Never pass real rows here: the printed output leaves the sandbox without noise.
        """
        order = {**_order(limits), "printed": MAX_PRINTED}
        with self._block_group(limits) as group:
            opened = program, rows, *group
            return self._send_order(order, opened, partial(_receive_trial, limits=limits))

    @contextmanager
    def _block_group(self, limits: SandboxLimits) -> Iterator[tuple[int, ...]]:
        """Yield the files of a new control group for one block, or none; nothing outlives it."""
        try:
            with contextlib.ExitStack() as stack:
                groups = self._groups
                yield () if groups is None else stack.enter_context(groups.block(limits))
        except OSError:
            raise SandboxProcessEnded from None

    def _send_order(
        self, order: dict[str, float], opened: tuple[int, ...], heard: Callable[[int], Heard]
    ) -> Heard:
        """Send an order with its program, its rows and its control group; return what is heard."""
        hear, say = os.pipe2(os.O_CLOEXEC)
        try:
            message = json.dumps(order).encode()
            socket.send_fds(self._control, [message], [*opened[:2], say, *opened[2:]])
            os.close(say)
            say = -1
            return heard(hear)
        except OSError:
            raise SandboxProcessEnded from None
        finally:
            os.close(hear)
            if say >= 0:
                os.close(say)

    def kill(self) -> None:
        """Kill the sandbox; a container runtime first gets some time to clean up."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._tidy_s)
        self._process.kill()
        self._process.wait()
        if self._groups is not None:
            self._groups.close()


def _order(limits: SandboxLimits) -> dict[str, float]:
    return {
        "cpu_s": limits.cpu_s,
        "wall_s": limits.wall_s,
        "memory_mb": limits.memory_mb,
        "disk_mb": limits.disk_mb,
        "files": limits.files,
        "processes": limits.processes,
        "most_bytes": limits.most_bytes,
        "wall_mb": wall_mb(limits),
    }


def _receive(hear: int, limits: SandboxLimits) -> Ran:
    until = time.monotonic() + limits.wall_s + _GRACE_S
    ended, used, length = _HEAD.unpack(_exactly(hear, _HEAD.size, until))
    if length > limits.most_bytes:
        raise SandboxProcessEnded
    return Ran(ended, used, _exactly(hear, length, until))


def _receive_trial(hear: int, limits: SandboxLimits) -> tuple[Ran, TrialEnd]:
    ran = _receive(hear, limits)
    until = time.monotonic() + _GRACE_S
    head = _TRIAL_HEAD.unpack(_exactly(hear, _TRIAL_HEAD.size, until))
    status, memory, processes, length, observed = head
    if length > MAX_PRINTED or observed > MAX_OBSERVED:
        raise SandboxProcessEnded
    printed = _exactly(hear, length, until)
    return ran, TrialEnd(status, memory, processes, printed, _exactly(hear, observed, until))


def _exactly(hear: int, count: int, until: float) -> bytes:
    parts: list[bytes] = []
    poll = select.poll()
    poll.register(hear, select.POLLIN)
    while count > 0:
        if not poll.poll(max(0, int((until - time.monotonic()) * 1000))):
            raise BlockNotEnded
        part = os.read(hear, count)
        if not part:
            raise SandboxProcessEnded
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


# --- starting -------------------------------------------------------------------------------------


def _new_groups(home: GroupHome | None, uid: int | None) -> SandboxGroups | None:
    try:
        return None if home is None else SandboxGroups(home.place, uid)
    except OSError:
        return None


def _in_bubblewrap(
    made: Environment, cpu: int, uid: int | None, groups: SandboxGroups | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote = _zygote(made, cpu, theirs.fileno())
    first = [*made.first, "-I", "/from/inside/inside.py", json.dumps(zygote)]
    try:
        argv = [BWRAP, *arguments(made, is_in_group=groups is not None), *first]
        with _entry(groups) as entry:
            return _start(made, argv, uid, (theirs.fileno(),), entry), ours
    except OSError:
        ours.close()
        raise SandboxProcessEnded from None
    finally:
        theirs.close()


@contextmanager
def _entry(groups: SandboxGroups | None) -> Iterator[int | None]:
    """Yield the descriptor by which a launcher enters its sandbox's control group, if any."""
    entry = None if groups is None else groups.entry()
    try:
        yield entry
    finally:
        if entry is not None:
            os.close(entry)


def _in_container(
    runtime: Runtime, made: Environment, cpu: int, uid: int | None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    zygote = _zygote(made, cpu, CONTROL, is_nested=True)
    first = [*made.first, "-I", "/from/inside/nested.py", json.dumps(zygote)]
    try:
        with listening(made, cpu, uid) as (wall, listener):
            process = _start(made, [*command(runtime, wall), *first], uid, ())
            try:
                return process, _accept(listener, process)
            except OSError:
                process.kill()
                process.wait()
                raise
    except OSError:
        raise SandboxProcessEnded from None


def _accept(listener: socket.socket, process: subprocess.Popen[bytes]) -> socket.socket:
    """Accept a container's connection; fail if its runtime ends first or the start times out."""
    until = time.monotonic() + _START_S
    listener.settimeout(_LOOK_S)
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(TimeoutError):
            return listener.accept()[0]
    raise ConnectionError


def _zygote(made: Environment, cpu: int, control: int, *, is_nested: bool = False) -> list[str]:
    """Return the command that starts the zygote, the process from which blocks are forked.

    The zygote runs from the environment's copy in memory.
    """
    settings = {
        "control": control,
        "path": [] if made.is_alone else ["/env/packages"],
        "modules": list(made.modules),
        "own": [] if made.own is None or made.is_image else ["/env/own/packages"],
        "image": made.is_image,
        "batch": made.is_batch,
        "cpus": [cpu],
        "beside": sorted(os.sched_getaffinity(0) - {cpu}),
        "nested": is_nested,
    }
    # -I would ignore PYTHONHASHSEED; all environment variables are set by us
    return [made.python, "-s", "-P", "/env/inside/inside.py", json.dumps(settings)]


def _start(
    made: Environment,
    argv: list[str],
    uid: int | None,
    kept: tuple[int, ...],
    entry: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command with an empty environment, in a control group if there is an `entry` to one.

    If this process runs as root, the command gets an unused uid.
    """
    found = shutil.which(argv[0])
    if found is None:
        raise FileNotFoundError
    script = _FIRST_TO_GO if entry is None else _ENTER + _FIRST_TO_GO
    return subprocess.Popen(
        ["/bin/sh", "-c", script, _SECOND if made.is_image else _FIRST, found, *argv[1:]],
        stdin=subprocess.DEVNULL if entry is None else entry,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=kept,
        close_fds=True,
        cwd="/",
        env={},
        start_new_session=True,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    )


def arguments(made: Environment, *, is_in_group: bool = False) -> list[str]:
    """Return bubblewrap's arguments; the sandbox sees no file of the host but the environment.

    The zygote (the process from which blocks are forked) copies the environment into /env, a tmpfs
    of the sandbox, and unmounts /from. Two sandboxes that share a file could use its state in the
    host's page cache as a covert channel.

    The zygote keeps one capability, over its own namespaces only, to create namespaces for each
    block. Every block drops it. For a batch it keeps a second one, to bring up each block's own
    network of one address. There is no /sys and no usable network. Only an image's sandbox has
    /proc: there the keeper measures a block's processes. No block sees it.

    A sandbox with control groups keeps our view of them, because systemd lets nobody start a
    process outside of its own view. Each block takes a view in which its group is the top.
    """
    kinds = ("ipc", "pid", "net", "uts") if is_in_group else ("all",)
    return [
        *(f"--unshare-{kind}" for kind in ("user", *kinds)),
        *("--as-pid-1", "--new-session"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "bubble"),
        *("--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"),
        *(("--cap-add", "CAP_NET_ADMIN") if made.is_batch else ()),
        "--clearenv",
        *("--setenv", "LD_LIBRARY_PATH", "/env/libs:/env/own/libs"),
        *("--setenv", "OPENBLAS_NUM_THREADS", "1", "--setenv", "OMP_NUM_THREADS", "1"),
        *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "PYTHONDONTWRITEBYTECODE", "1"),
        *("--setenv", "LC_ALL", "C.UTF-8"),
        *("--ro-bind", str(made.folder), "/from", "--tmpfs", "/env"),
        *(() if made.own is None else ("--ro-bind", str(made.own), "/own")),
        *("--symlink", "env/libs", "/lib64"),
        *(part for one in _DEVICES for part in ("--dev-bind", one, one)),
        *(("--proc", "/proc") if made.is_image else ()),
        *("--dir", "/work", "--remount-ro", "/"),
        "--",
    ]


def own_uid(dice: RandomSource) -> int | None:
    """Return a random unused uid if this process is root; else None, because its uid is enough.

    A sandbox that root started would be root outside of it, and no limit would apply.
    """
    return free_uid(int.from_bytes(dice.draw(4), "little"))


def free_uid(number: int) -> int | None:
    """Return the first unused uid of the range, from `number` on.

    Return None if this process is not root.
    """
    if os.geteuid() != 0:
        return None
    taken = {account.pw_uid for account in pwd.getpwall()} | _uids_of_processes()
    uids = (_FIRST_UID + (number + place) % _UIDS for place in range(_UIDS))
    found = next((uid for uid in uids if uid not in taken), None)
    if found is None:
        raise SandboxProcessEnded
    return found


def _uids_of_processes() -> set[int]:
    found = set()
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                found.add(place.stat().st_uid)
    return found
