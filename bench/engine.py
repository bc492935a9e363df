"""Private counting and adding up against plain SQL on the same table; `python -m bench.engine`.

Ten million rows of a million people go in as Parquet, through `prepare`. Each private measure is
timed beside the plain GROUP BY of the same fixed-point integers, in the same worker, turn by turn;
the ratio is of the best times, for machines are shared and noisy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.core.card import read_card
from sfumato.core.measure import KeyColumn, Measure, Tally
from sfumato.core.ports import PrepareOrder
from sfumato.engines import duckdb as engine_module
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.plan.lower import Statement, lower

ROWS: Final = 10_000_000
TURNS: Final = 5
SALT: Final = bytes(range(32))
CLINICS: Final = 10
TOP: Final = 1_000_000  # cents
_SHAPE: Final = {
    "unit": "who",
    "budget": {"epsilon": 1},
    "limits": {"rows": 10**9},
    "columns": {
        "clinic": {"type": "integer", "keys": list(range(CLINICS))},
        "cost": {"type": "number", "lower": 0, "upper": TOP // 100, "step": Fraction(1, 100)},
    },
}
_SOURCE: Final = """
COPY (SELECT 'p' || CAST(hash(i, 1) % {people} AS VARCHAR) AS who,
  CAST(hash(i, 2) % 10 AS INTEGER) AS clinic,
  CASE WHEN hash(i, 3) % 50 > 0 THEN CAST(hash(i, 4) % 1100000 AS DOUBLE) / 100 END AS cost
FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)
"""
_KEY: Final = (KeyColumn("k0", CLINICS),)
_PLAIN: Final = Statement(
    'SELECT CAST(k0 AS BIGINT) AS cell, count(*) AS t0, CAST(sum(v1) AS BIGINT) AS t1 FROM "rows"'
    " WHERE k0 IS NOT NULL GROUP BY cell",
    (),
)
MEASURES: Final[dict[str, tuple[Tally, ...]]] = {
    "count": (Tally("rows"),),
    "sum": (Tally("sum", "v1"),),
    "mean-parts": (Tally("sum", "v1", 2, -TOP), Tally("values", "v1")),
}


def run(rows: int = ROWS) -> list[dict[str, object]]:
    """Return the seconds of the preparation, and a line for each unit and measure."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        engine = DuckDBEngine(SALT, deadline_s=600)
        lines: list[dict[str, object]] = []
        for unit in ("row", "who"):
            table, seconds = _prepared(engine, Path(folder), unit, rows)
            size = Path(table).stat().st_size >> 20
            lines.append({"what": f"prepare, unit {unit}", "s": round(seconds, 1), "MB": size})
            lines += [_line(engine, table, unit, name) for name in MEASURES]
        engine.close()
    return lines


def _prepared(engine: DuckDBEngine, folder: Path, unit: str, rows: int) -> tuple[str, float]:
    source = folder / "rows.parquet"
    if not source.exists():
        import duckdb

        duckdb.sql(_SOURCE.format(people=max(1, rows // 10), rows=rows, path=source))
    table = str(folder / f"{unit}.duckdb")
    card = read_card("bench", {**_SHAPE, "unit": unit})
    begun = time.perf_counter()
    engine.prepare(PrepareOrder(str(source), table, card, SALT, (), str(folder / f"{unit}.json")))
    return table, time.perf_counter() - begun


def _line(engine: DuckDBEngine, table: str, unit: str, name: str) -> dict[str, object]:
    measure = Measure(None, _KEY, MEASURES[name], unit != "row", 3, 20)
    both = replace(measure, tallies=(Tally("rows"), Tally("sum", "v1")))
    private, plain = [], []
    for _ in range(TURNS):
        private.append(_timed(lambda: engine.measure(table, measure)))
        plain.append(_plainly(engine, table, both))
    best, base = min(private), min(plain)
    return {
        "what": f"{name}, unit {unit}",
        "ms": round(best * 1000, 1),
        "plain ms": round(base * 1000, 1),
        "ratio": round(best / base, 2),
    }


def _plainly(engine: DuckDBEngine, table: str, measure: Measure) -> float:
    """Time the plain query through the same engine and worker: only the SQL is another."""
    engine_module.__dict__["lower"] = lambda *_: _PLAIN
    try:
        return _timed(lambda: engine.measure(table, measure))
    finally:
        engine_module.__dict__["lower"] = lower


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    for line in run(parser.parse_args().rows):
        print(line)
