"""Find this machine's resources for blocks, and kernel limits that blocks would share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOR_BLOCKS: Final = 0.75  # largest share of the machine's memory that all blocks together may use
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_OVERCOMMIT: Final = Path("/proc/sys/vm/overcommit_memory")
_STRICT: Final = "2"  # strict overcommit: the mappings of one block can make those of another fail
_NUMBERS_APART: Final = (5, 9)  # first Linux in which each tmpfs has its own inode numbers
_COUNTS_APART: Final = (5, 14)  # first Linux with separate thread and signal limits per namespace


def memory_mb(groups: Path = _GROUPS, own: Path = _OWN_GROUPS) -> int:
    """Return the memory in MB that this process may use: the machine's, or its control group's."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, own)]) >> 20


def _limits(groups: Path, own: Path) -> list[int]:
    """Return the memory limits of this process's control groups (cgroup v1 and v2)."""
    found = []
    for line in _read(own).splitlines():
        _, kinds, place = line.split(":", 2)
        if kinds == "" or "memory" in kinds.split(","):
            top = groups if kinds == "" else groups / "memory"
            parts = [part for part in place.split("/") if part not in ("", "..")]
            for depth in range(len(parts) + 1):
                folder = top.joinpath(*parts[:depth])
                for name in ("memory.max", "memory.limit_in_bytes"):
                    found.append(_read(folder / name).strip())
    return [int(text) for text in found if text.isdigit()]


def is_too_old(release: str) -> bool:
    """Return True if the kernel is too old to keep the file numbers of blocks apart.

    It then numbers the tmpfs files of all blocks in one sequence. A block could see from its first
    inode number how many files another block has created.
    """
    return _version(release) < _NUMBERS_APART


def one_by_one(release: str, overcommit: Path = _OVERCOMMIT) -> bool:
    """Return True if blocks must run one at a time, because the kernel would share its limits.

    The limits are of memory mappings, threads and signals. Blocks that run at once could then
    affect each other.
    """
    if _read(overcommit).strip() == _STRICT:
        return True
    return os.geteuid() != 0 and _version(release) < _COUNTS_APART


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("-", 1)[0].split(".")[:2])


def _read(place: Path) -> str:
    try:
        return place.read_text(encoding="ascii")
    except OSError:
        return ""
