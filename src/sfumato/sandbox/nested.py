"""How the first process of a container makes a bubble of it; it runs there, and imports no file.

It calls us by our socket, takes namespaces of its own, carries the environment into memory, makes
that memory all that there is, and keeps one right over its own namespaces: what bubblewrap does.
From then on no block sees the container's /proc, /sys, root and network.
"""

import ctypes
import json
import os
import shutil
import socket
import struct
import sys
from typing import NoReturn

CONTROL = 9  # the descriptor that the bubble keeps
_UID = 1000  # as who a program sees itself
_OF_ITS_OWN = 0x10000000 | 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
_NOSUID_NODEV, _BIND, _BELOW_TOO, _ALL_PRIVATE, _LET_GO = 2 | 4, 4096, 16384, 0x4000 | 0x40000, 2
_PIVOT_ROOT, _CAPSET = 155, 126  # the system calls' numbers, on x86-64
_BOUNDING_DROP, _AMBIENT, _RAISE, _SYS_ADMIN, _LAST_RIGHT = 24, 47, 2, 21, 63
_DEVICES = ("/dev/null", "/dev/urandom")
_SETTINGS = {
    "LD_LIBRARY_PATH": "/env/libs:/env/own/libs", "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    "LC_ALL": "C.UTF-8",
}  # fmt: skip
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Make the bubble, and become its zygote."""
    then = json.loads(sys.argv[1])
    _call_us()
    _take_namespaces()
    _carry_in(is_image=json.loads(then[-1])["image"])
    _leave_the_container()
    _keep_one_right()
    os.execve(then[0], then, _SETTINGS)  # noqa: S606  # the interpreter of the copy


def _call_us() -> None:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect("/control")
    os.dup2(control.detach(), CONTROL)
    nowhere = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    for kept in range(3, 256):
        if kept != CONTROL:
            _let_go(kept)


def _let_go(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return


def _take_namespaces() -> None:
    """Take every kind but processes, of which the container has one; be nobody's root there."""
    outside = os.getuid(), os.getgid()
    _sure(LIBC.unshare(_OF_ITS_OWN))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_UID} {outside[0]} 1"),
        ("gid_map", f"{_UID} {outside[1]} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    socket.sethostname("bubble")
    _sure(LIBC.mount(b"none", b"/", None, _ALL_PRIVATE, None))


def _carry_in(*, is_image: bool) -> None:
    """Copy the environment into memory, which is to be the root.

    For an image, the keepers measure processes in the container's /proc. No block sees it.
    """
    _sure(LIBC.mount(b"tmpfs", b"/env", b"tmpfs", _NOSUID_NODEV, b"mode=755"))
    shutil.copytree("/from", "/env/env", symlinks=True)
    if os.path.isdir("/own") and os.listdir("/own"):
        shutil.copytree("/own", "/env/env/own", symlinks=True)
    os.symlink("env/libs", "/env/lib64")
    for place in ("/env/work", "/env/dev", "/env/from"):
        os.mkdir(place)
    if is_image:
        os.mkdir("/env/proc")
        _sure(LIBC.mount(b"/proc", b"/env/proc", None, _BIND | _BELOW_TOO, None))
    for device in _DEVICES:
        with open(f"/env{device}", "w"):
            pass
        _sure(LIBC.mount(device.encode(), f"/env{device}".encode(), None, _BIND, None))


def _leave_the_container() -> None:
    os.chdir("/env")
    _sure(LIBC.syscall(_PIVOT_ROOT, b".", b"."))
    _sure(LIBC.umount2(b".", _LET_GO))
    os.chdir("/")


def _keep_one_right() -> None:
    """Keep the right to make rooms for blocks, which each block gives up; no other comes back."""
    for right in range(_LAST_RIGHT + 1):
        if right != _SYS_ADMIN:
            LIBC.prctl(_BOUNDING_DROP, right, 0, 0, 0)
    one = 1 << _SYS_ADMIN
    header = struct.pack("Ii", 0x20080522, 0)
    _sure(LIBC.syscall(_CAPSET, header, struct.pack("6I", one, one, one, 0, 0, 0)))
    _sure(LIBC.prctl(_AMBIENT, _RAISE, _SYS_ADMIN, 0, 0))


def _sure(done: int) -> None:
    if done != 0:
        os._exit(1)


if __name__ == "__main__":
    main()
