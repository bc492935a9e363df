"""One, ten and a hundred million rows: is a person-level question linear? `make bench-large`.

One million rows are prepared; the larger tables are copies of them, side by side, each copy with
people of its own, in the order and with the ranks that a preparation gives: preparing a hundred
million would take most of an hour and is not what is asked here (`python -m bench engine` times it
for ten). The questions, and the plain queries beside them, are those of `bench/engine.py`; each
size has a worker of its own, whose most memory stands in the last column.

Tables lie in SFUMATO_BENCH_DIR, else in the system's temporary folder: a hundred million take 3 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from bench.__main__ import table
from bench.engine import (
    LINES,
    SALT,
    Line,
    high_water_mb,
    plainly,
    prepared,
    source_of,
    timed,
)
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.prepared_table import CROWD_BITS, path_of

BASE: Final = 1_000_000
SIZES: Final = (1_000_000, 10_000_000, 100_000_000)
TURNS: Final = 3
_KEY_BITS: Final = 64
_COPY_BITS: Final = 10  # of a person's key, so many say which copy: the order stays that of keys
QUESTIONS: Final = tuple(line for line in LINES if line.unit != "row")


@dataclass(frozen=True)
class Found:
    """What one question took at one size, in seconds, and the worker's most memory."""

    size: int
    line: Line
    ours: float
    plain: float
    worker_mb: int


def run(
    sizes: Sequence[int] = SIZES, turns: int = TURNS, threads: int | None = None
) -> list[dict[str, object]]:
    """Return a line for each question and size, each beside the size before it."""
    found: list[Found] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        base = _base(Path(folder))
        for size in sizes:
            large = _copied(base, Path(folder) / "large", size // BASE)
            found += _asked(large, size, turns, threads)
            shutil.rmtree(large.parent)
    return [_shown(one, found) for line in QUESTIONS for one in found if one.line == line]


def _base(folder: Path) -> Path:
    """Prepare a million rows, as an owner would."""
    engine = DuckDBEngine(SALT, deadline_s=600)
    made, seconds = prepared(engine, folder, "who", source_of(folder, BASE))
    engine.close()
    print(f"prepared {BASE:,} rows in {seconds:.0f} s", flush=True)
    return Path(made)


def _copied(base: Path, folder: Path, copies: int) -> Path:
    """Return a table of so many copies of the base, each with people of its own."""
    folder.mkdir()
    large = folder / base.name
    begun = time.perf_counter()
    with duckdb.connect(str(large)) as connection:
        connection.execute(f"ATTACH '{base}' AS base (READ_ONLY)")
        _copy_others(connection)
        for name, columns in _renumbered(connection).items():
            connection.execute(f'CREATE TABLE "{name}" AS FROM base."{name}" LIMIT 0')
            for copy in range(copies):
                renumbered = ", ".join(f"{new.format(copy=copy)} AS {c}" for c, new in columns)
                star = f"* REPLACE ({renumbered})" if columns else "*"
                connection.execute(f'INSERT INTO "{name}" SELECT {star} FROM base."{name}"')
    shutil.copy(path_of(base), path_of(large))
    size = large.stat().st_size / 2**30
    print(f"{copies} million rows: {time.perf_counter() - begun:.0f} s, {size:.1f} GB", flush=True)
    return large


def _copy_others(connection: duckdb.DuckDBPyConnection) -> None:
    """Copy what does not depend on the people: the dictionaries of texts."""
    names = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'base'"
        " AND table_name NOT IN ('rows', 'people', 'crowds') AND table_name NOT LIKE 'parts%'"
    ).fetchall()
    for (name,) in names:
        connection.execute(f'CREATE TABLE "{name}" AS FROM base."{name}"')


def _renumbered(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the tables that hold people, and how each copy's people are told apart."""
    counted = connection.execute("SELECT max(person) + 1 FROM base.people").fetchone()
    crowds = -(-int(counted[0] if counted else 0) // (1 << CROWD_BITS))
    person = ("person", f"CAST(person + {{copy}} * {crowds << CROWD_BITS} AS UINTEGER)")
    above = _KEY_BITS - _COPY_BITS
    key = (
        "person_key",
        f"CAST((person_key >> {_COPY_BITS}) + {{copy}} * {1 << above}::UBIGINT AS UBIGINT)",
    )
    few = ("few", f"few + {{copy}} * {crowds}")
    parts: dict[str, tuple[tuple[str, str], ...]] = {"parts_all": (), "parts0": ()}  # say no person
    return {"rows": (person, key), "people": (person, key), "crowds": (few,), **parts}


def _asked(large: Path, size: int, turns: int, threads: int | None) -> list[Found]:
    engine = DuckDBEngine(SALT, deadline_s=3600, threads=threads or os.cpu_count() or 1)
    try:
        return [_found(engine, str(large), size, line, turns) for line in QUESTIONS]
    finally:
        engine.close()


def _found(engine: DuckDBEngine, large: str, size: int, line: Line, turns: int) -> Found:
    ours, plain = [], []
    for _ in range(turns):
        ours.append(timed(lambda: engine.measure(large, line.measure())))
        plain.append(plainly(engine, large, line))
    return Found(size, line, min(ours), min(plain), high_water_mb(engine))


def _shown(one: Found, found: Sequence[Found]) -> dict[str, object]:
    smaller = [other for other in found if other.line == one.line and other.size < one.size]
    growth: dict[str, object] = dict.fromkeys(("x rows", "x ms", "x plain ms"), "")
    if smaller:
        before = smaller[-1]
        growth["x rows"] = one.size // before.size
        growth["x ms"] = round(one.ours / before.ours, 1)
        growth["x plain ms"] = round(one.plain / before.plain, 1)
    return {
        "question": one.line.name,
        "rows": f"{one.size:,}",
        "ms": round(one.ours * 1000),
        "plain ms": round(one.plain * 1000),
        "ratio": round(one.ours / one.plain, 2),
        "ns a row": round(one.ours / one.size * 1e9, 1),
        **growth,
        "worker MB": one.worker_mb,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="multiples of a million"
    )
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--threads", type=int, default=None)
    asked = parser.parse_args()
    print(table(run(asked.sizes, asked.turns, asked.threads)))
