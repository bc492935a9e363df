"""What this machine has for blocks: nothing that one of them uses may be missing for another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOR_BLOCKS: Final = 0.75  # the share of the machine's memory that blocks may have together
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_OVERCOMMIT: Final = Path("/proc/sys/vm/overcommit_memory")
_STRICT: Final = "2"  # whatever is mapped counts at once, so that a block would feel another's maps
_NUMBERS_APART: Final = (5, 9)  # since then a folder in memory numbers its own files
_COUNTS_APART: Final = (5, 14)  # since then each user namespace counts its own threads and signals


def memory_mb(groups: Path = _GROUPS, own: Path = _OWN_GROUPS) -> int:
    """Return the memory that we may use: the machine's, or less where a control group says so."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, own)]) >> 20


def _limits(groups: Path, own: Path) -> list[int]:
    """Return every limit on memory from our own control group upwards, of both versions."""
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
    """Say whether the whole host would number the files that blocks make, all blocks' together.

    A block that made many would be read off the number of another's first one.
    """
    return _version(release) < _NUMBERS_APART


def one_by_one(release: str, overcommit: Path = _OVERCOMMIT) -> bool:
    """Say whether blocks that run at once would feel each other in what the kernel counts."""
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
