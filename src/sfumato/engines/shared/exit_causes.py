"""Find out why a worker process ended: by itself, or by a signal from the host.

No row can cause a signal from the host. The kernel reports which signal ended a child, and counts
its out-of-memory kills. Every other end counts as caused by the query.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from sfumato.vault.engine_port import MEMORY, SIGNAL

_ENDS_S: Final = 5.0  # seconds that a process may still run after it has closed its pipes
_LOOK_S: Final = 0.001
# Signals that only another process sends. A CPU fault, abort(3) or our own RLIMIT_AS never raises
# them. RLIMIT_CPU would, but we never set it.
_FROM_OUTSIDE: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
)
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_MACHINE: Final = Path("/proc/vmstat")


def signal_of(process: int) -> int | None:
    """Return the signal that ended our child, or None; the child stays unreaped."""
    until = time.monotonic() + _ENDS_S
    while True:
        try:
            ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # already reaped elsewhere: the cause is unknown
            return None
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_KILLED else None
        if time.monotonic() > until:
            return None
        time.sleep(_LOOK_S)


def cause_of(number: int | None, before: int | None, after: int | None) -> str | None:
    """Say why the host ended a worker with a signal: SIGNAL, or MEMORY for an out-of-memory kill.

    Return None if the host did not end it: the query is the cause. `before` and `after` are the
    kernel's counts of out-of-memory kills. Such a kill can depend on how much the worker has read,
    so MEMORY is a separate cause. SIGKILL also counts as MEMORY if the kernel's count is unknown.
    """
    if number not in _FROM_OUTSIDE:
        return None
    is_known = before is not None and before == after
    return SIGNAL if is_known or number != signal.SIGKILL else MEMORY


def oom_kills() -> int | None:
    """Return the kernel's count of out-of-memory kills; None if it is unknown.

    It is the host's count plus the count of our control group, which includes our children.
    """
    machine = _counted(_MACHINE)
    group = sum(_counted(place) or 0 for place in _places_of_group())
    return None if machine is None else machine + group


def _places_of_group() -> tuple[Path, ...]:
    """Return the files with the out-of-memory counts of our control group (cgroup v1 and v2)."""
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
    """Read how many processes the kernel has killed for lack of memory, from the line `oom_kill`.

    Return None if the file or the line is missing.
    """
    try:
        text = place.read_text("ascii")
    except (OSError, ValueError):
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return None
