"""What is said to the owner of the sandbox: what holds a program here, or why none starts."""

from __future__ import annotations

import os
import subprocess
from typing import Final

_USER_NAMESPACES: Final = "/proc/sys/user/max_user_namespaces"
_APPARMOR: Final = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def held_in_words() -> str:
    """Return what limits a program, and what does not."""
    uid = "a uid of its own" if os.geteuid() == 0 else "your own uid"
    return (
        f"bubblewrap starts, under {uid}. A block is one process with a limit on memory, "
        "processor time, file sizes and threads; no control group is used, so pages of its small "
        "folder in memory count beside its own memory"
    )


def why_not() -> str:
    """Return what keeps bubblewrap from starting, as far as it can be told."""
    tried = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "/usr/bin/env", "true"],
        capture_output=True,
        check=False,
        env={},
        timeout=30,
    )
    if _read(_USER_NAMESPACES) == "0":
        return "pipelines are refused: user namespaces are off (sysctl user.max_user_namespaces)"
    if tried.returncode != 0 and _read(_APPARMOR) == "1":
        return (
            "pipelines are refused: AppArmor lets no unprivileged process make a user namespace; "
            "give bwrap a profile, or set kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if tried.returncode != 0:
        return f"pipelines are refused: bwrap says {tried.stderr.decode(errors='replace').strip()}"
    return "pipelines are refused: bwrap starts, but a warm interpreter inside it does not"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
