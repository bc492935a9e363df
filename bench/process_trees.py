"""Measure time and memory of a block that starts 1, 10 or 100 processes, in both timings.

The program is a Python script in a small image. It starts its processes, which all run at the same
time, and waits for them. The seconds are those of one block, from its order to its result. The
memory is the most that all its processes used at once, as the keeper measured it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the image is that of the tests

from sfumato.sandbox.ports import BATCH, SandboxLimits
from support.tree_images import Image

REPEATS = 5
LIMITS = SandboxLimits(cpu_s=20.0)
SCRIPT = """#!/usr/bin/env python3
import os, subprocess, sys
os.makedirs(sys.argv[2], exist_ok=True)
made = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range({processes})]
for one in made: one.stdin.close()
for one in made: one.wait()
open(sys.argv[2] + "/answer.txt", "w").write("1")
"""


def run() -> list[dict[str, object]]:
    """Return a row for each number of processes and timing."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        image = Image(Path(folder))
        try:
            return [
                _measured(image, processes, limits)
                for limits in (LIMITS, replace(LIMITS, timing=BATCH))
                for processes in (0, 1, 10, 100)
            ]
        finally:
            image.pool.close()
            image.kept.remove(image.own)


def _measured(image: Image, processes: int, limits: SandboxLimits) -> dict[str, object]:
    script = SCRIPT.format(processes=processes)
    image.tried(script, limits)  # the sandbox is warm afterwards
    seconds, memory, cpu = [], [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        tried = image.tried(script, limits)
        seconds.append(time.perf_counter() - began)
        memory.append(tried.use.memory / (1 << 20))
        cpu.append(tried.use.cpu_s)
    return {
        "timing": limits.timing,
        "started processes": processes,
        "s a block": round(statistics.median(seconds), 3),
        "s of processor time": round(statistics.median(cpu), 3),
        "MB at most": round(max(memory), 1),
    }
