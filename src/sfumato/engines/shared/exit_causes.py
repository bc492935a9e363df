"""Tell why a worker process ended: by its own doing, or by a signal from the host.

No row can cause the host's signals. The kernel tells the parent by which signal a child ended, and
counts the processes that it killed for want of memory. Every other end counts as the question's.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from sfumato.vault.engine_port import MEMORY, SIGNAL

_ENDS_S: Final = 5.0  # how long a process that has closed its pipes may take to end
_LOOK_S: Final = 0.001
# These come from another process only: neither a fault of an instruction, nor abort(3), nor a
# limit that we set (RLIMIT_AS) raises them; RLIMIT_CPU, which would, is never set.
_FROM_OUTSIDE: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
)
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_MACHINE: Final = Path("/proc/vmstat")


def signal_of(process: int) -> int | None:
    """Return the signal that ended our child, without reaping it; None if none did."""
    until = time.monotonic() + _ENDS_S
    while True:
        try:
            ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else has waited for it: nobody can tell
            return None
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_KILLED else None
        if time.monotonic() > until:
            return None
        time.sleep(_LOOK_S)


def cause_of(number: int | None, before: int | None, after: int | None) -> str | None:
    """Return what of the host's ended a child with that signal; None is the question's own doing.

    `before` and `after` are how many processes the kernel had killed for want of memory. Whether
    it had to can depend on how much the child had read, so that is a cause of its own; so is a
    kill on a host that does not count them.
    """
    if number not in _FROM_OUTSIDE:
        return None
    is_known = before is not None and before == after
    return SIGNAL if is_known or number != signal.SIGKILL else MEMORY


def oom_kills() -> int | None:
    """Return how often the kernel has killed for want of memory, here and in all; None if unknown.

    The host's own count, and that of our control group, in which our children are too.
    """
    machine = _counted(_MACHINE)
    group = sum(_counted(place) or 0 for place in _places_of_group())
    return None if machine is None else machine + group


def _places_of_group() -> tuple[Path, ...]:
    """Return where the kernel counts for our control group, of either version."""
    try:
        lines = _OWN_GROUPS.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return ()
    found: list[Path] = []
    for line in lines:
        _, kinds, path = (*line.split(":", 2), "", "")[:3]
        if not kinds:
            found.append(_GROUPS / path.lstrip("/") / "memory.events")
        elif "memory" in kinds.split(","):
            found.append(_GROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
    return tuple(found)


def _counted(place: Path) -> int | None:
    """Return the number that follows `oom_kill` in a file of the kernel's, if it is there."""
    try:
        text = place.read_text("ascii")
    except (OSError, ValueError):
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return None
