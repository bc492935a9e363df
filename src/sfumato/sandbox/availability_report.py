"""Explain to the owner how the sandbox limits programs on this machine, or why none starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from sfumato.sandbox.container_runtimes import BUBBLEWRAP, Runtime, program
from sfumato.sandbox.control_group import GroupHome
from sfumato.sandbox.machine_resources import is_too_old

_USER_NAMESPACES: Final = "/proc/sys/user/max_user_namespaces"
_APPARMOR: Final = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


def held_in_words(runtime: Runtime, home: GroupHome | None) -> str:
    """Describe in words which limits hold for programs in this runtime's sandbox.

    `home` is where blocks of images get control groups, or None if they get none.
    """
    uid = "a uid of its own" if os.geteuid() == 0 else "your own uid"
    return (
        f"{runtime.name} starts, under {uid}. A block of one process has limits on memory, "
        "processor time, file sizes and threads; its small folder in memory counts in addition. "
        f"{_groups_in_words(runtime, home)}"
    )


def _groups_in_words(runtime: Runtime, home: GroupHome | None) -> str:
    if home is None:
        how = (
            "start the service as root, or under systemd with Delegate=memory pids, "
            "DelegateSubgroup=main and ProtectControlGroups=no, on Linux 5.16 or later with cgroup "
            "v2 (docs/how-to/serving.md)"
        )
        return (
            "Blocks of images have no control group, and sfumato measures their processes itself; "
            "to get groups, "
            + (how if runtime.name == BUBBLEWRAP else "use bubblewrap instead of containers")
        )
    found = f"Blocks of images have control groups in {home.place}: for processor time and ends"
    kinds = {"memory": "memory", "pids": "the number of processes"}
    offered = [said for name, said in kinds.items() if name in home.controllers]
    if len(offered) == len(kinds):
        return f"{found}, with outer limits on {' and '.join(offered)}"
    missing = [said for name, said in kinds.items() if name not in home.controllers]
    limits = f", with an outer limit on {offered[0]}" if offered else ""
    return (
        f"{found}{limits}. They do not limit {' and '.join(missing)}, because cgroup v2 gives them "
        "no such controllers here (docs/how-to/serving.md)"
    )


def why_not(runtime: Runtime) -> str:
    """Explain in words why the sandbox does not start with this runtime."""
    if is_too_old(os.uname().release):
        return (
            "pipelines are refused: this kernel numbers the files of all programs together, so "
            "one program could see what another did; use Linux 5.9 or later"
        )
    if runtime.name == BUBBLEWRAP:
        return _why_no_bubblewrap()
    name = program(runtime)
    if shutil.which(name) is None:
        return f"pipelines are refused: this vault's sandbox is {name}, which is not installed"
    return (
        f"pipelines are refused: {name} is installed, but its warm sandbox does not start; it "
        "must start containers without root, in a user namespace (with control groups of both "
        "versions at once, podman needs runc: podman:runc)"
    )


def _why_no_bubblewrap() -> str:
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
            "pipelines are refused: AppArmor forbids unprivileged processes to make a user "
            "namespace; give bwrap a profile, or set "
            "kernel.apparmor_restrict_unprivileged_userns=0"
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
