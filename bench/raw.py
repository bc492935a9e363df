"""Measure row-level queries on an unprepared table: `python -m bench.raw`.

sfumato has no such queries, because it prepares every source (decision 0015). This bench measures
possible ways by hand, on a DOUBLE or a DECIMAL column with 10 declared keys. Each way is compared
with the plain GROUP BY of the same fixed-point integers on the same unprepared table. Each must
give the same sums as the prepared table. The figures are processor time of this process; all ways
take turns, and the best turn counts.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray

from sfumato.engines.duckdb.worker import _keep_pages
from sfumato.engines.ingest.cell_sql import stored, trimmed
from sfumato.engines.ingest.prepare import typed_cell
from sfumato.engines.shared.locked_connection import Room, lock_statements
from sfumato.vault.card.columns import Column

ROWS: Final = 3_000_000
TURNS: Final = 7
KEYS: Final = 10
CENT: Final = 100
HIGH: Final = 10_000  # the cost's upper bound; a tenth of the rows is above it
COST: Final = Column("cost", "number", 0, HIGH * CENT, Fraction(1, CENT))
_RANGE: Final = 1 << 19
_WHERE: Final = f"WHERE clinic IN ({', '.join(map(str, range(KEYS)))})"
_TALLIES: Final = {
    "count": "count(*)",
    "sum": "count(*), sum({v})",
    "mean": "sum({v}), count({v})",
}
_SOURCE: Final = """
CREATE TABLE raw AS SELECT CAST(hash(i, 2) % 10 AS INTEGER) AS clinic, cost,
  CAST(cost AS DECIMAL(12, 2)) AS fixed
FROM (SELECT i, CASE WHEN hash(i, 3) % 50 > 0 THEN CAST(hash(i, 4) % 1100000 AS DOUBLE) / 100 END
  AS cost FROM range({rows}) AS r(i))
"""
_TEXT: Final = stored(COST, "t", 0)
_CLAMPED: Final = f"""CASE WHEN cost < 0 THEN CASE WHEN isfinite(cost) THEN 0 END
  WHEN cost > {HIGH} THEN CASE WHEN isfinite(cost) THEN {HIGH} END ELSE cost END"""
_READ: Final = f"""SELECT *, floor(x * {CENT}) AS g FROM (
  SELECT *, {trimmed("CAST(cost AS VARCHAR)")} AS t, {_CLAMPED} AS x FROM raw)"""
_VALUES: Final = {  # of a row; what is not exact is not here
    "DOUBLE, read as text": _TEXT,
    "DOUBLE, as at preparation": typed_cell(COST, "cost", "DOUBLE", ()),
    "DOUBLE, added up as doubles": f"g + CAST(x >= (g + 0.5) / {CENT} AS DOUBLE)",  # below 2**53
    "DECIMAL, as at preparation": typed_cell(COST, "fixed", "DECIMAL(12,2)", ()),
    "DECIMAL, clamped by CASE": f"CASE WHEN fixed <= 0 THEN 0 WHEN fixed >= {HIGH}"
    f" THEN {HIGH * CENT} ELSE CAST(fixed * {CENT} AS BIGINT) END",
}
_PLAIN: Final = {
    "DOUBLE": f"CAST(floor(cost * {CENT} + 0.5) AS BIGINT)",
    "DECIMAL": f"CAST(fixed * {CENT} AS BIGINT)",
}


def run(rows: int = ROWS, turns: int = TURNS) -> list[dict[str, object]]:
    """Return a line for each measure and way."""
    _keep_pages()  # as a worker does
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "raw.duckdb"))
        with duckdb.connect(path) as made:
            made.execute(_SOURCE.format(rows=rows))
            made.execute(f"CREATE TABLE prepared AS SELECT clinic, {_TEXT} AS v FROM ({_READ})")
        with duckdb.connect(path, read_only=True) as connection:
            for statement in lock_statements(Room(2048, 2, "", ())):
                connection.execute(statement)
            return [line for name in _TALLIES for line in _lines(connection, name, rows, turns)]


def _lines(
    connection: duckdb.DuckDBPyConnection, name: str, rows: int, turns: int
) -> list[dict[str, object]]:
    tallies = _TALLIES[name]
    plain = {kind: _asked(connection, tallies, value, "") for kind, value in _PLAIN.items()}
    ways = {way: _asked(connection, tallies, v, _WHERE) for way, v in _VALUES.items() if v}
    if name != "count":
        ways["DOUBLE, in numpy"] = lambda: _in_numpy(connection, name, rows)
    found = f"SELECT clinic, {tallies.format(v='v')} FROM prepared GROUP BY clinic ORDER BY clinic"
    meant = connection.execute(found).fetchall()
    for way, act in ways.items():
        if act() != meant:
            raise AssertionError(way)
    best = dict.fromkeys((*plain, *ways), float("inf"))
    for _ in range(turns):
        for way, act in (plain | ways).items():
            best[way] = min(best[way], _cpu(act))
    return [
        {
            "what": f"{name}: {way}",
            "ns a row": round(best[way] * 1e9 / rows, 1),
            "plain ns a row": round(best[way.partition(",")[0]] * 1e9 / rows, 1),
            "ratio": round(best[way] / best[way.partition(",")[0]], 2),
            "target": 1.5,
        }
        for way in ways
    ]


def _asked(
    connection: duckdb.DuckDBPyConnection, tallies: str, value: str, where: str
) -> Callable[[], list[tuple[Any, ...]]]:
    sql = (
        f"SELECT clinic, {tallies.format(v='v')} FROM (SELECT clinic, {value} AS v"
        f" FROM ({_READ}) {where}) GROUP BY clinic ORDER BY clinic"
    )
    return lambda: connection.execute(sql).fetchall()


# --- numpy: the expressions of engines/ingest/prepare.py, a range of rows at a time ---------------


def _in_numpy(connection: duckdb.DuckDBPyConnection, name: str, rows: int) -> list[tuple[Any, ...]]:
    sql = f"SELECT clinic, cost FROM raw {_WHERE} AND rowid >= ? AND rowid < ?"

    def part(low: int) -> NDArray[np.float64]:
        with connection.cursor() as cursor:
            return _sums(cursor.execute(sql, [low, low + _RANGE]).fetchnumpy())

    with ThreadPoolExecutor(2) as pool:
        count, total, values = (
            np.sum([*pool.map(part, range(0, rows, _RANGE))], axis=0).astype(int).tolist()
        )
    shown = (count, total) if name == "sum" else (total, values)
    return list(zip(range(KEYS), *shown, strict=True))


def _sums(found: dict[str, Any]) -> NDArray[np.float64]:
    """Return how many rows each key has, the sum of their steps, and how many have any."""
    key, cost = np.asarray(found["clinic"]), np.ma.getdata(found["cost"])
    there = np.isfinite(cost)
    there &= ~np.ma.getmaskarray(found["cost"])
    clamped = np.clip(cost, 0, HIGH)
    steps = np.floor(clamped * CENT)
    steps += clamped >= (steps * 2 + 1) / (2 * CENT)
    steps[~there] = 0
    totals = [np.bincount(key, some, KEYS) for some in (None, steps, there)]  # below 2**53: exact
    return np.array(totals, float)


def _cpu(act: Callable[[], object]) -> float:
    begun = resource.getrusage(resource.RUSAGE_SELF)
    act()
    ended = resource.getrusage(resource.RUSAGE_SELF)
    return ended.ru_utime - begun.ru_utime + ended.ru_stime - begun.ru_stime


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--turns", type=int, default=TURNS)
    asked = parser.parse_args()
    for found in run(asked.rows, asked.turns):
        print(found, flush=True)
