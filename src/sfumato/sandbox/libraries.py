"""Which shared libraries the copy of the interpreter needs, and where this machine keeps them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LOADER: Final = Path("/lib64/ld-linux-x86-64.so.2")
_AT_RUN_TIME: Final = "libgcc_s.so.1"  # what the C library looks for when a thread ends
_NEEDED: Final = re.compile(r"^\s*(?P<name>\S+) => (?P<path>/.+) \(0x", re.MULTILINE)
_PATIENCE_S: Final = 30


def copy_libraries(binaries: Iterable[Path], draft: Path, own: Path) -> None:
    """Copy what those need from outside of the draft, and what loads it, into `draft/libs`."""
    libraries = draft / "libs"
    libraries.mkdir()
    shutil.copy2(LOADER, libraries / LOADER.name)
    for binary in binaries:
        for name, path in _needed(binary, own):
            if not path.is_relative_to(draft) and not (libraries / name).exists():
                shutil.copy2(path, libraries / name)
                if name.startswith("libc.so") and (path.parent / _AT_RUN_TIME).exists():
                    shutil.copy2(path.parent / _AT_RUN_TIME, libraries / _AT_RUN_TIME)


def _needed(binary: Path, own: Path) -> list[tuple[str, Path]]:
    """Return the names of the libraries that it needs, and where they are found."""
    listed = subprocess.run(
        [LOADER, "--list", binary],
        env={"LD_LIBRARY_PATH": str(own)},
        capture_output=True,
        check=False,
        text=True,
        timeout=_PATIENCE_S,
    )
    return [(one["name"], Path(one["path"])) for one in _NEEDED.finditer(listed.stdout)]
