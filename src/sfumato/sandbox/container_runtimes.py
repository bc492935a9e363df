"""How each runtime is told to start a bubble: command lines, and nothing that acts.

A container is an outer wall, and no more is believed of it: what runs first in it leaves its files,
its /proc and its network behind and builds the bubble that bubblewrap builds (nested.py), so that a
block meets the same inner walls everywhere. No container is started by root, and none has a right.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.seccomp import ALLOWED

BUBBLEWRAP, PODMAN, DOCKER, APPTAINER = "bubblewrap", "podman", "docker", "apptainer"
CONTROL: Final = "/control"  # the socket of ours, in a container
PLACES: Final = ("dev", "env", "etc", "from", "own", "proc", "run", "sys", "tmp", "var")
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_STATE: Final = "/run"  # as podman sees it: memory, of this one bubble
_PROCESSES: Final = 128  # with the threads; each block has a limit of its own besides
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
# what the first process and the keepers need beside a block's own calls; each block has its filter
_OF_THE_HOUSE: Final = (
    "arch_prctl", "bind", "capget", "capset", "clock_nanosleep", "clone", "clone3", "connect",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "execve", "fchown", "fcntl",
    "fdatasync", "fork", "fstatfs", "fsync", "futex", "getegid", "getpeername", "getpgrp",
    "getsockname", "getsockopt", "getxattr", "ioctl", "kill", "lgetxattr", "listxattr",
    "llistxattr", "madvise", "mmap", "mount", "msync", "nanosleep", "pidfd_open", "pipe", "pipe2",
    "pivot_root", "poll", "ppoll", "prctl", "prlimit64", "pselect6", "recvfrom", "recvmsg",
    "sched_setaffinity", "seccomp", "select", "sendfile", "sendmsg", "sendto", "sethostname",
    "setrlimit", "setsid", "socket", "statfs", "statx", "symlink", "symlinkat", "umount2",
    "unshare", "utimensat", "wait4", "waitid",
)  # fmt: skip


@dataclass(frozen=True)
class Runtime:
    """What the owner has chosen to start bubbles with."""

    name: str = BUBBLEWRAP
    detail: str = ""  # of podman, what it runs containers with; of docker, an image's digest


@dataclass(frozen=True)
class Wall:
    """What a runtime is told of one bubble; every path is ours."""

    files: str  # the environment
    own: str | None  # what a program brings along
    control: str  # a socket
    root: str  # an empty folder with places for these, which is a container's root
    calls: str  # the profile of system calls
    uid: int
    gid: int
    cpu: int
    memory_mb: int  # that all blocks of the machine may have together


def read_runtime(text: object) -> Runtime:
    """Return the runtime that is named so; what is not known is refused."""
    name, colon, detail = str(text if text is not None else BUBBLEWRAP).partition(":")
    allowed = {
        BUBBLEWRAP: detail == "",
        PODMAN: detail in ("", "crun", "runc"),
        DOCKER: _DIGEST.fullmatch(detail) is not None,
        APPTAINER: detail == "",
    }
    if not allowed.get(name, False) or (colon and not detail):
        raise Refused(
            "sandbox-missing",
            f"{text!r} is no sandbox that is known here.",
            "Name bubblewrap, podman, podman:runc, docker:sha256:DIGEST or apptainer.",
        )
    return Runtime(name, detail)


def command(runtime: Runtime, wall: Wall) -> list[str]:
    """Return how a container is started; what it runs first comes after."""
    ways = {PODMAN: podman, DOCKER: docker, APPTAINER: apptainer}
    return ways[runtime.name](wall, runtime.detail)


def program(runtime: Runtime) -> str:
    """Return what is to be installed."""
    return "bwrap" if runtime.name == BUBBLEWRAP else runtime.name


def podman(wall: Wall, way: str) -> list[str]:
    """Return podman's command line: our folder as its root, so that no image can be meant.

    It is root of a user namespace in which nobody else is, and its state is memory of a mount
    namespace: whoever ends `unshare` ends all of it, and nothing of it is left. The one right lets
    uid 0 there be called 1000 by the first process; there is no file that it could be used on.
    """
    return [
        *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"),
        *("--mount-proc", "/bin/sh", "-c"),
        f'mount -t tmpfs -o size=64m,mode=700 tmpfs {_STATE} && exec "$@"',
        *("sh", "env", "-i", _PATH, f"HOME={_STATE}", f"XDG_RUNTIME_DIR={_STATE}"),
        *("_CONTAINERS_USERNS_CONFIGURED=done", f"_CONTAINERS_ROOTLESS_UID={wall.uid}"),
        *("podman", "--log-level", "error", "--storage-driver", "vfs", "--root", f"{_STATE}/root"),
        *("--runroot", f"{_STATE}/run", "--tmpdir", f"{_STATE}/now", "--events-backend", "none"),
        *("--cgroup-manager", "cgroupfs", *(("--runtime", way) if way else ())),
        *("run", "--rm", "--pull", "never", "--user", "0:0", "--cap-drop", "all"),
        *("--cap-add", "setfcap", "--unsetenv-all", "--http-proxy=false", "--no-hosts"),
        *("--read-only-tmpfs=false", "--log-driver", "none", "--pid", "private"),
        *("--uts", "private"),
        *_alike(wall),
        *("--security-opt", "label=disable", "--rootfs", wall.root),
    ]


def docker(wall: Wall, image: str) -> list[str]:
    """Return docker's command line: the image is a digest that is there, and never fetched.

    Nothing of the image is run or seen by a block. The daemon is root's or not, as the owner has
    set it up; what it starts is not root.
    """
    return [
        *("docker", "run", "--rm", "--pull", "never", "--user", f"{wall.uid}:{wall.gid}"),
        *("--cap-drop", "ALL", "--log-driver", "none", "--entrypoint", ""),
        *("--cpuset-cpus", str(wall.cpu), "--cpus", "1"),
        *_alike(wall),
        image,
    ]


def apptainer(wall: Wall, _detail: str) -> list[str]:
    """Return apptainer's command line: our folder as its root, in a user namespace of its own."""
    shown = [(wall.files, "/from"), *(((wall.own, "/own"),) if wall.own else ())]
    binds = [part for source, place in shown for part in ("--bind", f"{source}:{place}:ro")]
    return [
        *("env", "-i", _PATH, "apptainer", "--silent", "exec", "--userns", "--containall"),
        *("--cleanenv", "--no-eval", "--no-home", "--no-init", "--no-privs", "--no-umask"),
        *("--no-mount", "home,tmp,bind-paths,cwd", "--net", "--network", "none"),
        *("--pids-limit", str(_PROCESSES), "--memory", f"{wall.memory_mb}m", "--cpus", "1"),
        *("--security", f"seccomp:{wall.calls}", *binds, "--bind", f"{wall.control}:{CONTROL}"),
        *("--pwd", "/", wall.root),
    ]


def _alike(wall: Wall) -> list[str]:
    """Return what podman and docker are told in the same words."""
    shown = [(wall.files, "/from"), *(((wall.own, "/own"),) if wall.own else ())]
    binds = [f"type=bind,src={source},dst={place},readonly" for source, place in shown]
    binds.append(f"type=bind,src={wall.control},dst={CONTROL}")
    return [
        *("--network", "none", "--ipc", "none", "--hostname", "bubble"),
        *("--read-only", "--workdir", "/", "--security-opt", "no-new-privileges"),
        *("--security-opt", f"seccomp={wall.calls}", "--ulimit", "core=0:0"),
        *("--pids-limit", str(_PROCESSES), "--memory", f"{wall.memory_mb}m"),
        *("--memory-swap", f"{wall.memory_mb}m", "--oom-score-adj", "1000"),
        *(part for bind in binds for part in ("--mount", bind)),
    ]


def calls() -> str:
    """Return the profile of system calls for all that runs in a container, as runtimes read it."""
    allowed = {"names": sorted({*ALLOWED, *_OF_THE_HOUSE}), "action": "SCMP_ACT_ALLOW"}
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [allowed],
    }
    return json.dumps(profile, indent=1)
