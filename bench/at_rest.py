"""What it costs that rows are sealed at rest; `python -m bench.at_rest [ROWS]`.

The same rows are prepared by an engine that seals them and by one that does not; then both are
asked turn by turn: by a worker that has just been started, and by one that has the table open.
Times are the best of a few turns, for machines are shared and noisy.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.engine import LINES, SALT, prepared, source_of, timed
from bench.page import table
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.memory_scratch import MemoryScratch
from sfumato.storage.run_folders import FileDrafts
from sfumato.system.randomness import SystemRandomSource

ROWS: Final = 1_000_000
TURNS: Final = 5
MEMORY: Final = "/dev/shm"  # noqa: S108  # where rows lie open for a moment
_MEASURE: Final = next(line for line in LINES if line.name == "count and sum, 10 keys").measure()


def run(rows: int = ROWS, turns: int = TURNS) -> list[dict[str, object]]:
    """Return a row for each step: seconds unsealed and sealed, and the ratio."""
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir=MEMORY) as memory:
        source = source_of(Path(disk), rows)
        dice = SystemRandomSource()
        shelter = MemoryScratch(dice.draw(32), dice.draw, FileDrafts(Path(memory)))
        plain, sealed = DuckDBEngine(SALT), DuckDBEngine(SALT, shelter=shelter)
        steps: dict[str, list[tuple[float, float]]] = {"prepare": [], "first": [], "next": []}
        for turn in range(turns):
            times: list[dict[str, float]] = []
            for engine, name in ((plain, "plain"), (sealed, "sealed")):
                folder = Path(disk, f"{name}{turn}")
                folder.mkdir()
                made, seconds = prepared(engine, folder, "who", source)
                times.append({"prepare": seconds, **_asked(engine, made)})
            for step, found in steps.items():
                found.append((times[0][step], times[1][step]))
        plain.close()
        sealed.close()
        size = Path(made).stat().st_size >> 20
    return [{"rows": rows, "MB": size, **_line(step, found)} for step, found in steps.items()]


def _asked(engine: DuckDBEngine, made: str) -> dict[str, float]:
    engine.close()  # so that the worker is a new one
    first = timed(lambda: engine.measure(made, _MEASURE))
    return {
        "first": first,
        "next": min(timed(lambda: engine.measure(made, _MEASURE)) for _ in "12345"),
    }


def _line(step: str, found: list[tuple[float, float]]) -> dict[str, object]:
    plain, sealed = (min(times) for times in zip(*found, strict=True))
    return {
        "what": {"first": "first question of a worker", "next": "the next"}.get(step, step),
        "unsealed s": round(plain, 4),
        "sealed s": round(sealed, 4),
        "ratio": round(sealed / plain, 2),
    }


if __name__ == "__main__":
    print(table(run(*map(int, sys.argv[1:]))))
