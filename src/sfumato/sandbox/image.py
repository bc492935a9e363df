"""How a block becomes an image's own program; copied into the bubble, so it imports none of ours.

The image's files lie in the bubble's memory, read-only. A block makes them the whole of what it
sees, beside the one small folder that it may write to, gives up every right, and is that program:
one process, as any block, under the list of calls. What it leaves is read by another (inside.py).
"""

import ctypes
import os
from typing import Any, NoReturn

Job = dict[str, Any]  # Any: JSON, as a researcher gave it
ROOT, WORK, TEMPORARY = "/env/own", "/work", "/work/tmp"
PROGRAM, SOURCE, TARGET = "/work/tmp/program.py", "/work/in", "/work/out"
VOICE = 3
_NEW_MOUNTS = 0x00020000
_BIND, _BELOW_TOO, _REMOUNT, _READ_ONLY, _NOSUID_NODEV = 4096, 16384, 32, 1, 2 | 4
_LET_GO = 2  # MNT_DETACH
_PIVOT_ROOT = 155  # the system call's number, on x86-64
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIBC = ctypes.CDLL(None, use_errno=True)


def _enter(_job: Job, _text: bytes) -> None:
    """Make the image all that this block sees; nothing of it can be written to."""
    _sure(LIBC.unshare(_NEW_MOUNTS))
    _bind(ROOT, ROOT)
    read_only = _REMOUNT | _BIND | _READ_ONLY | _NOSUID_NODEV
    _sure(LIBC.mount(None, ROOT.encode(), None, read_only, None))
    for place in (WORK, "/dev"):
        _bind(place, ROOT + place)
    os.chdir(ROOT)
    _sure(LIBC.syscall(_PIVOT_ROOT, b".", b"."))
    _sure(LIBC.umount2(b".", _LET_GO))
    os.chdir(WORK)


def _bind(place: str, to: str) -> None:
    _sure(LIBC.mount(place.encode(), to.encode(), None, _BIND | _BELOW_TOO, None))


def _sure(done: int) -> None:
    if done != 0:
        os._exit(1)


def _become(job: Job, _text: bytes) -> NoReturn:
    """Be the program: the one that was handed in, by the image's Python, or else the image's."""
    os.close(VOICE)
    level = job.get("level", "group")
    ours = ["python3", PROGRAM] if job["source"] else job["entry"]
    command = [*job["through"], *ours, SOURCE, TARGET, level]
    settings = dict(one.split("=", 1) for one in job["settings"])
    found = _found(command[0], settings.get("PATH", _PATH))
    os.execve(found, [found, *command[1:]], {**settings, **_OURS})  # noqa: S606  # the image's own


def _found(name: str, path: str) -> str:
    """Return the file of a command; the first on the path, as a shell finds it."""
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in path.split(":")]
    return next((place for place in places if os.access(place, os.X_OK)), places[0])


_OURS = {
    "HOME": TEMPORARY, "TMPDIR": TEMPORARY, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
RUNS = {"enter": _enter, "become": _become}
