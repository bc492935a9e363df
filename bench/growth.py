"""Measure whether the time of a question in a Spark cluster grows linearly with the rows.

The cluster is standalone, with a master and two workers. The person-level questions are those of
`bench/engines3.py`, on one, two, four and eight million rows with ten rows a person. "ms a million"
is the time for each million rows. "grew" divides the time of a size by the time of the size before,
and "rows grew" does the same for the rows. If the time is linear in the rows plus a fixed part,
"grew" stays below "rows grew".
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.engines3 import MEASURES, prepared, source_of, standalone, timed
from sfumato.query.measure import Measure
from sfumato.vault.engine_port import Engine

SIZES: Final = (1_000_000, 2_000_000, 4_000_000, 8_000_000)
TURNS: Final = 3
_ASKED: Final = ("10 keys, stored", "10 keys, cold", "100,000 texts, cold")


def run(sizes: tuple[int, ...] = SIZES) -> list[dict[str, object]]:
    """Return a line for each question and size."""
    found: dict[str, list[float]] = {"preparation": [], **{what: [] for what in _ASKED}}
    with ExitStack() as stack:
        here = tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR"))
        folder = Path(stack.enter_context(here))
        engine = stack.enter_context(standalone())
        for rows in sizes:
            begun = time.perf_counter()
            table = prepared(engine, source_of(folder, rows), f"rows {rows}")
            found["preparation"].append(time.perf_counter() - begun)
            for what in _ASKED:
                found[what].append(min(_times(engine, table, MEASURES[what])))
            print({what: seconds[-1] for what, seconds in found.items()}, file=sys.stderr)
    return [line for what, seconds in found.items() for line in _lines(what, sizes, seconds)]


def _times(engine: Engine, table: str, measure: Measure) -> Iterator[float]:
    engine.measure(table, measure)  # what is compiled once
    for _ in range(TURNS):
        yield timed(lambda: engine.measure(table, measure))


def _lines(what: str, sizes: tuple[int, ...], seconds: list[float]) -> Iterator[dict[str, object]]:
    for place, (rows, took) in enumerate(zip(sizes, seconds, strict=True)):
        line = {"what": what, "rows": rows, "s": round(took, 2)}
        line["ms a million"] = round(took * 1e9 / rows)
        if place:
            line["grew"] = round(took / seconds[place - 1], 2)
            line["rows grew"] = rows / sizes[place - 1]
        yield line
