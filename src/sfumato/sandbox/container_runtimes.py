"""Command lines that start a sandbox in podman, docker or apptainer; this module starts nothing.

A container is only the outer layer of isolation. Its first process leaves the container's files and
network, and keeps /proc only for images, where no block sees it. Then it builds the same sandbox as
bubblewrap (nested.py). So a block has the same inner isolation with every runtime. Root starts no
container, and no container has privileges on the host."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.seccomp import ALLOWED, TREE

BUBBLEWRAP, PODMAN, DOCKER, APPTAINER = "bubblewrap", "podman", "docker", "apptainer"
CONTROL: Final = "/control"  # path of our socket inside a container
MOUNT_POINTS: Final = ("dev", "env", "etc", "from", "own", "proc", "run", "sys", "tmp", "var")
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_STATE: Final = "/run"  # podman's state folder: a tmpfs that only this sandbox has
_PROCESSES: Final = 320  # most processes, including threads; each block also has its own limit
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
# system calls that the first process and the keepers need; a block has a separate, stricter filter
_OF_THE_HOUSE: Final = (
    "arch_prctl", "bind", "capget", "capset", "clock_nanosleep", "clone", "clone3", "connect",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "execve", "fchown", "fcntl",
    "fdatasync", "fork", "fstatfs", "fsync", "futex", "getegid", "getpeername", "getpgrp",
    "getsockname", "getsockopt", "getxattr", "ioctl", "kill", "lgetxattr", "listxattr",
    "llistxattr", "madvise", "mmap", "mount", "msync", "nanosleep", "pidfd_open", "pipe", "pipe2",
    "pivot_root", "poll", "ppoll", "prctl", "prlimit64", "process_vm_writev", "pselect6",
    "recvfrom", "recvmsg", "sched_setaffinity", "seccomp", "select", "sendfile", "sendmsg",
    "sendto", "sethostname", "setrlimit", "setsid", "socket", "socketpair", "statfs", "statx",
    "symlink", "symlinkat", "umount2", "unshare", "utimensat", "wait4", "waitid",
)  # fmt: skip


@dataclass(frozen=True)
class Runtime:
    """The runtime that the owner has chosen to start sandboxes, such as bubblewrap or podman."""

    name: str = BUBBLEWRAP
    detail: str = ""  # podman: name of its OCI runtime; docker: digest of an image


@dataclass(frozen=True)
class ContainerSettings:
    """The settings to start one sandbox container; all paths are paths on the host."""

    files: str  # folder of the base environment
    own: str | None  # folder of the program's own environment
    control: str  # our socket
    root: str  # the container's root: empty, with mount points for the folders above
    calls: str  # path of the seccomp profile
    uid: int
    gid: int
    cpu: int
    memory_mb: int  # memory limit, for all blocks of the machine together
    is_image: bool = False


def read_runtime(text: object) -> Runtime:
    """Parse the name of a sandbox runtime, such as podman:runc; refuse an unknown one."""
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
            f"{text!r} is not a known sandbox.",
            "Name bubblewrap, podman, podman:runc, docker:sha256:DIGEST or apptainer.",
        )
    return Runtime(name, detail)


def command(runtime: Runtime, wall: ContainerSettings) -> list[str]:
    """Return the command that starts a sandbox container; the caller appends its first process."""
    ways = {PODMAN: podman, DOCKER: docker, APPTAINER: apptainer}
    return ways[runtime.name](wall, runtime.detail)


def program(runtime: Runtime) -> str:
    """Return the name of the executable that a runtime needs, such as bwrap or podman."""
    return "bwrap" if runtime.name == BUBBLEWRAP else runtime.name


def podman(wall: ContainerSettings, way: str) -> list[str]:
    """Return podman's command to start a container, with our empty folder as its root.

    Podman runs as root of its own user namespace. Its state is on a tmpfs in its own mount
    namespace. So a kill of `unshare` ends everything and leaves nothing. The only capability
    (setfcap) lets the first process map uid 0 to 1000; there is no file to use it on.
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


def docker(wall: ContainerSettings, image: str) -> list[str]:
    """Return docker's command to start a container from a local image digest, never pulled.

    A block neither runs nor sees anything of the image. The daemon may run as root, if the owner
    has set it up so. The container never runs as root.
    """
    return [
        *("docker", "run", "--rm", "--pull", "never", "--user", f"{wall.uid}:{wall.gid}"),
        *("--cap-drop", "ALL", "--log-driver", "none", "--entrypoint", ""),
        *("--cpuset-cpus", str(wall.cpu), "--cpus", "1"),
        *_alike(wall),
        image,
    ]


def apptainer(wall: ContainerSettings, _detail: str) -> list[str]:
    """Return apptainer's command to start a container, with our folder as its root."""
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


def _alike(wall: ContainerSettings) -> list[str]:
    """Return the options that the podman and docker commands share."""
    shown = [(wall.files, "/from"), *(((wall.own, "/own"),) if wall.own else ())]
    binds = [f"type=bind,src={source},dst={place},readonly" for source, place in shown]
    binds.append(f"type=bind,src={wall.control},dst={CONTROL}")
    return [
        *("--network", "none", "--ipc", "none", "--hostname", "bubble"),
        *("--read-only", "--workdir", "/", "--security-opt", "no-new-privileges"),
        *("--security-opt", f"seccomp={wall.calls}", "--ulimit", "core=0:0"),
        *("--pids-limit", str(_PROCESSES), "--memory", f"{wall.memory_mb}m"),
        *(
            "--memory-swap",
            f"{wall.memory_mb}m",
            "--oom-score-adj",
            "900" if wall.is_image else "1000",
        ),
        *(part for bind in binds for part in ("--mount", bind)),
    ]


def calls() -> str:
    """Return the container's seccomp profile (allowed system calls), as JSON for the runtime."""
    named = {*ALLOWED, *TREE, *_OF_THE_HOUSE} - {"mknod", "mknodat"}
    allowed = {"names": sorted(named), "action": "SCMP_ACT_ALLOW"}
    # mknodat for named pipes only, not for devices
    pipes = {
        "names": ["mknodat"],
        "action": "SCMP_ACT_ALLOW",
        "args": [{
            "index": 2, "value": stat.S_IFMT(0o177777), "valueTwo": stat.S_IFIFO,
            "op": "SCMP_CMP_MASKED_EQ",
        }],
    }  # fmt: skip
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [allowed, pipes],
    }
    return json.dumps(profile, indent=1)
