"""Processes as /proc has them: what is below one, whether one is there, what it has burnt."""

from __future__ import annotations

import os
import time
from pathlib import Path

PATIENCE_S = 300  # beside measurements, what is nice may get a hundredth of a processor


def children(pid: int) -> set[int]:
    """Return the processes below that one, as far down as they go."""
    above: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                said = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            above[int(place.name)] = int(said[1])
    found, left = set(), {pid}
    while left:
        left = {one for one, parent in above.items() if parent in left}
        found |= left
    return found


def is_there(pid: int) -> bool:
    """Say whether any thread of it has not ended: before, nobody who waits for it is told."""
    try:
        said = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "\nState:\tZ" not in said or "\nThreads:\t1\n" not in said


def waited(is_so: object) -> bool:
    """Return whether it came true before patience ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if callable(is_so) and is_so():
            return True
        time.sleep(0.1)
    return False


def cpu_s(pid: int) -> float:
    try:
        said = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(said[11]) + int(said[12])) / os.sysconf("SC_CLK_TCK")
