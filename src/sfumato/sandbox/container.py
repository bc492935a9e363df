"""What a container is given of this machine: an empty root, a list of calls, and our ear."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sfumato.sandbox.environment import Environment, default_folder, own_folder
from sfumato.sandbox.machine import FOR_BLOCKS, memory_mb
from sfumato.sandbox.runtimes import PLACES, Wall, calls

_CONTROL: Final = ".control-"
# that runtimes look for, or would make
_FILES: Final = (
    "control", "etc/group", "etc/hostname", "etc/hosts", "etc/mtab", "etc/passwd",
    "etc/resolv.conf", "run/.containerenv",
)  # fmt: skip


@contextmanager
def listening(made: Environment, cpu: int, uid: int | None) -> Iterator[tuple[Wall, socket.socket]]:
    """Give what a runtime is told, and who listens for the one that it starts, and then no more."""
    root = _root()
    _sweep(root.parent)
    place, held = _place(root.parent)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(place / "control"))
            os.chmod(place / "control", 0o600)
            if uid is not None:
                os.chown(place / "control", uid, uid)
            place.chmod(0o711)
            listener.listen(1)
            yield _wall(root, place / "control", made, cpu, uid), listener
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(held)


def _place(above: Path) -> tuple[Path, int]:
    """Return a folder for our ear, and its lock, which dies with us; a swept one is made anew."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=_CONTROL, dir=above))
        held = _taken(place)
        if held is not None and place.exists():
            return place, held
        if held is not None:
            os.close(held)


def _sweep(above: Path) -> None:
    """Remove what was left where somebody was killed while a container started."""
    for place in above.glob(f"{_CONTROL}*"):
        held = _taken(place)
        if held is not None:
            shutil.rmtree(place, ignore_errors=True)
            os.close(held)


def _taken(place: Path) -> int | None:
    """Return the folder's lock, or None if somebody who is alive has it, or it is gone."""
    try:
        held = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def _wall(root: Path, control: Path, made: Environment, cpu: int, uid: int | None) -> Wall:
    return Wall(
        files=str(made.folder),
        own=None if made.own is None else str(made.own),
        control=str(control),
        root=str(root / "root"),
        calls=str(root / "calls.json"),
        uid=os.geteuid() if uid is None else uid,
        gid=os.getegid() if uid is None else uid,
        cpu=cpu,
        memory_mb=int(FOR_BLOCKS * memory_mb()),
    )


def _root() -> Path:
    """Return the folder with an empty root and a list of calls, made first if it is not there."""
    said = f"{PLACES} {_FILES} {calls()}".encode()
    above = own_folder(default_folder())
    place = above / f"container-{hashlib.sha256(said).hexdigest()[:24]}"
    if not place.is_dir():
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=above))
        try:
            _lay(draft)
            with contextlib.suppress(OSError):  # another process was quicker
                draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return place


def _lay(draft: Path) -> None:
    (draft / "calls.json").write_text(calls())
    for name in PLACES:
        (draft / "root" / name).mkdir(parents=True)
    for name in _FILES:
        (draft / "root" / name).touch()
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
