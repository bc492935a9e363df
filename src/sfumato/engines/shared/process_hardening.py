"""What a child that sees rows does first: nothing of it is left for a stray print or a dump."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Final

_DUMPABLE: Final = 4  # PR_SET_DUMPABLE
_OOM_SCORE: Final = "500"  # blocks of programs have 1000: the kernel kills them first


def drop_output() -> None:
    """Let no dump write this process's memory down, and no other process of its user read it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0) != 0:
        os._exit(1)


def harden_process() -> tuple[int, int]:
    """Keep the two pipes for ourselves; leave nothing a stray print or a core dump could reach."""
    os.umask(0o077)
    _raise_oom_score()
    drop_output()
    read, write = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return read, write


def _raise_oom_score() -> None:
    """Let the kernel kill us before the door if memory runs out: rows can be read again."""
    with contextlib.suppress(OSError):  # no Linux, or one that lets nobody say so
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, "ascii")
