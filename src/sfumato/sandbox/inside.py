"""The processes inside a sandbox: a preloaded interpreter that forks for every block.

This file is copied into the sandbox and runs there, so it imports nothing of sfumato. It has three
kinds of processes.

- The *zygote* has the libraries loaded and holds no secret. It passes on the descriptors of a block
  but never reads them.
- The *keeper* is forked for one block, into new process and mount namespaces. It measures the
  block's processor time and is the only reader of its output.
- The *block* is forked from the keeper. It drops all privileges, reads its rows, and only then runs
  the untrusted program.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

Order = dict[str, Any]  # Any: JSON from our launcher
Job = dict[str, Any]  # Any: JSON from the researcher
VOICE, INPUT = 3, 4  # the descriptors of a block: output pipe, and input until it is read
_NEW_MOUNTS, _NEW_IPC, _NEW_UTS, _NEW_PIDS = 0x00020000, 0x08000000, 0x04000000, 0x20000000
_READ_ONLY, _REMOUNT, _NOSUID_NODEV, _NOSUID_NODEV_NOEXEC = 1, 32, 2 | 4, 2 | 4 | 8
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _SECCOMP = 1, 38, 22
_BOUNDING_DROP, _AMBIENT, _CLEAR_ALL = 24, 47, 4
_LAST_RIGHT = 63
_CAPSET = 126  # number of the system call on x86-64
_HEAD = struct.Struct("<BQI")  # how the block ended, processor microseconds, bytes that follow
_TRIAL_HEAD = struct.Struct("<iI")  # trials only: exit status, bytes of printed text
DONE, LATE, STALLED, BROKEN = 0, 1, 2, 3
READY = b"\x01"  # a block sends it before the untrusted program starts
WHOLE = b"\x02"  # a result reader sends it last
_PROGRAMS = ("<function>", "/work/tmp/program.py")  # files of untrusted code in a traceback
_LOOK_S = 0.004
_PAST = 250  # a descriptor number above all open ones
LIBC = ctypes.CDLL(None, use_errno=True)


# --- zygote ---------------------------------------------------------------------------------------


def carry_in(then: list[str]) -> NoReturn:
    """Copy the environment into the sandbox's own memory, and restart from there.

    So blocks open no file in the host's page cache, which blocks could use as a covert channel.
    """
    for name in os.listdir("/from"):
        shutil.copytree(f"/from/{name}", f"/env/{name}", symlinks=True)
    if os.path.isdir("/own"):
        shutil.copytree("/own", "/env/own", symlinks=True)
    os.execv(then[0], then)  # noqa: S606  # the interpreter of the copy


def _let_go_of_the_host(is_nested: bool) -> None:
    """Unmount the host's folders, and make the copy read-only."""
    nothing = _REMOUNT | _READ_ONLY | _NOSUID_NODEV
    if is_nested:  # nested.py has already left the container's files
        if LIBC.mount(None, b"/", None, nothing, None) != 0:
            os._exit(1)
        return
    if os.path.isdir("/own") and LIBC.umount2(b"/own", 0) != 0:
        os._exit(1)
    if LIBC.umount2(b"/from", 0) != 0 or LIBC.mount(None, b"/env", None, nothing, None) != 0:
        os._exit(1)


def main() -> None:
    """Run the zygote: preload the libraries, then serve blocks until the parent hangs up."""
    settings = json.loads(sys.argv[1])
    if isinstance(settings, list):
        carry_in(settings)
    _let_go_of_the_host(settings["nested"])
    os.sched_setaffinity(0, set(settings["cpus"]))
    sys.path[:0] = settings["path"]
    for name in settings["modules"]:
        importlib.import_module(name)
    for name in ("function", "study", "image"):
        RUNS.update(_beside(name)["RUNS"])
    OWN.update(settings)
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=settings["control"])
    control.send(b"ready")
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, 65536, 3)
        if len(descriptors) != 3:
            os._exit(0)
        keeper = os.fork()
        if keeper == 0:
            _as_keeper(control, json.loads(order), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _wait_for(keeper, control)


def _beside(name: str) -> dict[str, Any]:  # Any: global names of the file
    """Execute another of our files and return its global names; programs cannot import it."""
    names: dict[str, Any] = {"__name__": f"_{name}"}
    with open(f"/env/inside/{name}.py", "rb") as file:
        exec(compile(file.read(), file.name, "exec"), names)  # noqa: S102  # ours, copied with this
    return names


def _wait_for(keeper: int, control: socket.socket) -> None:
    """Wait for the keeper to end; exit with the whole sandbox if the parent is gone."""
    watched = os.pidfd_open(keeper)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(control, 0)  # hang-ups are always reported
    for descriptor, _ in poll.poll():
        if descriptor != watched:
            os._exit(0)  # we are process 1 of the sandbox: all others in it end too
    os.waitpid(keeper, 0)
    os.close(watched)


# --- keeper ---------------------------------------------------------------------------------------


def _as_keeper(control: socket.socket, order: Order, descriptors: list[int]) -> NoReturn:
    try:
        control.close()
        program, rows, answer = descriptors
        if LIBC.unshare(_NEW_PIDS | _NEW_MOUNTS | _NEW_IPC | _NEW_UTS) != 0:
            os._exit(1)
        until = time.monotonic() + order["wall_s"]
        gatherer = _gathering(order, program) if OWN["image"] else None
        printed = _printed_file(order) if order.get("printed") else None
        hear, say = os.pipe()
        block = os.fork()
        if block == 0:
            os.close(hear)
            os.close(answer)
            _as_block(order, program, rows, say, printed)
        for descriptor in (program, rows, say):
            os.close(descriptor)
        ended, used, heard, status = _kept(block, hear, order, until)
        if gatherer is not None:
            ended, heard = _gathered(gatherer, ended, order, until)
        _write_all(answer, _HEAD.pack(ended, used, len(heard)) + heard)
        if printed is not None:
            _write_all(answer, _trial_frame(status, printed, order["printed"]))
    finally:
        os._exit(0)


def _printed_file(order: Order) -> int:
    """Create the file for the printed output of a trial block, in the block's own tmpfs.

    Blocks of real rows have none: their printed output is discarded. A pipe would not do: its inode
    number would show the block how many pipes the whole host has created.
    """
    if not OWN["image"]:
        _furnish(order)
    name = "/work/tmp/printed"
    made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    os.unlink(name)
    return made


def _trial_frame(status: int, printed: int, most: int) -> bytes:
    """Encode the exit status of a trial block and the end of its printed output."""
    size = os.fstat(printed).st_size
    text = os.pread(printed, most, max(0, size - most))
    return _TRIAL_HEAD.pack(status, len(text)) + text


def _kept(block: int, hear: int, order: Order, until: float) -> tuple[int, int, bytes, int]:
    """Supervise the block; return how it ended, its processor time, its output and exit status.

    The output is limited in size. The exit status is reported further only for trials on synthetic
    rows.
    """
    most = order["most_bytes"]
    heard: list[bytes] = []
    ended = DONE
    watched = os.pidfd_open(block)
    poll = select.poll()
    poll.register(hear, select.POLLIN)
    poll.register(watched, select.POLLIN)
    while True:
        seen = dict(poll.poll(_LOOK_S * 1000))
        if hear in seen:
            part = os.read(hear, 65536)
            if part:
                heard.append(part)
            else:
                poll.unregister(hear)
            if sum(map(len, heard)) > most:
                ended = BROKEN
                break
        elif watched in seen:
            break
        if _time_of(block) > order["cpu_s"]:
            break
        if time.monotonic() > until:
            ended = STALLED
            break
    is_cut = ended != DONE
    os.kill(block, signal.SIGKILL)
    _, status, used = os.wait4(block, 0)
    spent = used.ru_utime + used.ru_stime
    if spent > order["cpu_s"]:
        ended = LATE
    said = b"".join(heard)
    if ended == DONE and said[:1] != READY:
        os._exit(1)  # the block's setup failed: a host failure, not a result of the block
    if ended == DONE and os.WIFSIGNALED(status):
        ended = BROKEN  # it crashed, or the kernel was out of memory: it counts as no output
    exit_status = 0 if is_cut else os.waitstatus_to_exitcode(status)
    return ended, int(spent * 1e6), said[1:] if ended == DONE else b"", exit_status


def _gathering(order: Order, program: int) -> tuple[int, int, int]:
    """Start the result reader of an image's program, before the program itself.

    The reader is the first process of the new process namespace and has no privileges. It waits for
    one message from the keeper.
    """
    _furnish(order)
    told, tell = os.pipe()
    hear, say = os.pipe()
    nowhere = os.open("/dev/null", os.O_RDWR)  # opened early, because the block covers /dev
    reader = os.fork()
    if reader == 0:
        ended = 1
        try:
            LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the block could send it
            job, code = json.loads(_all_of(program)), _filter("filter")
            say = _alone(say, told, nowhere, nowhere)
            _give_up_rights(order, code)
            if os.read(INPUT, 1) == READY:
                _write_all(say, RUNS["gather"](job, b"") + WHOLE)
                ended = 0
        finally:
            os._exit(ended)
    for descriptor in (told, say, nowhere):
        os.close(descriptor)
    return reader, tell, hear


def _gathered(
    gatherer: tuple[int, int, int], ended: int, order: Order, until: float
) -> tuple[int, bytes]:
    """Let the reader collect the results after the program has ended; return status and results.

    The results are limited in size. If the reader did not finish normally, the results may be
    incomplete and are discarded.
    """
    reader, tell, hear = gatherer
    said = b""
    if ended == DONE:
        os.write(tell, READY)
        ended, said = _said_by(hear, order["most_bytes"] + len(WHOLE), until)
        if ended == DONE and not _is_gone(reader, until):
            ended = STALLED
    os.kill(reader, signal.SIGKILL)
    _, status = os.waitpid(reader, 0)
    if ended == DONE and (status != 0 or not said.endswith(WHOLE)):
        ended = BROKEN
    return ended, said[: -len(WHOLE)] if ended == DONE else b""


def _is_gone(process: int, until: float) -> bool:
    """Wait until the deadline for a process to end; say whether it has ended."""
    watched = os.pidfd_open(process)
    try:
        return bool(select.select([watched], [], [], max(0.0, until - time.monotonic()))[0])
    finally:
        os.close(watched)


def _said_by(hear: int, most: int, until: float) -> tuple[int, bytes]:
    poll, said = select.poll(), b""
    poll.register(hear, select.POLLIN)
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        part = os.read(hear, 65536)
        if not part:
            return DONE, said
        said += part
        if len(said) > most:
            return BROKEN, b""
    return STALLED, b""


def _time_of(process: int) -> float:
    """Return the processor seconds that a process has used, from its CPU clock."""
    found = ctypes.c_int()
    if LIBC.clock_getcpuclockid(process, ctypes.byref(found)) != 0:
        return 0.0
    return time.clock_gettime(found.value)


def _write_all(descriptor: int, message: bytes) -> None:
    view = memoryview(message)
    while view:
        view = view[os.write(descriptor, view) :]


# --- block ----------------------------------------------------------------------------------------


def _as_block(order: Order, program: int, rows: int, say: int, printed: "int | None") -> NoReturn:
    """Run a block: drop all privileges, read the rows, run the untrusted program.

    `printed` is the file for the printed output of a trial; None for real rows.
    """
    status = 0
    try:
        LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if not OWN["image"] and printed is None:
            _furnish(order)
        nowhere = os.open("/dev/null", os.O_RDWR)
        _hide_devices()
        job = json.loads(_all_of(program))
        say = _alone(say, rows, nowhere, nowhere if printed is None else printed)
        _draw_anew()
        code = _filter("filter-image" if OWN["image"] else "filter")
        if OWN["image"]:
            RUNS["enter"](job, b"")
        _give_up_rights(order, code)
        os.write(say, READY)  # from here on it reads rows and can create no more namespaces
        sys.path[:0] = OWN["own"]
        rows_text = _rows() if job["kind"] in READ_WHOLE else b""
        if OWN["image"]:
            RUNS["lay-out"](job, rows_text)
            RUNS["become"](job, b"")
        found = RUNS[job["kind"]](job, rows_text)
        _write_all(say, found if isinstance(found, bytes) else json.dumps(found).encode())
        status = 0 if printed is None else _exit_status(job.get("left"))
    except BaseException:  # noqa: BLE001  # an untrusted program may raise anything
        status = 0 if printed is None else _shown_failure()
    finally:
        os._exit(status)


def _exit_status(left: object) -> int:
    """Return the exit status for a program's `sys.exit` argument, as Python itself computes it."""
    is_status = left is None or isinstance(left, int)
    if not is_status:
        sys.stderr.write(f"{left}\n")
    _flush()
    return int(left or 0) & 0xFF if is_status else 1  # type: ignore[call-overload]  # an int


def _shown_failure() -> int:
    """Print the traceback of a failed trial program, starting at the program's own code."""
    kind, error, place = sys.exc_info()
    while place is not None and place.tb_frame.f_code.co_filename not in _PROGRAMS:
        place = place.tb_next
    if kind is not None and error is not None:
        with contextlib.suppress(Exception):
            sys.excepthook(kind, error.with_traceback(place), place)
    _flush()
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _all_of(descriptor: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = os.pread(descriptor, 1 << 20, sum(map(len, parts)))
        if not part:
            return b"".join(parts)
        parts.append(part)


def _rows() -> bytes:
    text = _all_of(INPUT)
    os.close(INPUT)
    return text


def _furnish(order: Order) -> None:
    """Mount a small empty tmpfs on /work for the block."""
    room = f"size={order['disk_mb']}m,nr_inodes={order['files']},mode=700".encode()
    if LIBC.mount(b"tmpfs", b"/work", b"tmpfs", _NOSUID_NODEV_NOEXEC, room) != 0:
        os._exit(1)
    for name in ("in", "out", "tmp"):
        os.mkdir(f"/work/{name}")
    os.chdir("/work")


def _alone(say: int, rows: int, nowhere: int, printed: int) -> int:
    """Close all descriptors except the output pipe and the rows; clear the environment.

    Standard output and error go to `printed`, which is /dev/null except in trials.
    """
    os.dup2(nowhere, 0)
    for standard in (1, 2):
        os.dup2(printed, standard)
    kept = os.dup2(say, _PAST), os.dup2(rows, _PAST + 1)
    os.dup2(kept[0], VOICE)
    os.dup2(kept[1], INPUT)
    os.closerange(INPUT + 1, 65536)
    LIBC.clearenv()
    os.environ.clear()
    os.environ.update({"HOME": "/work/tmp", "TMPDIR": "/work/tmp"})
    return VOICE


def _hide_devices() -> None:
    """Cover /dev: its nodes are the host's, and a block could signal other blocks through them."""
    how = _READ_ONLY | _NOSUID_NODEV_NOEXEC
    if LIBC.mount(b"tmpfs", b"/dev", b"tmpfs", how, b"size=4k,nr_inodes=1,mode=555") != 0:
        os._exit(1)


def _draw_anew() -> None:
    """Reseed the random number generators; the zygote's state would identify the block's lane."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()  # from the kernel's generator


def _filter(name: str) -> bytes:
    with open(f"/env/inside/{name}", "rb") as file:
        return file.read()


def _give_up_rights(order: Order, code: bytes) -> None:
    limits = {
        resource.RLIMIT_AS: order["memory_mb"] << 20,
        resource.RLIMIT_CPU: int(order["cpu_s"]) + 2,
        resource.RLIMIT_FSIZE: order["disk_mb"] << 20,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: order["processes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    for right in range(_LAST_RIGHT + 1):
        LIBC.prctl(_BOUNDING_DROP, right, 0, 0, 0)
    LIBC.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if LIBC.syscall(_CAPSET, header, (ctypes.c_uint32 * 6)()) != 0:
        os._exit(1)
    if LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        os._exit(1)
    program = ctypes.create_string_buffer(code, len(code))
    shape = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    if LIBC.prctl(_SECCOMP, 2, ctypes.c_char_p(shape), 0, 0) != 0:
        os._exit(1)


OWN: dict[str, Any] = {}  # Any: the launcher's settings, with the program's own environment
READ_WHOLE = ("function", "program", "bids")  # kinds whose rows are read at once, not streamed
RUNS: dict[str, Callable[[Job, bytes], Any]] = {}  # Any: bytes, or files

if __name__ == "__main__":
    main()
