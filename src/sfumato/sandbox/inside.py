"""Run blocks inside the sandbox: a preloaded interpreter is forked for each block.

This file is copied into the sandbox, so it imports none of our modules. The *zygote* holds the
libraries and no secret; it never reads the descriptors of a block. The *keeper*, forked for one
block, has process and mount namespaces of its own. It measures the block, stops it at its limits,
and passes its results on. The *block* drops all privileges before it reads its rows, and then runs
the program. For an image there is also a *reader*, process 1 of the block, which ends its processes
and reads the results (process_tree.py, study.py).
"""

import contextlib
import ctypes
import fcntl
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

Order = dict[str, Any]  # Any: JSON of the launcher's own
Job = dict[str, Any]  # Any: JSON, as a researcher gave it
Seen = tuple[int, int, int]  # exit status, most memory in bytes, most processes at once
VOICE, INPUT = 3, 4  # the descriptors that a block keeps; the second till it is read
_NEW_MOUNTS, _NEW_IPC, _NEW_UTS, _NEW_PIDS = 0x00020000, 0x08000000, 0x04000000, 0x20000000
_NEW_GROUPS = 0x02000000
_NEW_NETWORK, _SET_FLAGS, _IS_UP = 0x40000000, 0x8914, 1
_BUFFERS = (("tcp_rmem", "4096 65536 131072"), ("tcp_wmem", "4096 16384 131072"))
_LOW_PRIORITY = 10  # of a block in a batch, below its keeper's
_READ_ONLY, _REMOUNT, _NOSUID_NODEV, _NOSUID_NODEV_NOEXEC = 1, 32, 2 | 4, 2 | 4 | 8
_BIND, _NOSUID = 4096, 2
_DEATH_SIGNAL, _DUMPABLE, _NO_NEW_PRIVILEGES, _SECCOMP = 1, 4, 38, 22
_BOUNDING_DROP, _AMBIENT, _CLEAR_ALL = 24, 47, 4
_LAST_RIGHT = 63
_CAPSET = 126  # the system call's number, on x86-64
_HEAD = struct.Struct("<BQI")  # how it ended, processor time in microseconds, bytes that follow
_PROCESS = struct.Struct("<q")  # a process id
_ORPHANS = struct.Struct("<Q")  # processor time of a tree's orphans, in microseconds
# of made-up rows: exit status, most memory in bytes, most processes at once, how much was printed,
# bytes on commands and files
_TRIAL_HEAD = struct.Struct("<iQIII")
DONE, LATE, STALLED, BROKEN, FULL = 0, 1, 2, 3, 4
READY = b"\x01"  # what a block says before the stranger's program has the word
WHOLE = b"\x02"  # what a reader says last
_PROGRAMS = ("<function>", "/work/tmp/program")  # a stranger's, in a traceback (function, study)
_LOOK_S = 0.004
_RESERVED = 16 << 30  # bytes of addresses that Java and others reserve and never use
_MOST_THREADS = 32  # of a block that is one process: its keeper shares its processor
_MOST_FILES = 7  # program, rows, answer, and those of a control group (control_group.py)
_PAST = 250  # a descriptor above those that are open
LIBC = ctypes.CDLL(None, use_errno=True)


# --- zygote ---------------------------------------------------------------------------------------


def carry_in(then: list[str]) -> NoReturn:
    """Copy the environment into this bubble's own memory, and begin anew from there.

    Whatever a block can open is then in no cache of the host's, where it could find or leave marks.
    """
    for name in os.listdir("/from"):
        shutil.copytree(f"/from/{name}", f"/env/{name}", symlinks=True)
    if os.path.isdir("/own"):
        shutil.copytree("/own", "/env/own", symlinks=True)
    os.execv(then[0], then)  # noqa: S606  # the interpreter of the copy


def _let_go_of_the_host(is_nested: bool) -> None:
    """Take the host's folder away, and let nobody write into the copy."""
    for device in ("/dev/null", "/dev/urandom"):  # no block can change file times that all see
        kept = os.statvfs(device).f_flag & _NOSUID_NODEV_NOEXEC  # those of the host's mount
        how = _REMOUNT | _BIND | _READ_ONLY | _NOSUID | kept
        if LIBC.mount(None, device.encode(), None, how, None) != 0:
            os._exit(1)
    nothing = _REMOUNT | _READ_ONLY | _NOSUID_NODEV
    if is_nested:  # in a container there is nothing else by now (nested.py)
        if LIBC.mount(None, b"/", None, nothing, None) != 0:
            os._exit(1)
        return
    if os.path.isdir("/own") and LIBC.umount2(b"/own", 0) != 0:
        os._exit(1)
    if LIBC.umount2(b"/from", 0) != 0 or LIBC.mount(None, b"/env", None, nothing, None) != 0:
        os._exit(1)


def main() -> None:
    """Import what strangers use, then serve one block after another until the door hangs up."""
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
    TREE.update(_beside("process_tree")["TREE"])
    OWN.update(settings)
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=settings["control"])
    control.send(b"ready")
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, 65536, _MOST_FILES)
        if len(descriptors) < 3:
            os._exit(0)
        keeper = os.fork()
        if keeper == 0:
            _as_keeper(control, json.loads(order), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _wait_for(keeper, control)


def _beside(name: str) -> dict[str, Any]:  # Any: what a file of ours defines
    """Return what the other file of ours defines, which programs cannot import."""
    names: dict[str, Any] = {"__name__": f"_{name}"}
    with open(f"/env/inside/{name}.py", "rb") as file:
        exec(compile(file.read(), file.name, "exec"), names)  # noqa: S102  # ours, copied with this
    return names


def _wait_for(keeper: int, control: socket.socket) -> None:
    """Wait until the keeper and its children have ended; exit if the launcher is gone.

    If the keeper is killed, its children are killed too (`_DEATH_SIGNAL`). No block begins before
    they have ended.
    """
    watched = os.pidfd_open(keeper)
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.register(control, 0)  # hang-ups are always reported
    for descriptor, _ in poll.poll():
        if descriptor != watched:
            os._exit(0)  # process 1 of this bubble: nobody in it outlives it
    os.waitpid(keeper, 0)
    poll.unregister(watched)
    os.close(watched)
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0 and poll.poll(_LOOK_S * 1000):
                os._exit(0)


# --- keeper ---------------------------------------------------------------------------------------


def _as_keeper(control: socket.socket, order: Order, descriptors: list[int]) -> NoReturn:
    try:
        control.close()
        program, rows, answer, *files = descriptors
        group = TREE["group"](*files) if files else None
        if order.get("is_trial_of_groups"):
            _enter_group(group, answer)
        order["has_group"] = group is not None
        if OWN["image"]:
            _leave_the_processor()
        until = time.monotonic() + order["wall_s"]
        guard = _guard(until) if OWN["image"] else None
        network = _NEW_NETWORK if OWN["batch"] else 0
        if LIBC.unshare(_NEW_PIDS | _NEW_MOUNTS | _NEW_IPC | _NEW_UTS | network) != 0:
            os._exit(1)
        if OWN["batch"]:
            _bring_up_loopback()
        gatherer = _gathering(order, program) if OWN["image"] else None
        printed = None
        if order.get("printed"):
            printed = _printed_file(order)
            observer = _beside("trial_observer")["TRIAL"]["observer"]
            order["observer"] = observer(json.loads(_all_of(program)))
        hear, say = os.pipe()
        passed = socket.socketpair() if gatherer else None
        block = os.fork() if group is None else group.fork()
        if block < 0:
            os._exit(1)
        if block == 0:
            os.close(hear)
            os.close(answer)
            _as_block(order, (program, rows, say), printed, passed[1] if passed else None)
        for descriptor in (program, rows, say):
            os.close(descriptor)
        if gatherer is None or passed is None or guard is None:
            ended, used, heard, seen = _kept(block, hear, order, until)
        else:
            passed[1].close()
            both = hear, passed[0]
            ended, used, heard, seen = _kept_tree(
                block, (gatherer, guard, group), both, order, until
            )
        _write_all(answer, _HEAD.pack(ended, used, len(heard)) + heard)
        if printed is not None:
            observed = order["observer"].seen()
            _write_all(answer, _trial_frame(seen, printed, order["printed"], observed))
    finally:
        os._exit(0)


def _enter_group(group: Any, answer: int) -> NoReturn:  # Any: a group (process_tree.py)
    """Answer whether a process can be started in the group that was handed in."""
    child = group.fork()
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
        os.write(answer, READY)
    os._exit(0)


def _leave_the_processor() -> None:
    """Let the keeper run beside its block and not on the block's processor, if there are others.

    A block of many processes could otherwise starve it. In a batch there are blocks on all
    processors, so the keeper may run on any; its blocks have a lower priority.
    """
    with contextlib.suppress(OSError):  # a container may have one processor
        both = OWN["beside"] + (OWN["cpus"] if OWN["batch"] else [])
        os.sched_setaffinity(0, set(both))


def _bring_up_loopback() -> None:
    """Let the processes of this block, and nobody else, reach each other by 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, _SET_FLAGS, struct.pack("16sh14x", b"lo", _IS_UP))
    for name, sizes in _BUFFERS:  # of this network alone
        with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
            file.write(sizes)


def _guard(until: float) -> tuple[int, int]:
    """Start a process that kills the reader at that time, whatever holds the keeper up.

    A block can delay a system call of the keeper. The guard reads the reader's id from the pipe,
    and ends when the pipe is closed.
    """
    told, tell = os.pipe()
    guard = os.fork()
    if guard == 0:
        LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        os.close(tell)
        named = os.read(told, _PROCESS.size)
        if named and not select.select([told], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(_PROCESS.unpack(named)[0], signal.SIGKILL)
        os._exit(0)
    os.close(told)
    return guard, tell


def _kept_tree(
    block: int,
    others: "tuple[tuple[int, int, int], tuple[int, int], Any]",  # Any: a group (process_tree.py)
    heard: "tuple[int, socket.socket]",
    order: Order,
    until: float,
) -> tuple[int, int, bytes, Seen]:
    """Return how an image's block ended, its processor time, its results, and what was seen.

    `heard` is the pipe on which the block says that it is ready, and the socket for its listener.
    """
    (gatherer, guard, group), (hear, passed) = others, heard
    tree = TREE["tree"](
        TREE["listener"](passed, until), {gatherer[0], guard[0]}, order["memory_mb"] << 20,
        group, has_sockets=OWN["batch"],
    )  # fmt: skip
    passed.close()
    os.write(guard[1], _PROCESS.pack(gatherer[0]))
    ended = tree.watch(block, order, until)
    is_cut = ended != DONE
    tree.end()
    if is_cut:
        os.kill(gatherer[0], signal.SIGKILL)  # process 1: with it all others end at once
    os.kill(block, signal.SIGKILL)
    _, status, own = os.wait4(block, 0)
    if not is_cut and os.read(hear, 1) != READY:
        os._exit(1)  # the room was not ready: the host's fault, and no answer of a block's
    if ended == DONE and os.WIFSIGNALED(status):
        ended = BROKEN
    ended, said = _gathered(gatherer, ended, order, until, guard)
    used = own.ru_utime + own.ru_stime
    if ended == DONE:
        (orphans,) = _ORPHANS.unpack_from(said)
        said, used = said[_ORPHANS.size :], used + orphans / 1e6
    used = max(used, tree.used_s)
    if used > order["cpu_s"]:
        ended, said = LATE, b""
    exit_status = 0 if is_cut else os.waitstatus_to_exitcode(status)
    seen = exit_status, max(tree.peak, own.ru_maxrss << 10), max(1, tree.most)
    return ended, int(used * 1e6), said, seen


def _printed_file(order: Order) -> int:
    """Make the file that a block of synthetic rows prints into, in memory of the block's own.

    Nothing is made for real rows: what their block prints goes nowhere. It is a file, because a
    pipe's inode number would reveal the pipes of the whole host.
    """
    if OWN["image"]:
        name = f"{TREE['pipes']}/printed"
    else:
        _furnish(order)
        name = "/work/tmp/printed"
    made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    os.unlink(name)
    return made


def _trial_frame(seen: Seen, printed: int, most: int, observed: bytes) -> bytes:
    """Return what was seen of a block of made-up rows, and the end of what it printed."""
    size = os.fstat(printed).st_size
    text = os.pread(printed, most, max(0, size - most))
    return _TRIAL_HEAD.pack(*seen, len(text), len(observed)) + text + observed


def _kept(block: int, hear: int, order: Order, until: float) -> tuple[int, int, bytes, Seen]:
    """Return how the block ended, its processor time, what it said (capped), and what was seen.

    What was seen goes no further than here, unless the rows are made up.
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
        os._exit(1)  # the room was not ready: the host's fault, and no answer of a block's
    if ended == DONE and os.WIFSIGNALED(status):
        ended = BROKEN  # by its own fault, or by the kernel for want of memory: it has said nothing
    exit_status = 0 if is_cut else os.waitstatus_to_exitcode(status)
    seen_of = exit_status, used.ru_maxrss << 10, 1
    return ended, int(spent * 1e6), said[1:] if ended == DONE else b"", seen_of


def _gathering(order: Order, program: int) -> tuple[int, int, int]:
    """Start who is to read what an image's program leaves, before that program is there.

    The first process of the room, without a right: it waits for a word, and nobody else's.
    """
    _furnish(order)
    TREE["place"](order["files"], order["disk_mb"] if order.get("printed") else 1)
    told, tell = os.pipe()
    hear, say = os.pipe()
    nowhere = os.open("/dev/null", os.O_RDWR)  # here: the block will hide it
    reader = os.fork()
    if reader == 0:
        ended = 1
        try:
            LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            LIBC.prctl(_DUMPABLE, 0, 0, 0, 0)  # the block cannot see its memory and its files
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the block could send
            job, code = json.loads(_all_of(program)), _filter("filter-reader")
            say = _alone(say, told, nowhere, nowhere)
            TREE["orphans"]()
            _give_up_rights(order, code)
            _write_all(say, READY)
            if os.read(INPUT, 1) == READY:
                orphans = _ORPHANS.pack(TREE["end"]())
                _write_all(say, orphans + RUNS["gather"](job, b"") + WHOLE)
                ended = 0
        finally:
            os._exit(ended)
    for descriptor in (told, say, nowhere):
        os.close(descriptor)
    if os.read(hear, 1) != READY:  # the program starts only when its reader is safe from signals
        os._exit(1)
    return reader, tell, hear


def _gathered(
    gatherer: tuple[int, int, int],
    ended: int,
    order: Order,
    until: float,
    guard: "tuple[int, int] | None" = None,
) -> tuple[int, bytes]:
    """Return how it ended, and what the program has left, capped; its process is gone by then.

    A reader that somebody has ended has not said all: that is no answer of the program's.
    """
    reader, tell, hear = gatherer
    said = b""
    if ended == DONE:
        with contextlib.suppress(BrokenPipeError):  # then the reader has not said all
            os.write(tell, READY)
        most = order["most_bytes"] + _ORPHANS.size + len(WHOLE)
        ended, said = _said_by(hear, most, until)
        if ended == DONE and not _is_gone(reader, until):
            ended = STALLED
    os.kill(reader, signal.SIGKILL)
    if guard is not None:
        os.close(guard[1])
        os.waitpid(guard[0], 0)  # before another process can have the reader's id
    _, status = os.waitpid(reader, 0)
    if ended == DONE and (status != 0 or not said.endswith(WHOLE)):
        ended = BROKEN
    return ended, said[: -len(WHOLE)] if ended == DONE else b""


def _is_gone(process: int, until: float) -> bool:
    """Say whether it ends by itself by then."""
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
    """Return the processor seconds that the process has used, by its own clock."""
    found = ctypes.c_int()
    if LIBC.clock_getcpuclockid(process, ctypes.byref(found)) != 0:
        return 0.0
    return time.clock_gettime(found.value)


def _write_all(descriptor: int, message: bytes) -> None:
    view = memoryview(message)
    while view:
        view = view[os.write(descriptor, view) :]


# --- block ----------------------------------------------------------------------------------------


def _as_block(
    order: Order,
    opened: tuple[int, int, int],
    printed: "int | None",
    keeper: "socket.socket | None",
) -> NoReturn:
    """Be a block: read the rows, give up every right, run the stranger's program.

    `printed` is the file that a block of made-up rows prints into; of real rows there is none.
    """
    program, rows, say = opened
    status = 0
    try:
        LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if not OWN["image"] and printed is None:
            _furnish(order)
        nowhere = os.open("/dev/null", os.O_RDWR)
        job = json.loads(_all_of(program))
        if keeper is None:
            _hide_devices()
        else:
            if order["has_group"] and LIBC.unshare(_NEW_GROUPS) != 0:  # /proc shows it as the top
                os._exit(1)
            os.sched_setaffinity(0, set(OWN["cpus"]))
            os.setpgid(0, 0)  # else a signal to its process group would reach the keeper
            with open("/proc/self/oom_score_adj", "w") as line:
                line.write("1000")  # if memory runs out, a block has to end and not its keeper
            if OWN["batch"]:
                os.nice(_LOW_PRIORITY)
            requests = "filter-requests" if printed is None else "filter-trial"
            TREE["pass"](_filter(requests), keeper)
        say = _alone(say, rows, nowhere, nowhere if printed is None else printed)
        _draw_anew()
        tree = "filter-batch" if OWN["batch"] else "filter-tree"
        code = _filter("filter" if keeper is None else tree)
        if OWN["image"]:
            RUNS["enter"]({**job, "batch": OWN["batch"], "memory_mb": order["memory_mb"]}, b"")
        _give_up_rights(order, code)
        os.write(say, READY)  # from here on rows are read, and no room can be made any more
        sys.path[:0] = OWN["own"]
        rows_text = _rows() if job["kind"] in READ_WHOLE else b""
        if OWN["image"]:
            RUNS["lay-out"](job, rows_text)
            RUNS["become"](job, b"")
        found = RUNS[job["kind"]](job, rows_text)
        _write_all(say, found if isinstance(found, bytes) else json.dumps(found).encode())
        status = 0 if printed is None else _exit_status(job.get("left"))
    except BaseException:  # noqa: BLE001  # whatever a stranger's program raises
        status = 0 if printed is None else _shown_failure()
    finally:
        os._exit(status)


def _exit_status(left: object) -> int:
    """Return the exit status that a program asked for (`sys.exit`), as Python's own end has it."""
    is_status = left is None or isinstance(left, int)
    if not is_status:
        sys.stderr.write(f"{left}\n")
    _flush()
    return int(left or 0) & 0xFF if is_status else 1  # type: ignore[call-overload]  # an int


def _shown_failure() -> int:
    """Print the error that ended a program on made-up rows, from its own first line on."""
    kind, error, place = sys.exc_info()
    while place is not None and not place.tb_frame.f_code.co_filename.startswith(_PROGRAMS):
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
    """Give the block a small empty folder of its own in memory."""
    room = f"size={order['disk_mb']}m,nr_inodes={order['files']},mode=700".encode()
    how = _NOSUID_NODEV if OWN["image"] else _NOSUID_NODEV_NOEXEC
    if LIBC.mount(b"tmpfs", b"/work", b"tmpfs", how, room) != 0:
        os._exit(1)
    for name in ("in", "out", "tmp"):
        os.mkdir(f"/work/{name}")
    os.chdir("/work")


def _alone(say: int, rows: int, nowhere: int, printed: int) -> int:
    """Keep the one pipe and, till they are read, the rows: nothing else, no name of a setting.

    What is printed goes to `printed`: nowhere, unless the rows are made up.
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
    """Cover /dev: its nodes are the host's own, and what is done to them every block would see."""
    how = _READ_ONLY | _NOSUID_NODEV_NOEXEC
    if LIBC.mount(b"tmpfs", b"/dev", b"tmpfs", how, b"size=4k,nr_inodes=1,mode=555") != 0:
        os._exit(1)


def _draw_anew() -> None:
    """Give the block random numbers of its own: those of the zygote would name its lane."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()  # by the kernel


def _filter(name: str) -> bytes:
    with open(f"/env/inside/{name}", "rb") as file:
        return file.read()


def _give_up_rights(order: Order, code: bytes) -> None:
    limits = {
        # of each process; of a tree the keeper adds up what is used, and runtimes reserve far more
        resource.RLIMIT_AS: (order["memory_mb"] << 20) + (_RESERVED if OWN["image"] else 0),
        resource.RLIMIT_CPU: int(order["cpu_s"]) + 2,
        resource.RLIMIT_FSIZE: order["disk_mb"] << 20,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: order["processes"] if OWN["image"] else _MOST_THREADS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
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


TREE: dict[str, Any] = {}  # Any: what process_tree.py defines
OWN: dict[str, Any] = {}  # Any: JSON of the launcher's; what the program has brought along
READ_WHOLE = ("function", "program", "bids")  # before the program runs; else as it is laid out
RUNS: dict[str, Callable[[Job, bytes], Any]] = {}  # Any: bytes, or files

if __name__ == "__main__":
    main()
