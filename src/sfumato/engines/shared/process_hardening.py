"""Harden a child process that reads rows: no stray output, no core dump, no memory access.

Each such child process calls `harden_process` first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Final

_DUMPABLE: Final = 4  # PR_SET_DUMPABLE
_OOM_SCORE: Final = "500"  # blocks of programs have 1000, so the kernel kills them first


def disable_dumps() -> None:
    """Disable core dumps, and stop other processes of the same user from reading our memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(1)


def harden_process() -> tuple[int, int]:
    """Harden a process that reads rows; return private copies of stdin and stdout, its pipes.

    The standard descriptors then point to /dev/null, so that a stray print reaches nobody.
    """
    os.umask(0o077)
    _raise_oom_score()
    disable_dumps()
    read, write = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return read, write


def _raise_oom_score() -> None:
    """Make the OOM killer end this worker before the process that writes the ledger.

    A worker can restart and read the rows again.
    """
    with contextlib.suppress(OSError):  # not Linux, or a kernel that does not allow it
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, "ascii")
