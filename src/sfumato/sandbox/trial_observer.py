"""Observe the commands and the files of a trial's program; copied into the sandbox.

It imports none of our modules, because the sandbox has none (inside.py). Only the keeper of a block
of synthetic rows loads it. The block's filter passes each execve to the keeper (seccomp.py), so no
command is too short to be seen. All that is read here is untrusted, and cut to a fixed size.
"""

import ctypes
import heapq
import json
import os
import stat
import struct
from collections.abc import Iterator
from typing import Any

TARGET = "/work/out"
MOST, LONGEST = 50, 300  # listed commands and files, and bytes of each
_LONGEST_PATH = 4096
_END_OF_MEMORY = 1 << 56  # more than any process can use
_OPENAT2, _IN_ROOT = 437, 0x10  # the system call's number, and RESOLVE_IN_ROOT
_NO_FILE, _NO_FOLDER = 2, 20  # ENOENT, ENOTDIR
_POINTER = struct.Struct("<Q")
_KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}  # fmt: skip
LIBC = ctypes.CDLL(None, use_errno=True)
Command = tuple[tuple[bytes, ...], bool]  # its arguments, and True if more of them are left out
File = tuple[bytes, str, int]  # path below the output folder, kind, size in bytes


class Observer:
    """What is seen of one trial block: its commands so far, and its files at the end."""

    def __init__(self, job: dict[str, Any]) -> None:  # Any: JSON, as a researcher gave it
        """Observe the block of a job, whose declared result files are listed first."""
        self._declared = {os.fsencode(path) for path in job.get("paths", ())}
        self._times: dict[Command, int] = {}  # in the order in which they first ran
        self._unlisted = 0

    def command(self, process: int, path_at: int, arguments_at: int) -> "Command | None":
        """Return the command that a process is about to become, from its memory.

        It is None if its file is not there: then a library tries the next folder of its path.
        """
        try:
            memory = os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:  # a program file without read permission
            return (), True
        try:
            if _is_missing(process, _text(memory, path_at, _LONGEST_PATH)):
                return None
            return _arguments(memory, arguments_at)
        finally:
            os.close(memory)

    def add(self, command: "Command | None") -> None:
        """Count a run of the command."""
        if command is None:
            return
        is_listed = command in self._times or len(self._times) < MOST
        if command[0] and is_listed:
            self._times[command] = self._times.get(command, 0) + 1
        else:
            self._unlisted += 1

    def seen(self) -> bytes:
        """Return as JSON what was seen, when no process of the block is left."""
        count = 0

        def counted() -> Iterator[File]:
            nonlocal count
            for one in _files(self._declared):
                count += 1
                yield one

        found = heapq.nsmallest(MOST, counted(), key=self._order)
        said = {
            "commands": [
                {"arguments": [_decoded(one) for one in parts], "is_cut": is_cut, "times": times}
                for (parts, is_cut), times in self._times.items()
            ],
            "more_commands": self._unlisted,
            "files": [self._file(*one) for one in found],
            "more_files": count - len(found),
        }
        return json.dumps(said).encode()

    def _order(self, file: File) -> tuple[bool, bytes]:
        return file[0] not in self._declared, file[0]

    def _file(self, path: bytes, kind: str, size: int) -> dict[str, object]:
        said = {"path": _decoded(path[:LONGEST]), "is_cut": len(path) > LONGEST}
        return {**said, "kind": kind, "size": size}


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


# --- commands -------------------------------------------------------------------------------------


def _arguments(memory: int, place: int) -> Command:
    """Return the arguments in a process's memory, as far as they are listed."""
    found: list[bytes] = []
    left = LONGEST
    pointers = _read(memory, place, (LONGEST + 1) * _POINTER.size)
    for (one,) in _POINTER.iter_unpack(pointers[: len(pointers) // _POINTER.size * _POINTER.size]):
        if one == 0:
            return tuple(found), False
        text = _text(memory, one, left + 1) if left > 0 else b""
        if left <= 0 or len(text) > left:
            break
        found.append(text)
        left -= len(text) + 1
    else:
        return tuple(found), True
    return (*found, text[:left]) if left > 0 else tuple(found), True


def _text(memory: int, place: int, most: int) -> bytes:
    return _read(memory, place, most).partition(b"\0")[0]


def _read(memory: int, place: int, most: int) -> bytes:
    return os.pread(memory, most, place) if 0 < place < _END_OF_MEMORY else b""


def _is_missing(process: int, path: bytes) -> bool:
    """Return True if the process sees no file at an absolute path."""
    if not path.startswith(b"/"):
        return False
    root = os.open(f"/proc/{process}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        how = struct.pack("<3Q", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT)  # struct open_how
        size = ctypes.c_size_t(len(how))
        name = ctypes.c_char_p(path)
        found = LIBC.syscall(_OPENAT2, root, name, ctypes.c_char_p(how), size)
        failed = ctypes.get_errno()
    finally:
        os.close(root)
    if found >= 0:
        os.close(found)
        return False
    return failed in (_NO_FILE, _NO_FOLDER)


# --- files ----------------------------------------------------------------------------------------


def _files(declared: set[bytes]) -> Iterator[File]:
    """Yield all that a program left in its output folder; no link is followed.

    A folder is only yielded if it is declared as a result, or cannot be read.
    """
    top = os.fsencode(TARGET)
    found = os.lstat(top) if os.path.lexists(top) else None
    if found is not None and not stat.S_ISDIR(found.st_mode):
        yield _entry(b".", found)
        return
    left = [] if found is None else [b""]
    while left:
        folder = left.pop()
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                for one in entries:
                    path, state = os.path.join(folder, one.name), one.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(state.st_mode) or path in declared:
                        yield _entry(path, state)
                    if stat.S_ISDIR(state.st_mode):
                        left.append(path)
        except OSError:  # without read permission, or too deep
            yield folder or b".", "folder", 0


def _entry(path: bytes, state: os.stat_result) -> File:
    return path, _KINDS.get(stat.S_IFMT(state.st_mode), "device"), state.st_size


TRIAL: dict[str, Any] = {"observer": Observer}  # Any: as it is declared above
