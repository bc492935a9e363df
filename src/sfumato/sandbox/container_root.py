"""Prepare what a container gets from the host: an empty root, a seccomp profile and a socket."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sfumato.sandbox.base_environment import Environment, default_folder, own_folder
from sfumato.sandbox.container_runtimes import MOUNT_POINTS, ContainerSettings, calls
from sfumato.sandbox.locked_folders import CONTROL, held_folder
from sfumato.sandbox.machine_resources import FOR_BLOCKS, memory_mb

# files that container runtimes expect in a root, or would create there
_FILES: Final = (
    "control", "etc/group", "etc/hostname", "etc/hosts", "etc/mtab", "etc/passwd",
    "etc/resolv.conf", "run/.containerenv",
)  # fmt: skip


@contextmanager
def listening(
    made: Environment, cpu: int, uid: int | None
) -> Iterator[tuple[ContainerSettings, socket.socket]]:
    """Yield the settings of a container, and a socket that listens for its connection."""
    root = _root()
    with held_folder(root.parent, CONTROL) as held:
        control = held.place / "control"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(control))
            control.chmod(0o600)
            if uid is not None:
                os.chown(control, uid, uid)
            held.place.chmod(0o711)
            listener.listen(1)
            yield _wall(root, control, made, cpu, uid), listener


def _wall(
    root: Path, control: Path, made: Environment, cpu: int, uid: int | None
) -> ContainerSettings:
    return ContainerSettings(
        files=str(made.folder),
        own=None if made.own is None else str(made.own),
        control=str(control),
        root=str(root / "root"),
        calls=str(root / "calls.json"),
        uid=os.geteuid() if uid is None else uid,
        gid=os.getegid() if uid is None else uid,
        cpu=cpu,
        memory_mb=int(FOR_BLOCKS * memory_mb()),
        is_image=made.is_image,
    )


def _root() -> Path:
    """Return the folder with the containers' empty root and seccomp profile, created if needed."""
    said = f"{MOUNT_POINTS} {_FILES} {calls()}".encode()
    above = own_folder(default_folder())
    place = above / f"container-{hashlib.sha256(said).hexdigest()[:24]}"
    if not place.is_dir():
        with held_folder(above) as held:
            _lay(held.place)
            with contextlib.suppress(OSError):  # another process was faster
                held.place.rename(place)
    return place


def _lay(draft: Path) -> None:
    (draft / "calls.json").write_text(calls())
    for name in MOUNT_POINTS:
        (draft / "root" / name).mkdir(parents=True)
    for name in _FILES:
        (draft / "root" / name).touch()
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
