"""Compare private counts and sums with plain SQL on the same table, in DuckDB.

`prepare` reads ten million rows of a million people from Parquet. The bench times each private
measure (`ms`) and the plain GROUP BY of the same fixed-point integers (`plain ms`). Both have the
same filter, the same worker and the same pipe, and take turns. The ratio is that of the best times,
because machines are shared and noisy. The plain query groups by the stored code, which is the
fastest plain SQL.

No line measures a raw table, because sfumato prepares every source, also if the privacy unit is a
row (notebook 0079; `bench.raw` measures raw tables).
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.engines.duckdb import engine as engine_module
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.message_frames import Header
from sfumato.query.expression import Arithmetic, Compare, Constant, LiteralValue, Predicate, Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.vault.card.data_card import read_card
from sfumato.vault.engine_port import PrepareOrder, SourceFile

ROWS: Final = 10_000_000
TURNS: Final = 5
SALT: Final = bytes(range(32))
CLINICS: Final = 10
CODES: Final = 100_000
TOP: Final = 1_000_000  # cents
_SHAPE: Final = {
    "unit": "who",
    "budget": {"epsilon": 1},
    "limits": {"rows": 10**9},
    "max_groups": 3,
    "max_rows": 20,
    "columns": {
        "clinic": {"type": "integer", "keys": list(range(CLINICS))},
        "cost": {"type": "number", "lower": 0, "upper": TOP // 100, "step": Fraction(1, 100)},
        "icd": {"type": "text"},
    },
}
# people of very different numbers of rows: half of all rows are of people that are few
_SOURCE: Final = """
COPY (SELECT 'p' || CAST(CAST(floor({people} * pow((hash(i, 1) % 1000000007) / 1000000007.0, 1.5))
    AS BIGINT) AS VARCHAR) AS who,
  CAST(hash(i, 2) % 10 AS INTEGER) AS clinic,
  CASE WHEN hash(i, 3) % 50 > 0 THEN CAST(hash(i, 4) % 1100000 AS DOUBLE) / 100 END AS cost,
  'icd-' || CAST(hash(i, 5) % {codes} AS VARCHAR) AS icd
FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)
"""
_CLINIC: Final = (Key(Ref("k0"), CLINICS),)
_ICD: Final = (Key(Ref("v2"), None),)
_MOST_ROWS: Final = Compare(Ref("v1"), ">=", Constant("number", str(TOP // 10)))
_COST: Final = Ref("v1")
COUNT_SUM: Final = (Tally("rows"), Tally("sum", _COST))
MEAN: Final = (Tally("sum", _COST), Tally("values", _COST))
CLAMPED: Final = (Tally("rows"), Tally("sum", _COST, clamp=(0, 5 * TOP)))
_POINTS: Final = TOP // 16 + 1  # the finest grid that a quantile by ten keys is chosen from
_GRID: Final = Arithmetic("/", _COST, LiteralValue(Constant("number", "16")))
QUANTILE: Final = (Tally("histogram", _GRID, size=_POINTS),)


_MEDIAN: Final = (
    'SELECT k0 AS cell, CAST(quantile_cont(v1, 0.5) AS BIGINT) AS t0 FROM "rows" GROUP BY k0'
)


@dataclass(frozen=True)
class Line:
    """One figure: a private measure, and the plain query of the same."""

    name: str
    unit: str
    keys: tuple[Key, ...]
    tallies: tuple[Tally, ...]
    where: Predicate | None = None
    target: float | None = None
    rows: int = 20  # of a person and group; 20 are the card's own
    plain_sql: str | None = None

    @property
    def is_private(self) -> bool:
        """Say whether the keys are private."""
        return bool(self.keys) and self.keys[0].size is None

    def measure(self) -> Measure:
        """Return the private measure: 3 declared groups a person or 5 private ones."""
        people = (Tally("people"),) if self.is_private else ()
        groups = 5 if self.is_private else 3
        return Measure(
            self.where, self.keys, self.tallies + people, self.unit != "row", groups, self.rows
        )

    def plain(self) -> Header:
        """Return the plain statement, with as many columns as the private answer has."""
        if self.plain_sql is not None:
            return {"statements": [{"sql": self.plain_sql, "parameters": [], "tallies": [0]}]}
        code = "c2" if self.is_private else "k0"
        tallies = {"rows": "count(*)", "values": "count(v1)", "sum": "CAST(sum(v1) AS BIGINT)"}
        texts = [f"{tallies[t.kind]} AS t{i}" for i, t in enumerate(self.tallies)]
        if self.is_private:
            texts.append(f"count(*) AS t{len(texts)}")
        where = "" if self.where is None else f" WHERE v1 >= {TOP // 10}"
        name = "code" if self.is_private else "cell"
        sql = f'SELECT {code} AS {name}, {", ".join(texts)} FROM "rows"{where} GROUP BY {code}'
        if self.is_private:
            names = ", ".join(f"t{i}" for i in range(len(texts)))
            sql = f"SELECT value AS g0, {names} FROM ({sql}) JOIN texts2 USING (code)"
        return {"statements": [{"sql": sql, "parameters": [], "tallies": [*range(len(texts))]}]}


LINES: Final = (
    Line("count, 10 keys", "row", _CLINIC, (Tally("rows"),), target=1.1),
    Line("sum, 10 keys", "row", _CLINIC, COUNT_SUM, target=1.1),
    Line("mean, 10 keys", "row", _CLINIC, MEAN, target=1.1),
    Line("count and sum, 10 keys", "who", _CLINIC, COUNT_SUM, target=1.0),
    Line("count and sum, 100k private keys", "who", _ICD, COUNT_SUM, target=1.0),
    Line("the same, 10 keys, filtered", "who", _CLINIC, COUNT_SUM, _MOST_ROWS, 5.0),
    Line("the same, 100k private keys, filtered", "who", _ICD, COUNT_SUM, _MOST_ROWS, 3.5),
    Line("per-person sum clamped, 10 keys", "who", _CLINIC, CLAMPED, target=3.0),
    Line("count and sum, 10 keys, 10 rows a group", "who", _CLINIC, COUNT_SUM, target=1.0, rows=10),
    Line("the same, sum clamped", "who", _CLINIC, CLAMPED, target=3.0, rows=10),
    Line("median, 10 keys", "who", _CLINIC, QUANTILE, target=3.0, plain_sql=_MEDIAN),
)


def run(rows: int = ROWS, turns: int = TURNS) -> list[dict[str, object]]:
    """Return the seconds of the preparation, and a line for each unit and measure."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        source = source_of(Path(folder), rows)
        lines: list[dict[str, object]] = []
        for unit in ("row", "who"):
            engine = DuckDBEngine(SALT, deadline_s=600)
            table, seconds = prepared(engine, Path(folder), unit, source)
            size = Path(table).stat().st_size >> 20
            lines.append({"what": f"prepare, unit {unit}", "s": round(seconds, 1), "MB": size})
            lines += [_line(engine, table, line, turns) for line in LINES if line.unit == unit]
            engine.close()
    return lines


def source_of(folder: Path, rows: int) -> Path:
    import duckdb

    path = folder / "rows.parquet"
    duckdb.sql(_SOURCE.format(people=max(1, rows // 10), rows=rows, path=path, codes=CODES))
    return path


def prepared(engine: DuckDBEngine, folder: Path, unit: str, source: Path) -> tuple[str, float]:
    table = str(folder / f"{unit}.duckdb")
    card = read_card("bench", {**_SHAPE, "unit": unit})
    begun = time.perf_counter()
    engine.prepare(
        PrepareOrder(
            (SourceFile(str(source)),), table, card, SALT, (), str(folder / f"{unit}.json")
        )
    )
    return table, time.perf_counter() - begun


def _line(engine: DuckDBEngine, table: str, line: Line, turns: int) -> dict[str, object]:
    measure = line.measure()
    private, plain = [], []
    for _ in range(turns):
        private.append(timed(lambda: engine.measure(table, measure)))
        plain.append(plainly(engine, table, line))
    best, base = min(private), min(plain)
    return {
        "what": f"{line.name}, unit {line.unit}",
        "ms": round(best * 1000, 1),
        "plain ms": round(base * 1000, 1),
        "ratio": round(best / base, 2),
        "target": line.target,
        "worker MB": high_water_mb(engine),
    }


def plainly(engine: DuckDBEngine, table: str, line: Line) -> float:
    """Time the plain query through the same engine and worker: only the SQL is another."""
    measure = line.measure()
    if line.plain_sql is not None:  # one number a cell, and no histogram
        measure = replace(measure, tallies=(Tally("rows"),))
    quick_way = engine_module._quick_way
    engine_module._quick_way = lambda *_: line.plain()
    try:
        return timed(lambda: engine.measure(table, measure))
    finally:
        engine_module._quick_way = quick_way


def high_water_mb(engine: DuckDBEngine) -> int:
    """Return the most memory that the worker ever had at once."""
    status = Path(f"/proc/{engine.worker_pid()}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) >> 10 if found else 0


def timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=TURNS)
    asked = parser.parse_args()
    for found in run(asked.rows, asked.turns):
        print(found, flush=True)
