"""How a block becomes an image's own program; copied into the sandbox, so it imports none of ours.

The image's files are in the sandbox's memory, read-only. A block sees these files, a small folder
that it may write to, and a few devices. It drops all privileges and executes the program, which may
start others (process_tree.py). Another process reads the results (inside.py).

Only in a batch does a block have a /proc, of its own processes. Its file numbers, page flags and
counters tell what other blocks did on this machine.
"""

import ctypes
import os
import shutil
import signal
import stat
from typing import Any, NoReturn

Job = dict[str, Any]  # Any: JSON, as a researcher gave it
ROOT, WORK, TEMPORARY = "/env/own", "/work", "/work/tmp"
HOME = f"{WORK}/home"
PROGRAM, SOURCE, TARGET = "/work/tmp/program.py", "/work/in", "/work/out"
VOICE = 3
_NEW_MOUNTS = 0x00020000
_BIND, _BELOW_TOO, _REMOUNT, _READ_ONLY, _NOSUID_NODEV = 4096, 16384, 32, 1, 2 | 4
_NOSUID, _NOEXEC = 2, 8
_DEVICES = (
    ("null", "/dev/null"), ("random", "/dev/urandom"), ("urandom", "/dev/urandom"),
)  # fmt: skip
_WRITABLE = (
    (TEMPORARY, "/tmp"), (TEMPORARY, "/var/tmp"), (f"{TEMPORARY}/run", "/run"),  # noqa: S108  # the block's
)  # fmt: skip
_HIDDEN = (  # of /proc: the machine's devices, keys, messages and memory
    "acpi", "asound", "bus", "fs", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg",
    "latency_stats", "sched_debug", "scsi", "sysrq-trigger", "timer_list", "timer_stats",
)  # fmt: skip
_LET_GO = 2  # MNT_DETACH
_NOT_FOUND = 127  # a shell's exit status for a command that is not there
_MOST_FILES, _MOST_BYTES = 200, 1 << 20  # of a home folder that a block gets as its own
_PIVOT_ROOT = 155  # the system call's number, on x86-64
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIBC = ctypes.CDLL(None, use_errno=True)


def _enter(job: Job, _text: bytes) -> None:
    """Make the image, read-only, the root of this block."""
    _sure(LIBC.unshare(_NEW_MOUNTS))
    _bind(ROOT, ROOT)
    read_only = _REMOUNT | _BIND | _READ_ONLY | _NOSUID_NODEV
    _sure(LIBC.mount(None, ROOT.encode(), None, read_only, None))
    _bind(WORK, ROOT + WORK)
    for place in (f"{WORK}/shm", f"{TEMPORARY}/run"):
        os.mkdir(place)
    for place, shown in _WRITABLE:
        if os.path.isdir(ROOT + shown) and not os.path.islink(ROOT + shown):
            _bind(place, ROOT + shown)
    _show_devices()
    if job["batch"]:
        _show_processes()
    os.chdir(ROOT)
    _sure(LIBC.syscall(_PIVOT_ROOT, b".", b"."))
    _sure(LIBC.umount2(b".", _LET_GO))
    os.chdir(WORK)
    home = _home(job)
    if _is_small(home):
        shutil.copytree(home, HOME, symlinks=True)
        for folder, _, names in os.walk(HOME):
            for place in (folder, *(f"{folder}/{name}" for name in names)):
                if not os.path.islink(place):
                    os.chmod(place, os.stat(place).st_mode | stat.S_IWUSR)
        _bind(HOME, home)


def _home(job: Job) -> str:
    """Return the home folder that the image names, if it has it, or else the block's own folder."""
    settings = dict(one.split("=", 1) for one in job["settings"])
    named: str = settings.get("HOME", "")
    return named if named.startswith("/") and os.path.isdir(named) else TEMPORARY


def _is_small(home: str) -> bool:
    """Return True if a folder of the image is small: then a block gets a copy, to write into.

    The folders that a block may write to anyway, the root and folders of devices are not copied.
    """
    if os.access(home, os.W_OK) or os.path.realpath(home) == "/":
        return False
    files = size = 0
    for folder, below, names in os.walk(home):
        found = [os.lstat(f"{folder}/{name}") for name in names]
        files += len(below) + len(names)
        size += sum(one.st_size for one in found)
        is_plain = all(stat.S_ISREG(one.st_mode) or stat.S_ISLNK(one.st_mode) for one in found)
        if not is_plain or files > _MOST_FILES or size > _MOST_BYTES:
            return False
    return True


def _show_devices() -> None:
    """Make a folder of devices; nobody can change their times, which every block would see."""
    room = b"size=4k,nr_inodes=16,mode=755"
    _sure(LIBC.mount(b"tmpfs", f"{ROOT}/dev".encode(), b"tmpfs", _NOSUID, room))
    shared = f"{ROOT}/dev/shm"  # noqa: S108  # the block's
    os.mkdir(shared)
    for name, source in _DEVICES:
        shown = f"{ROOT}/dev/{name}"
        with open(shown, "w"):
            pass
        _sure(LIBC.mount(source.encode(), shown.encode(), None, _BIND, None))
        kept = os.statvfs(source).f_flag & (2 | 4 | 8)  # the host's NOSUID, NODEV and NOEXEC
        how = _REMOUNT | _BIND | _READ_ONLY | _NOSUID | kept
        _sure(LIBC.mount(None, shown.encode(), None, how, None))
    _bind(f"{WORK}/shm", shared)
    _sure(LIBC.mount(None, f"{ROOT}/dev".encode(), None, _REMOUNT | _READ_ONLY | _NOSUID, room))


def _show_processes() -> None:
    """Mount the /proc of the block's own processes, read-only, with what containers hide."""
    shown = f"{ROOT}/proc"
    if not os.path.isdir(shown) or os.path.islink(shown):
        return
    how = _NOSUID_NODEV | _NOEXEC | _READ_ONLY
    _sure(LIBC.mount(b"proc", shown.encode(), b"proc", how, None))
    for name in _HIDDEN:
        hidden = f"{shown}/{name}"
        if os.path.isdir(hidden):
            _sure(LIBC.mount(b"tmpfs", hidden.encode(), b"tmpfs", how, b"size=4k,nr_inodes=1"))
        elif os.path.exists(hidden):
            _bind(f"{ROOT}/dev/null", hidden)


def _bind(place: str, to: str) -> None:
    _sure(LIBC.mount(place.encode(), to.encode(), None, _BIND | _BELOW_TOO, None))


def _sure(done: int) -> None:
    if done != 0:
        os._exit(1)


def _become(job: Job, _text: bytes) -> NoReturn:
    """Execute the submitted program, or else the image's own."""
    os.close(VOICE)
    level = job.get("level", "group")
    command = [*job["through"], *_program(job), SOURCE, TARGET, level]
    settings = dict(one.split("=", 1) for one in job["settings"])
    # Python ignores these signals, which no program expects
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    if os.path.isdir(job.get("folder", "")):
        os.chdir(job["folder"])
    found = _found(command[0], settings.get("PATH", _PATH))
    if not os.access(found, os.X_OK):
        os.write(2, f"{command[0]}: not found\n".encode())  # as a shell says it; shown of trials
        os._exit(_NOT_FOUND)
    ours = {**_OURS, "HOME": _home(job)}
    usual = {"PATH": _PATH, "XDG_CACHE_HOME": f"{TEMPORARY}/.cache"}
    settings = {**usual, **settings, **ours}
    os.execve(found, [found, *command[1:]], settings)  # noqa: S606  # the image's own


def _program(job: Job) -> list[str]:
    """Return the command of the program: the one that was handed in, or else the image's own.

    A program that was handed in is run by the interpreter that its first line names (`#!`). Without
    such a line, or for a Python that is elsewhere in the image, it is the `python3` of the image.
    """
    if not job["source"]:
        return list(job["entry"])
    first = job["source"].partition("\n")[0]
    interpreter = first[2:].split() if first.startswith("#!") else []
    if not interpreter:
        return ["python3", PROGRAM]
    if os.access(interpreter[0], os.X_OK):
        return [PROGRAM]
    return ["python3", PROGRAM] if "python" in first else [interpreter[0], PROGRAM]


def _found(name: str, path: str) -> str:
    """Return the file of a command; the first on the path, as a shell finds it."""
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in path.split(":")]
    return next((place for place in places if os.access(place, os.X_OK)), places[0])


_OURS = {
    "TMPDIR": TEMPORARY, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
RUNS = {"enter": _enter, "become": _become}
