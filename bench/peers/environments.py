"""An environment for each peer, under .bench/peers, with the versions that its list pins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".bench" / "peers"
LISTS: Final = Path(__file__).parent


def python_of(peer: str) -> Path | None:
    """Return the interpreter of the peer's environment, made if need be; None if it cannot be."""
    folder, pinned = CACHE / peer, (LISTS / f"{peer}.txt").read_text("utf-8")
    python, made = folder / "bin" / "python", folder / "made-of.txt"
    if made.is_file() and made.read_text("utf-8") == pinned:
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    steps = (
        ("venv", "--clear", "--python", sys.executable, str(folder)),
        # compiled now: else processes that start at once would all compile the same
        ("pip", "install", "--compile-bytecode", "--python", str(python), "-r",
         str(LISTS / f"{peer}.txt")),
    )  # fmt: skip
    if not all(_is_done(step, folder.with_suffix(".log")) for step in steps):
        return None
    made.write_text(pinned, "utf-8")
    return python


def _is_done(step: tuple[str, ...], log: Path) -> bool:
    """Run a step of uv; what it says goes into a file, for it may name the index."""
    uv = Path(sys.executable).with_name("uv")
    with log.open("a") as file:
        done = subprocess.run([uv, *step], stdout=file, stderr=file, check=False)
    return done.returncode == 0
