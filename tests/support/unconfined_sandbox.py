"""A sandbox that holds nobody: for what becomes of files, once a program has run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sfumato.app.vault import OpenVault
from sfumato.dp.ports import IntegerArray
from sfumato.features.airlock.release import AirlockPorts
from sfumato.features.pipelines.release import PipelinePorts
from sfumato.sandbox.ports import BlockJob, SandboxLimits, TrialJob, TrialResult, output_path
from sfumato.vault.sealed import Sealed


class Bare:
    """A sandbox that holds nobody: for what becomes of files, once a program has run."""

    def environment(self, own: str = "") -> str:
        """Return something."""
        del own
        return "bare"

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        """Run one block at a time."""
        del limits, own
        return 1

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise nothing."""

    def run_each(self, job: BlockJob) -> None:
        """Run the program as a bubble would, in a process that may do anything."""
        paths: Any = job.program["paths"]
        for block in job.inputs:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                for name in ("in", "out"):
                    (place / name).mkdir()
                (place / "in" / "participants.tsv").write_bytes(Path(block).read_bytes())
                (place / "program.py").write_text(str(job.program["source"]))
                words = [
                    sys.executable,
                    *(str(place / n) for n in ("program.py", "in", "out")),
                    "group",
                ]
                subprocess.run(words, stderr=subprocess.DEVNULL, check=False)
                left = {name: place / "out" / name for name in paths}
                said = {name: p.read_bytes().hex() for name, p in left.items() if p.is_file()}
            Path(output_path(block)).write_text(json.dumps(said))

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        raise AssertionError

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        raise AssertionError

    def close(self) -> None:
        """Have nothing to let go of."""


def lay_bare(vault: OpenVault) -> None:
    """Give the vault's airlock the sandbox that holds nobody."""
    door, files = vault.house.desk.pipelines.door, vault.house.desk.airlock.door.files
    programs = PipelinePorts(door.ledger, door.engine, Bare(), door.pool, door.drafts)
    vault.house.desk.airlock.__dict__["door"] = AirlockPorts(programs, files)
