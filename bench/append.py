"""Measure an append of 1 % of the rows of a data set beside a whole add, and 365 appends in a row.

Rows have ten a person: a person, a date, one of ten towns, a cost and one of a hundred words. The
first line adds all rows, then appends 1 % of new ones; `ratio` divides the two times. The other
lines append 1 % of the first rows 365 times: the time and the processor time of the first and last
30 appends, the longest append, how far the answer is from the number of rows, and whether the
ledger is valid.

    python -m bench append
    python -m bench.append ROWS [APPENDS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import duckdb

import sfumato
from sfumato.app.vault import OpenVault

ROWS: Final = 1_000_000
APPENDS: Final = 365
_FEW: Final = 30
CARD: Final[dict[str, object]] = {
    "unit": "who",
    "people": "town",
    "version": "0",
    "max_groups": 3,
    "max_rows": 200,
    "budget": {"epsilon": 100},
    "limits": {"rows": 100_000_000, "rows_per_person": 1000},
    "columns": {
        "day": {"type": "date", "lower": "2026-01-01", "upper": "2026-12-31"},
        "place": {"type": "text", "keys": [f"town {n}" for n in range(10)]},
        "cost": {"type": "number", "lower": 0, "upper": 1000, "step": 0.01},
        "word": {"type": "text"},
    },
}


def run(rows: int = ROWS, appends: int = APPENDS) -> list[dict[str, object]]:
    """Return a line of one append beside a whole add, and a line of many appends."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as here:
        folder = Path(here)
        sfumato.create(folder / "vault", anchor=folder / "anchor")
        with sfumato.open(folder / "vault") as vault:
            added = _timed_add(vault, _source(folder, 0, rows, rows))
            new = rows // 100
            took: list[float] = []
            work: list[float] = []
            for number in range(1, max(1, appends) + 1):
                before = _cpu_s()
                took.append(_append(vault, folder, number, new, rows))
                work.append(_cpu_s() - before)
                if number % _FEW == 0:
                    print(number, round(statistics.mean(took[-_FEW:]), 2), "s", file=sys.stderr)
            answer = vault["visits"].ask("SELECT COUNT(*) AS n FROM visits", epsilon=90)
            expected = rows + len(took) * new
            far = abs(int(str(answer.rows[0][0])) - expected) / expected
            verdict = vault.house.ledger.verified()
    first = {"rows": rows, "new rows": new, "add s": round(added, 2), "append s": round(took[0], 2)}
    return [
        {"what": "one append", **first, "ratio": round(took[0] / added, 3)},
        {
            "what": f"{len(took)} appends",
            "first 30 s": round(statistics.mean(took[:_FEW]), 2),
            "last 30 s": round(statistics.mean(took[-_FEW:]), 2),
            "first 30 CPU s": round(statistics.mean(work[:_FEW]), 2),
            "last 30 CPU s": round(statistics.mean(work[-_FEW:]), 2),
            "longest s": round(max(took), 2),
            "relative difference": round(far, 4),
            "ledger": "valid" if verdict["ok"] else "invalid",
        },
    ]


def _source(folder: Path, part: int, rows: int, whole: int) -> Path:
    """Write a file of rows; the persons of each part are drawn from all persons."""
    place, people = folder / "rows.csv", max(1, whole // 10)
    duckdb.sql(
        f"COPY (SELECT 'p' || (hash(i * 7 + {part} * 1000003) % {people}) AS who,"
        f" DATE '2026-01-01' + CAST(hash(i + {part}) % 365 AS INTEGER) AS day,"
        f" 'town ' || (hash(i * 3 + {part}) % 10) AS place,"
        f" (hash(i * 5 + {part}) % 100000) / 100 AS cost,"
        f" 'word ' || (hash(i * 11 + {part}) % {100 + part}) AS word"
        f" FROM range({rows}) r(i)) TO '{place}' (HEADER)"
    )
    return place


def _cpu_s() -> float:
    """Return the processor time so far of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _timed_add(vault: OpenVault, source: Path) -> float:
    begun = time.perf_counter()
    vault.add("visits", source, CARD)
    return time.perf_counter() - begun


def _append(vault: OpenVault, folder: Path, part: int, rows: int, whole: int) -> float:
    source = _source(folder, part, rows, whole)
    begun = time.perf_counter()
    vault.append("visits", source, version=str(part))
    return time.perf_counter() - begun


if __name__ == "__main__":
    from bench.page import table

    print(table(run(*map(int, sys.argv[1:3]))))
