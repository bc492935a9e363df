"""An image with a shell and Python, whose programs run as process trees in real sandboxes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from sfumato.sandbox.base_environment import environment, with_own
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.ports import BlockJob, SandboxLimits, TrialJob, TrialResult
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.sandbox.sandbox_process import DONE, Ran, SandboxProcess
from sfumato.system.randomness import SystemRandomSource
from support.container_images import PYTHON, layout, python_layer, shell_layer
from support.sandbox_blocks import ROWS

RESULT = "answer.txt"
ENOUGH = SandboxLimits(cpu_s=8.0)


class Patient(SandboxLimits):
    """Limits of a host that is never in a hurry, however busy it is."""

    @property
    def wall_s(self) -> float:
        """Return more than any test takes."""
        return 60.0


class Image:
    """An image, by default with a shell and Python, and sandboxes that run its programs."""

    def __init__(
        self,
        place: Path,
        layers: Sequence[bytes] = (),
        settings: Mapping[str, str] = MappingProxyType(PYTHON),
        user: str = "",
        made: tuple[Path, str] | None = None,
    ) -> None:
        """Add an image of these layers; or one that is made already, a layout and its digest."""
        self.kept = Environments(place / "own")
        self.place = place
        self.pool = SandboxPool(
            environment, SystemRandomSource(), sleep=lambda _: None, own=self.kept
        )
        if made is None:
            layers = layers or [shell_layer(), python_layer(slim=False)]
            digest = layout(
                place / "layout", layers, settings=settings, packed=False, folder="/opt/python",
                user=user,
            )  # fmt: skip
            made = place / "layout", digest
        self.own = self.kept.add_image(*made).name
        (place / "rows").write_text(ROWS)

    def told(self, script: str) -> dict[str, object]:
        """Return the message of a program that is this text."""
        return {
            "kind": "program", "source": script, "paths": [RESULT], "entry": [], "through": [],
            "folder": "", "settings": ["LD_LIBRARY_PATH=/lib64"],
        }  # fmt: skip

    def sandbox(self) -> SandboxProcess:
        """Return a sandbox with the image, beside the pool's."""
        files = self.kept.files(self.own)
        made = with_own(environment(), files, is_image=True)
        return SandboxProcess(made, min(os.sched_getaffinity(0)), SystemRandomSource())

    def ran(self, script: str, limits: SandboxLimits = ENOUGH) -> Ran:
        """Return what one block of real rows returns."""
        job = BlockJob(self.told(script), (str(self.place / "rows"),), (), limits, own=self.own)
        found = self.pool._run_blocks(job)
        assert found is not None
        return found[1][0]

    def tried(self, script: str, limits: SandboxLimits = ENOUGH) -> TrialResult:
        """Return what one block of synthetic rows returns, and all that it printed."""
        job = TrialJob(self.told(script), (ROWS.encode(),), limits, own=self.own)
        return self.pool.try_out(job)[0]

    def numbers(self, program: str) -> dict[str, float]:
        """Return what a Python program returns: a JSON object of numbers."""
        ran = self.ran(program)
        assert ran.ended == DONE
        found: dict[str, float] = json.loads(bytes.fromhex(json.loads(ran.output)[RESULT]))
        return found


def bash(script: str) -> str:
    return f"#!/bin/bash\nmkdir -p $2\n{script}\n"


def answer(text: str) -> bytes:
    return json.dumps({RESULT: text.encode().hex()}).encode()
