"""Measure how long programs take in the sandbox, for 200 blocks of 50 people each.

A pipeline runs a program once on each block of people. Each run is in a sandbox made with
bubblewrap. The bench compares a program that returns a constant with one that computes
a mean with pandas. A release waits until a fixed time slot is over, so that its time reveals
nothing. The last column is the length of that slot; the measured seconds do not include the wait.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from sfumato.dp.ports import IntegerArray
from sfumato.release.unseal import unseal
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.block_timing import slot_s
from sfumato.sandbox.ports import BATCH, BlockJob, SandboxLimits
from sfumato.sandbox.program_outputs import read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.sealed import Sealed

BLOCKS, PEOPLE = 200, 50
LIMITS = SandboxLimits(cpu_s=0.08)
OUTPUTS = read_outputs([{"name": "m", "lower": 100, "upper": 220}])
NOTHING = "def f(rows):\n return 170.0\n"
MEAN = "def f(rows):\n return rows['height'].mean()\n"


def run() -> list[dict[str, object]]:
    """Return how long a job of 200 blocks takes, and what is left out of it for the padding."""
    began = time.perf_counter()
    made = environment()
    rows: list[dict[str, object]] = [_row("environment (copied once)", began)]
    sandbox = SandboxPool(lambda: made, SystemRandomSource(), sleep=lambda _: None)
    began = time.perf_counter()
    sandbox.check(LIMITS)
    rows.append(_row(f"{sandbox.lanes(LIMITS)} warm sandboxes", began))
    with tempfile.TemporaryDirectory() as folder:
        inputs = _inputs(Path(folder))
        for limits in (LIMITS, replace(LIMITS, timing=BATCH)):
            for name, source in (("a constant", NOTHING), ("a pandas mean", MEAN)):
                began = time.perf_counter()
                said = sandbox.run(_job(source, inputs, limits))
                taken = time.perf_counter() - began
                lanes = sandbox.lanes(limits)
                rows.append({
                    "what": f"{name}, {BLOCKS} blocks of {PEOPLE} rows, {limits.timing}",
                    "seconds": taken,
                    "ms a block and sandbox": taken * 1000 * lanes / BLOCKS,
                    "slot it is padded to, s": slot_s(BLOCKS, lanes, limits),
                    "blocks with a number": _numbers(said),
                })  # fmt: skip
    sandbox.close()
    return rows


def _row(what: str, began: float) -> dict[str, object]:
    return {"what": what, "seconds": time.perf_counter() - began}


def _inputs(folder: Path) -> tuple[str, ...]:
    draws = np.random.default_rng(7)
    paths = []
    for block in range(BLOCKS):
        heights = draws.normal(170, 10, PEOPLE)
        path = folder / f"{block}.tsv"
        path.write_text("height\n" + "".join(f"{height:.1f}\n" for height in heights))
        paths.append(str(path))
    return tuple(paths)


def _numbers(said: Sealed[IntegerArray]) -> int:
    """Return how many of these made-up blocks gave another number than the middle of the range."""
    return int((unseal(said) != OUTPUTS[0].middle).sum())


def _job(source: str, inputs: tuple[str, ...], limits: SandboxLimits) -> BlockJob:
    program: dict[str, object] = {
        "kind": "function", "source": source, "name": "f", "outputs": ["m"],
    }  # fmt: skip
    return BlockJob(program, inputs, OUTPUTS, limits)
