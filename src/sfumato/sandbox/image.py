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
FOLDER = "/work/tmp/program"  # of a program of several files
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
_OF_PROCESSES = ("self", "thread-self", "mounts", "net")  # of /proc: links to a process's own
# what a batch's block sees of the machine: the same text for all, because the real files count what
# every program on the machine has done, also blocks of isolated runs
_OF_THE_MACHINE = {
    "stat": (
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime 0\n"
        "processes 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"
    ),
    "meminfo": (
        "MemTotal: {kb} kB\nMemFree: {kb} kB\nMemAvailable: {kb} kB\nBuffers: 0 kB\n"
        "Cached: 0 kB\nSwapCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nSwapTotal: 0 kB\n"
        "SwapFree: 0 kB\nShmem: 0 kB\nSlab: 0 kB\nHugePages_Total: 0\nHugepagesize: 2048 kB\n"
    ),
    "cpuinfo": "{cpuinfo}", "version": "{version}", "loadavg": "0.00 0.00 0.00 1/1 1\n",
    "uptime": "1.00 1.00\n", "vmstat": "pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n",
    "filesystems": "nodev\tproc\nnodev\ttmpfs\n", "cmdline": "\n", "swaps": "Filename\n",
    "diskstats": "", "partitions": "", "devices": "",
}  # fmt: skip
_SETTINGS_OF_THE_MACHINE = {
    "kernel/ostype": "Linux", "kernel/osrelease": "{release}", "kernel/pid_max": "4194304",
    "kernel/threads-max": "4096", "kernel/cap_last_cap": "40", "kernel/ngroups_max": "65536",
    "vm/overcommit_memory": "0", "vm/max_map_count": "65530", "net/core/somaxconn": "4096",
}  # fmt: skip
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
        _show_processes(job)
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


def _show_processes(job: Job) -> None:
    """Mount the /proc of the block's own processes, read-only, and cover all else in it."""
    shown, texts = f"{ROOT}/proc", f"{WORK}/texts"
    if not os.path.isdir(shown) or os.path.islink(shown):
        return
    how = _NOSUID_NODEV | _NOEXEC
    os.mkdir(texts)
    _sure(LIBC.mount(b"tmpfs", texts.encode(), b"tmpfs", how, b"size=256k,nr_inodes=64"))
    _write_texts(job, texts)
    _sure(LIBC.mount(None, texts.encode(), None, _REMOUNT | _READ_ONLY | how, None))
    _sure(LIBC.mount(b"proc", shown.encode(), b"proc", how | _READ_ONLY, None))
    for name in os.listdir(shown):
        if name.isdigit() or name in _OF_PROCESSES:
            continue
        is_folder = os.path.isdir(f"{shown}/{name}") and not os.path.islink(f"{shown}/{name}")
        text = f"{texts}/{name}"
        nothing = f"{texts}/none" if is_folder else f"{ROOT}/dev/null"
        _bind(text if os.path.exists(text) else nothing, f"{shown}/{name}")
    _sure(LIBC.umount2(texts.encode(), _LET_GO))
    os.rmdir(texts)


def _write_texts(job: Job, place: str) -> None:
    """Write the files of /proc that a block of a batch sees of the machine."""
    with open("/proc/cpuinfo") as file:  # one processor, without what changes
        lines = file.read().partition("\n\n")[0].splitlines(keepends=True)
    with open("/proc/version") as file:
        version = file.read()
    said = {
        "kb": job["memory_mb"] << 10, "version": version, "release": os.uname().release,
        "cpuinfo": "".join(line for line in lines if "MHz" not in line) + "\n",
    }  # fmt: skip
    os.mkdir(f"{place}/none")
    for name, text in _OF_THE_MACHINE.items():
        with open(f"{place}/{name}", "w") as file:
            file.write(text.format(**said))
    for name, text in _SETTINGS_OF_THE_MACHINE.items():
        os.makedirs(os.path.dirname(f"{place}/sys/{name}"), exist_ok=True)
        with open(f"{place}/sys/{name}", "w") as file:
            file.write(text.format(**said) + "\n")


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
    if "main" in job:
        os.chdir(FOLDER)
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
    place = f"{FOLDER}/{job['main']}" if "main" in job else PROGRAM
    first = job["source"].partition("\n")[0]
    interpreter = first[2:].split() if first.startswith("#!") else []
    if not interpreter:
        return ["python3", place]
    if os.access(interpreter[0], os.X_OK):
        return [place]
    return ["python3", place] if "python" in first else [interpreter[0], place]


def _found(name: str, path: str) -> str:
    """Return the file of a command; the first on the path, as a shell finds it."""
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in path.split(":")]
    return next((place for place in places if os.access(place, os.X_OK)), places[0])


_OURS = {
    "TMPDIR": TEMPORARY, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
RUNS = {"enter": _enter, "become": _become}
