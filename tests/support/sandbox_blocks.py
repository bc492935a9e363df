"""Bubbles for tests: one program, one block, and what its keeper says."""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

from sfumato.app.vault import OpenVault
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.container_runtimes import read_runtime
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.sandbox_process import Ran, SandboxProcess, SandboxProcessEnded
from sfumato.system.randomness import SystemRandomSource

ROWS: Final = "id\theight\nann\t170\nbob\t180\n"
needs_bubbles: Final = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: `make system` brings it"
)


def _installed() -> tuple[str, ...]:
    """Return what is tested: the default always; podman and apptainer where they are.

    Podman is asked to start with runc if that is here: crun needs rights that a container lacks.
    Docker needs an image, whose digest is named by whoever has a daemon (notebook 0092).
    """
    found = ["bubblewrap"]
    if shutil.which("podman") is not None:
        found.append("podman:runc" if shutil.which("runc") else "podman")
    if shutil.which("apptainer") is not None:
        found.append("apptainer")
    if image := os.environ.get("SFUMATO_TEST_DOCKER"):
        found.append(f"docker:{image}")
    return tuple(found)


RUNTIMES: Final = _installed()


def bubble(runtime: str = "bubblewrap") -> SandboxProcess:
    """Return a warm bubble on some processor."""
    chosen = read_runtime(runtime)
    return SandboxProcess(environment(), min(os.sched_getaffinity(0)), SystemRandomSource(), chosen)


def hurry(vault: OpenVault) -> None:
    """Let blocks begin as soon as the last one has ended, and answers leave at once."""
    vault.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool


@functools.cache
def starts(runtime: str) -> bool:
    """Say whether a bubble of it starts here and answers."""
    try:
        made = bubble(runtime)
    except SandboxProcessEnded:
        return False
    made.kill()
    return True


def ran_in(
    made: SandboxProcess,
    source: str,
    name: str,
    rows: str = ROWS,
    limits: SandboxLimits = SandboxLimits(cpu_s=2.0),  # noqa: B008  # frozen
) -> Ran:
    """Return what one run of the function says."""
    return run(
        made, {"kind": "function", "source": source, "name": name, "outputs": ["m"]}, limits, rows
    )


def run(
    made: SandboxProcess,
    program: dict[str, object],
    limits: SandboxLimits,
    rows: str = ROWS,
) -> Ran:
    """Return what one block of these rows gives."""
    with tempfile.TemporaryDirectory() as folder:
        file, data = Path(folder, "program"), Path(folder, "rows")
        file.write_text(json.dumps(program))
        data.write_text(rows)
        opened = os.open(file, os.O_RDONLY), os.open(data, os.O_RDONLY)
        try:
            return made.run(*opened, limits)
        finally:
            for one in opened:
                os.close(one)
