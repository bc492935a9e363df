"""Unpack an untrusted squashfs image as a tar stream, without mounting it.

The tool sqfs2tar (of squashfs-tools-ng) parses untrusted bytes, so it runs in a bubblewrap sandbox.
There it is not root, and has no network, no second process and no writable file. It sees only
itself and the image. The tar is untrusted too, and is parsed like an OCI layer (oci_layers.py).
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.program_environment import bad_environment
from sfumato.sandbox.sandbox_process import BWRAP, free_uid
from sfumato.sandbox.seccomp import UnknownMachine, tool_filter_for
from sfumato.sandbox.shared_libraries import LOADER, copy_libraries

TOOL: Final = "sqfs2tar"
PACKAGE: Final = "squashfs-tools-ng"
_MAX_MEMORY_KB: Final = 1 << 21  # limit of its address space
_MAX_CPU_S: Final = 600
_MAX_S: Final = 1_800
_MAX_LEFT: Final = 1 << 20  # most bytes that may follow the end of the tar
# The tool cannot write a file or a core dump; if a limit cannot be set, it does not start.
_LIMITED: Final = (
    f"ulimit -c 0 && ulimit -f 0 && ulimit -n 64 && ulimit -t {_MAX_CPU_S}"
    f' && ulimit -v {_MAX_MEMORY_KB} && exec "$@"'
)


def can_unfold() -> bool:
    """Return True if this machine has the tools to unpack a squashfs image."""
    return shutil.which(TOOL) is not None and shutil.which(BWRAP) is not None


def unfold(squash: Path, read: Callable[[IO[bytes]], None]) -> None:
    """Unpack a squashfs and pass its tar stream to `read`; or refuse.

    The image must be in a folder of ours, because its permissions are changed.
    """
    if not can_unfold():
        raise Refused(
            "sandbox-missing",
            f"Apptainer images are unpacked by {TOOL} in bubblewrap, and one of them is missing.",
            f"Run `make system`, or install bubblewrap and {PACKAGE}.",
        )
    tool = squash.parent / "tool"
    _lay_out(tool)
    squash.parent.chmod(0o711)
    squash.chmod(0o444)
    with _filter() as code, _begun(command(tool, squash, code), code) as process:
        if process.stdout is None:
            raise bad_environment("its squashfs cannot be read")
        read(process.stdout)
        is_all = len(process.stdout.read(_MAX_LEFT)) < _MAX_LEFT
        if not is_all or process.wait() != 0:
            raise bad_environment("its squashfs cannot be read")


def command(tool: Path, squash: Path, code: int) -> list[str]:
    """Return the bubblewrap command to unpack an image; the tool sees only itself and the image."""
    return [
        *(BWRAP, "--unshare-all", "--unshare-user", "--as-pid-1", "--new-session"),
        *("--die-with-parent", "--uid", "1000", "--gid", "1000", "--hostname", "bubble"),
        *("--cap-drop", "ALL", "--clearenv", "--ro-bind", str(tool), "/tool"),
        *("--ro-bind", str(squash), "/image"),
        *("--remount-ro", "/", "--chdir", "/", "--seccomp", str(code), "--"),
        *(f"/tool/libs/{LOADER.name}", "--library-path", "/tool/libs"),
        *(f"/tool/{TOOL}", "--no-xattr", "--no-skip", "/image"),
    ]


def _lay_out(tool: Path) -> None:
    """Copy the unpacking tool and its libraries, which are trusted, to a folder."""
    tool.mkdir()
    source = Path(shutil.which(TOOL) or TOOL).resolve()
    shutil.copyfile(source, tool / TOOL)
    copy_libraries([source], tool, tool / "none")
    for place in (tool, *tool.rglob("*")):
        place.chmod(0o755)


@contextmanager
def _filter() -> Iterator[int]:
    """Yield the descriptor of a memory file with the seccomp filter of the unpacking tool."""
    try:
        code = tool_filter_for(platform.machine())
    except UnknownMachine:
        raise bad_environment("there is no list of system calls for this processor") from None
    made = os.memfd_create("calls", 0)
    try:
        os.write(made, code)
        os.lseek(made, 0, os.SEEK_SET)
        yield made
    finally:
        os.close(made)


@contextmanager
def _begun(argv: list[str], kept: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command with an empty environment; kill it at the end of the `with` block.

    It is also killed after a time limit. If this process runs as root, the command gets an unused
    uid.
    """
    uid = free_uid(os.getpid())
    process = subprocess.Popen(
        ["/bin/sh", "-c", _LIMITED, "sh", shutil.which(argv[0]) or argv[0], *argv[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(kept,),
        cwd="/",
        env={},
        start_new_session=True,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    )
    late = threading.Timer(_MAX_S, process.kill)
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            with contextlib.suppress(OSError):
                process.stdout.close()
