"""Copy the shared libraries that an environment needs from this machine.

The dynamic loader lists the dependencies, but only of trusted files. To inspect a file, the loader
maps it, so an untrusted file could make it run code outside of the sandbox. A program's own
environment gets a fixed list of compiler runtime libraries instead, whatever its files need.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LOADER: Final = Path("/lib64/ld-linux-x86-64.so.2")
_AT_RUN_TIME: Final = "libgcc_s.so.1"  # the C library loads it only when a thread ends
_NEEDED: Final = re.compile(r"^\s*(?P<name>[A-Za-z0-9._+-]+) => (?P<path>/.+) \(0x", re.MULTILINE)
RUNTIME: Final = (
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1",
    "libgcc_s.so.1", "libstdc++.so.6", "libgomp.so.1", "libatomic.so.1", "libquadmath.so.0",
    "libgfortran.so.5", "libz.so.1",
)  # fmt: skip
_FOLDERS: Final = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
_PATIENCE_S: Final = 30


def copy_libraries(binaries: Iterable[Path], draft: Path, own: Path) -> None:
    """Copy the loader and the libraries that the binaries need into `draft/libs`.

    The binaries must be trusted, because the loader maps them.
    """
    libraries = draft / "libs"
    libraries.mkdir()
    shutil.copy2(LOADER, libraries / LOADER.name)
    for binary in binaries:
        for name, path in _needed(binary, own):
            if not path.is_relative_to(draft) and not (libraries / name).exists():
                shutil.copy2(path, libraries / name)
                if name.startswith("libc.so") and (path.parent / _AT_RUN_TIME).exists():
                    shutil.copy2(path.parent / _AT_RUN_TIME, libraries / _AT_RUN_TIME)


def copy_runtime(draft: Path) -> None:
    """Copy the fixed list of compiler runtime libraries, such as libgomp, into `draft/libs`."""
    libraries = draft / "libs"
    libraries.mkdir()
    folders = [Path(folder).resolve() for folder in _FOLDERS]
    for name in RUNTIME:
        found = (folder / name for folder in folders if (folder / name).is_file())
        source = next(found, None)
        if source is not None and any(map(source.resolve().is_relative_to, folders)):
            shutil.copyfile(source, libraries / name)


def _needed(binary: Path, own: Path) -> list[tuple[str, Path]]:
    """Return the names and paths of the libraries that a trusted binary needs."""
    listed = subprocess.run(
        [LOADER, "--list", binary],
        env={"LD_LIBRARY_PATH": str(own)},
        capture_output=True,
        check=False,
        text=True,
        timeout=_PATIENCE_S,
    )
    return [(one["name"], Path(one["path"])) for one in _NEEDED.finditer(listed.stdout)]
