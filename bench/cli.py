"""Measure how long the command line takes to start, compared with a bare Python interpreter.

`ms` is the time of a command in milliseconds. The ratio divides it by the time of `python -c pass`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sfumato

RUNS = 7


def run() -> list[dict[str, object]]:
    """Return one row per command: milliseconds, and how many bare interpreters that is."""
    with tempfile.TemporaryDirectory() as folder:
        vault = Path(folder) / "vault"
        sfumato.create(vault, anchor=Path(folder) / "anchor")
        entry = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "sfumato --help": [sys.executable, "-c", entry, "--help"],
            "sfumato datasets": [sys.executable, "-c", entry, "datasets", "--vault", str(vault)],
        }
        times = {name: _median_ms(command) for name, command in commands.items()}
    bare = times["python -c pass"]
    return [
        {"command": name, "ms": round(ms), "ratio to bare python": round(ms / bare, 1)}
        for name, ms in times.items()
    ]


def _median_ms(command: list[str]) -> float:
    return statistics.median(_once_ms(command) for _ in range(RUNS))


def _once_ms(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return 1000 * (time.perf_counter() - start)
