"""Measure the time from a new installation to the import and to the first answer.

The wheel is built and installed in a new environment that holds only the core lock's packages and
no extra. Each run is a new process, so only the system's file cache is warm. `cpu s` is the
processor time of the process and all that it started. A busy machine changes it less.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RUNS: Final = 7
CARD: Final = {
    "unit": "row",
    "people": "town",
    "version": "1",
    "budget": {"epsilon": 1000, "delta": 0},
    "columns": {"zip": {"type": "text", "keys": ["10001", "10002"]}},
}
MAKE: Final = """
import json, sys
import sfumato
sfumato.create("vault", anchor="anchor")
with open("town.csv", "w") as file:
    file.write("zip\\n" + "10001\\n10002\\n" * 5000)
with sfumato.open("vault") as vault:
    vault.add("town", "town.csv", json.loads(sys.argv[1]))
"""
FIRST: Final = """
import json, time
begin = time.perf_counter()
import sfumato
imported, import_cpu = time.perf_counter(), time.process_time()
with sfumato.open("vault") as vault:
    vault["town"].ask("SELECT zip, COUNT(*) AS n FROM town GROUP BY zip", epsilon=1, fresh=True)
    answered = time.perf_counter()
import os
spent = os.times()
print(json.dumps([imported - begin, import_cpu, answered - begin, sum(spent[:4])]))
"""
COMMAND: Final = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
SQL: Final = "SELECT COUNT(*) AS n FROM town"


def run() -> list[dict[str, object]]:
    """Return a row for each step, in seconds, the median of a few processes."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as name:
        folder = Path(name)
        python = wheel_alone(folder)
        _said(python, folder, "-c", MAKE, json.dumps(CARD))
        times = [json.loads(_said(python, folder, "-c", FIRST)) for _ in range(RUNS)]
        ask = ("-c", COMMAND, "ask", "--vault", "vault", "town", SQL, "--epsilon", "0.5", "--fresh")
        asked = [_timed(python, folder, *ask) for _ in range(RUNS)]
    wholes, whole_cpu = zip(*asked, strict=True)
    imports, import_cpu, answers, answer_cpu = zip(*times, strict=True)
    return [
        _row("import sfumato", imports, import_cpu, 0.5),
        _row("to the first answer, import included", answers, answer_cpu, 2),
        _row("sfumato ask, the whole command", wholes, whole_cpu, None),
    ]


def wheel_alone(folder: Path) -> Path:
    """Return the interpreter of a new environment that holds the wheel and what it needs."""
    here = (sys.executable, "-m")
    _do(*here, "hatchling", "build", "-t", "wheel", "-d", str(folder))
    _do(*here, "venv", "--without-pip", str(folder / "env"))
    python, (wheel,) = folder / "env" / "bin" / "python", folder.glob("*.whl")
    put = (str(Path(sys.executable).parent / "uv"), "pip", "install", "-q", "--compile-bytecode",
           "--no-deps", "--python", str(python))  # fmt: skip
    _do(*put, "--require-hashes", "-r", str(ROOT / "requirements" / "core.lock"))
    _do(*put, str(wheel))
    return python


def _do(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def _said(python: Path, folder: Path, *words: str) -> str:
    ran = subprocess.run(
        [python, *words], cwd=folder, check=True, capture_output=True, text=True,
        env={"HOME": str(folder)},
    )  # fmt: skip
    return ran.stdout


def _timed(python: Path, folder: Path, *words: str) -> tuple[float, float]:
    """Return the seconds of a whole process: of the clock, and of the processor."""
    before = os.times()
    _said(python, folder, *words)
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])
    return after.elapsed - before.elapsed, cpu


def _row(
    step: str, seconds: Sequence[float], cpu: Sequence[float], target: float | None
) -> dict[str, object]:
    return {
        "step": step,
        "seconds": statistics.median(seconds),
        "worst": max(seconds),
        "cpu s": statistics.median(cpu),
        "target": target,
    }
