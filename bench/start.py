"""From nothing to a first answer: the import, and the first question of a new process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import sfumato

RUNS = 7
CARD = {
    "unit": "row",
    "people": "town",
    "version": "1",
    "budget": {"epsilon": 1000, "delta": 0},
    "columns": {"zip": {"type": "text", "keys": ["10001", "10002"]}},
}
FIRST = """
import json, sys, time
begin = time.perf_counter()
import sfumato
imported = time.perf_counter()
with sfumato.open(sys.argv[1]) as vault:
    vault["town"].ask("SELECT zip, COUNT(*) AS n FROM town GROUP BY zip", epsilon=1, fresh=True)
    answered = time.perf_counter()
print(json.dumps([imported - begin, answered - begin]))
"""


def run() -> list[dict[str, object]]:
    """Return a row for each step, in seconds; a new process each time, so nothing is warm."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sfumato.create(folder / "vault", anchor=folder / "anchor")
        (folder / "town.csv").write_text("zip\n" + "10001\n10002\n" * 5000)
        with sfumato.open(folder / "vault") as vault:
            vault.add("town", folder / "town.csv", CARD)
        times = [_once(folder / "vault") for _ in range(RUNS)]
    imports, answers = zip(*times, strict=True)
    steps = {"import sfumato": (imports, 0.5), "to the first answer, import included": (answers, 2)}
    return [
        {"step": step, "seconds": statistics.median(one), "worst": max(one), "target": target}
        for step, (one, target) in steps.items()
    ]


def _once(vault: Path) -> tuple[float, float]:
    ran = subprocess.run(
        [sys.executable, "-c", FIRST, str(vault)], check=True, capture_output=True, text=True
    )
    imported, answered = json.loads(ran.stdout)
    return float(imported), float(answered)
