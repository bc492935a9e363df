"""Give each block of a process tree a control group of its own (cgroup v2), where there is one.

The kernel adds up the processor time of a group, also of processes that nobody waits for, and ends
all of its processes at once. What a group is used for, and what not, and why:
docs/decisions/0016-sandbox.md.

    home/                        our own group, or the delegated one above it
      sfumato-sandbox-XXXXXXXX/  one sandbox; its lock ends with our process
        warm/                    the sandbox's launcher, zygote, keepers and readers
        block/                   the processes of one block; made anew for each block

A sandbox has no /sys. We open the files of a block's group, and the keeper uses them there. It
closes them in the block before the program begins (inside.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sfumato.sandbox.locked_folders import locked, new_locked
from sfumato.sandbox.ports import SandboxLimits

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_PREFIX: Final = "sfumato-sandbox-"
_OWN_NAME: Final = re.compile(rf"{_PREFIX}\w{{8}}")  # systemd's names end with a kind, as .service
_CONTROLLERS: Final = ("memory", "pids")
_DELEGATED: Final = ("user.delegate", "trusted.delegate")  # how systemd marks a delegated group
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_END_S: Final = 20.0  # the longest time that the end of a group's processes may take
_POLL_S: Final = 0.05
_KERNEL_MB: Final = 256  # memory of the kernel that a block may use in any case
_LATE_KEEPER_MB: Final = 1024  # what a block may take while its keeper is held up


@dataclass(frozen=True)
class GroupHome:
    """A control group in which this process may make others, and what limits they have."""

    place: Path
    controllers: frozenset[str]  # of `memory` and `pids`


def wall_mb(limits: SandboxLimits) -> int:
    """Return how much memory the whole group of a block may use before its keeper ends the block.

    It is far above the limit of the block. A group also counts what others could use later, such as
    the cache of a file that it was the first to read. So a close limit would let one block move
    another.
    """
    return 2 * (limits.memory_mb + limits.disk_mb) + _KERNEL_MB


def find_home(mounts: Path = _MOUNTS, own: Path = _OWN_GROUPS) -> GroupHome | None:
    """Return where this process may make control groups, or None; it makes one there to be sure."""
    for place in _candidates(_text(mounts), _text(own)):
        with contextlib.suppress(OSError):
            groups = SandboxGroups(place, None)
            try:
                with groups.block(SandboxLimits()):
                    found = frozenset(
                        name for name, file in (("memory", "memory.max"), ("pids", "pids.max"))
                        if (groups.place / "block" / file).exists()
                    )  # fmt: skip
                return GroupHome(place, found)
            finally:
                groups.close()
    return None


class SandboxGroups:
    """The control groups of one sandbox: one of the sandbox itself, and one of its block."""

    def __init__(self, home: Path, uid: int | None) -> None:
        """Make the groups below `home`; a sandbox with another uid may start blocks in them.

        Leftovers of killed processes are removed first. Any failure raises `OSError`.
        """
        remove_leftovers(home)
        for name in _CONTROLLERS if _is_delegated(home) else ():
            _enable(home, name)
        made = new_locked(home, _PREFIX)
        self.place, self._lock, self._uid = made.place, made.lock, uid
        try:
            for name in _CONTROLLERS:
                _enable(self.place, name)
            self._hand_over(self.place)
            os.mkdir(self.place / "warm", 0o700)
        except OSError:
            self.close()
            raise

    def entry(self) -> int:
        """Return a new descriptor: a process that writes 0 to it enters the sandbox's group."""
        return os.open(self.place / "warm" / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    @contextmanager
    def block(self, limits: SandboxLimits) -> Iterator[tuple[int, ...]]:
        """Yield the opened files of a new group for one block; end and remove the group afterwards.

        They are: the folder, in which a process can be started, the processor time, the file that
        ends all processes, and the memory that is used, if the group has that.
        """
        place = self.place / "block"
        _remove(place)
        os.mkdir(place, 0o700)
        opened: list[int] = []
        try:
            _set_limits(place, limits)
            self._hand_over(place)
            opened.append(os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            opened.append(os.open(place / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC))
            opened.append(os.open(place / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC))
            with contextlib.suppress(FileNotFoundError):
                opened.append(os.open(place / "memory.current", os.O_RDONLY | os.O_CLOEXEC))
            yield tuple(opened)
        finally:
            for one in opened:
                os.close(one)
            _remove(place)

    def close(self) -> None:
        """End all processes of the sandbox, and remove its groups.

        What cannot be removed is left to the next start (`remove_leftovers`).
        """
        with contextlib.suppress(OSError):
            _remove(self.place)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _hand_over(self, group: Path) -> None:
        """Let the sandbox's uid start processes in a group; its folders stay closed to others."""
        if self._uid is not None:
            os.chown(group / "cgroup.procs", self._uid, self._uid)


def remove_leftovers(home: Path) -> None:
    """End and remove the groups of processes of ours that were killed."""
    for place in filter(lambda found: _OWN_NAME.fullmatch(found.name), home.iterdir()):
        with contextlib.suppress(OSError):
            lock = locked(place)
            try:
                _remove(place)
            finally:
                os.close(lock)


# --- where groups can be made ---------------------------------------------------------------------


def _candidates(mounts: str, own: str) -> list[Path]:
    """Return the groups in which we may make others: a delegated one above ours, and ours."""
    found = []
    inside = [line[3:] for line in own.splitlines() if line.startswith("0::")]
    for line in mounts.splitlines() if inside else ():
        shown, _, source = line.partition(" - ")
        if source.split(" ", 1)[0] != "cgroup2":
            continue
        root, mounted = (_unescaped(part) for part in shown.split(" ")[3:5])
        with contextlib.suppress(ValueError):
            below = PurePosixPath(inside[0]).relative_to(root)
            if ".." not in below.parts:
                place = Path(mounted, below)
                is_below = below.parts and _is_delegated(place.parent)
                found += [place.parent, place] if is_below else [place]
    return found


def _is_delegated(place: Path) -> bool:
    """Return True if systemd has left a group to us (`Delegate=` and `DelegateSubgroup=`)."""
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(place, name) == b"1":
                return True
    return False


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _text(place: Path) -> str:
    try:
        return place.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


# --- one group ------------------------------------------------------------------------------------


def _enable(group: Path, controller: str) -> None:
    """Give the groups below this one a controller, if it has that one itself."""
    with contextlib.suppress(OSError):
        if controller in _text(group / "cgroup.controllers").split():
            _write(group / "cgroup.subtree_control", f"+{controller}")


def _set_limits(group: Path, limits: SandboxLimits) -> None:
    """Set the outer limits of a block, where the kernel offers them.

    The keeper ends a block that reaches `wall_mb`. The kernel does so only if the keeper is held
    up.
    """
    memory = (wall_mb(limits) + _LATE_KEEPER_MB) << 20
    wanted = {
        "pids.max": limits.processes,
        "memory.max": memory,
        "memory.swap.max": 0,
        "memory.oom.group": 1,  # the whole block, never a part of it
    }
    for name, value in wanted.items():
        with contextlib.suppress(FileNotFoundError):
            _write(group / name, str(value))


def _write(file: Path, text: str) -> None:
    """Write to a file of the kernel, which is never created."""
    opened = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)


def _remove(group: Path) -> None:
    """End every process in a group and below it, and remove the group; it may be gone already."""
    until = time.monotonic() + _END_S
    with contextlib.suppress(FileNotFoundError):
        events = os.open(group / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while not _is_removed(group):
                if time.monotonic() > until:
                    raise TimeoutError
                _wait_for_change(events)
        finally:
            os.close(events)


def _is_removed(group: Path) -> bool:
    """Try to remove a group and those below it; the kernel refuses while a process is there."""
    _write(group / "cgroup.kill", "1")
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError as failed:
        if failed.errno != errno.EBUSY:
            raise
        return False
    return True


def _wait_for_change(events: int) -> None:
    poll = select.poll()
    poll.register(events, select.POLLPRI)
    os.pread(events, 256, 0)
    poll.poll(_POLL_S * 1000)
