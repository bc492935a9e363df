"""Compare surveys with pure-ldp and multi-freq-ldpy: `python -m bench.peers.surveys`.

The figures are for a million respondents at epsilon 1, clients and server together. Each library
runs in a separate environment. A task that would take longer than a few minutes is measured on
fewer people and scaled up, and the table says so. Both libraries process one person at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.page import figure, show
from bench.peers.environments import ROOT, python_of
from bench.peers.survey_script import TASKS

PEERS: Final = ("pure_ldp", "multi_freq_ldpy")
PEOPLE: Final = 1_000_000
FEW: Final = 10_000  # to see how long it takes
LONGEST_S: Final = 20.0  # for the million; else it is scaled up from the few
TIMEOUT_S: Final = 900.0
_ONE_CORE: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Took:
    """How long a task took with so many people, or why there is no figure."""

    people: int = 0
    s: float = 0.0
    version: str = ""
    failed: str = ""

    @property
    def million_s(self) -> float:
        """Return the seconds of a million people."""
        return self.s * PEOPLE / self.people


def run(
    peers: Sequence[str] = PEERS, tasks: Sequence[str] = tuple(TASKS)
) -> list[dict[str, object]]:
    """Return one row per task and library; ours is measured in the same run."""
    pythons = {peer: python_of(peer) for peer in peers}
    rows: list[dict[str, object]] = []
    for task in tasks:
        ours = measured("local", Path(sys.executable), task, PEOPLE)
        for peer, python in pythons.items():
            took = scaled(peer, python, task)
            rows.append(row(task, peer, ours, took))
            print(f"{peer}, {task}: done", file=sys.stderr, flush=True)
    return rows


def scaled(peer: str, python: Path | None, task: str) -> Took:
    """Return what a million people took, or the few where those would take too long."""
    if python is None:
        return Took(failed="it could not be installed")
    few = measured(peer, python, task, FEW)
    if few.failed or few.million_s > LONGEST_S:
        return few
    return measured(peer, python, task, PEOPLE)


def measured(peer: str, python: Path, task: str, people: int) -> Took:
    """Run one task of a peer's script."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    paths = str(ROOT) if peer != "local" else f"{ROOT}:{ROOT / 'src'}"
    command = [str(python), "-W", "ignore", "-m", f"bench.peers.{peer}", str(people), task]
    try:
        done = subprocess.run(
            command, env={**kept, **_ONE_CORE, "PYTHONPATH": paths},
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Took(failed=f"stopped after {TIMEOUT_S:.0f} s")
    return read(done.stdout, done.stderr)


def read(output: str, errors: str) -> Took:
    """Return what the script's last line says, or the last thing it complained about."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        said = errors.strip().splitlines()
        return Took(failed=said[-1][:120] if said else "it has no such oracle")
    found = json.loads(lines[-1])
    return Took(found["people"], found["s"], found["version"])


def row(task: str, peer: str, ours: Took, took: Took) -> dict[str, object]:
    """Return the line of the table."""
    line: dict[str, object] = {"task": task, "peer": peer.replace("_", "-")}
    line |= {
        "version": "",
        "seconds": "",
        "measured on": "",
        "ours": figure(ours.million_s),
        "ratio": "",
    }
    if took.failed:
        return line | {"measured on": took.failed}
    ratio = took.million_s / ours.million_s
    return line | {
        "version": took.version, "seconds": figure(took.million_s),
        "measured on": f"{took.people:,} people", "ratio": figure(ratio),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", default=PEERS)
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument(
        "--page", action="store_true", help="also write the table into docs/reference/figures.md"
    )
    asked = parser.parse_args()
    show(
        "surveys beside other libraries",
        "python -m bench.peers.surveys",
        lambda: run(asked.peers or PEERS, asked.tasks),
        asked.page,
    )
