"""Measure `sfumato add` of a folder of 40 Parquet files beside DuckDB's own sorted copy.

The rows are those of `bench/append.py`: ten a person, in no order. The plain copy is
`CREATE TABLE ... AS SELECT ... ORDER BY who` into a DuckDB file, with DuckDB's default settings.
The two take turns, each in a process of its own. "CPU s" is the processor time of the process and
its workers. "peak MB" is the most memory of all of them together, sampled 50 times a second. "disk
MB" is what stays on disk, and "work MB" is the most that was there at once. "x CPU" and "x s"
divide by the plain copy's median. "x files" divides the disk by the bytes of the Parquet files.

    python -m bench add
    python -m bench.add ROWS [TURNS] [snappy or zstd]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

import sfumato
from bench.append import CARD

ROWS: Final = 10_000_000
TURNS: Final = 2
FILES: Final = 40
_SAMPLE_S: Final = 0.02
_ADD, _PLAIN = "sfumato add", "CREATE TABLE AS"
_PAGE_B: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cost:
    """What one turn took: seconds, processor seconds, and bytes of memory and disk."""

    seconds: float
    cpu_s: float
    peak_b: int
    disk_b: int
    work_b: int


def run(rows: int = ROWS, turns: int = TURNS, codec: str = "snappy") -> list[dict[str, object]]:
    """Return a line of each way to store the rows."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as here:
        folder = Path(here)
        source = write_files(folder / "parts", rows, codec)
        costs: dict[str, list[Cost]] = {_PLAIN: [], _ADD: []}
        for turn in range(turns):
            for what, found in costs.items():
                found.append(_turn(what, source, folder / f"{turn}-{len(what)}"))
                print(what, found[-1], file=sys.stderr)
        files_b = _bytes_below(source)
    plain = costs[_PLAIN]
    return [
        {
            "what": what,
            "rows": rows,
            "s": _median(found, "seconds"),
            "CPU s": _median(found, "cpu_s"),
            "x s": round(_median(found, "seconds") / _median(plain, "seconds"), 1),
            "x CPU": round(_median(found, "cpu_s") / _median(plain, "cpu_s"), 1),
            "peak MB": round(_median(found, "peak_b") / 2**20),
            "disk MB": round(_median(found, "disk_b") / 2**20),
            "work MB": round(_median(found, "work_b") / 2**20),
            f"x files ({codec}, {round(files_b / 2**20)} MB)": round(
                _median(found, "disk_b") / files_b, 2
            ),
        }
        for what, found in costs.items()
    ]


def _median(found: list[Cost], what: str) -> float:
    return round(float(statistics.median(getattr(cost, what) for cost in found)), 2)


def write_files(folder: Path, rows: int, codec: str = "snappy") -> Path:
    """Write the rows as 40 Parquet files; return their folder."""
    folder.mkdir()
    people = max(1, rows // 10)
    for part in range(FILES):
        first, end = part * rows // FILES, (part + 1) * rows // FILES
        duckdb.sql(
            f"COPY (SELECT 'p' || (hash(i * 7) % {people}) AS who,"
            " DATE '2026-01-01' + CAST(hash(i) % 365 AS INTEGER) AS day,"
            " 'town ' || (hash(i * 3) % 10) AS place, (hash(i * 5) % 100000) / 100 AS cost,"
            f" 'word ' || (hash(i * 11) % 100) AS word FROM range({first}, {end}) r(i))"
            f" TO '{folder / f'part-{part:02}.parquet'}' (COMPRESSION {codec})"
        )
    return folder


# --- one turn, in a process of its own -----------------------------------------------------------


def _turn(what: str, source: Path, folder: Path) -> Cost:
    folder.mkdir()
    begun, peak, most = time.perf_counter(), 0, 0
    command = [sys.executable, "-m", "bench.add", what, str(source), str(folder)]
    with subprocess.Popen(command) as child:
        while True:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
            if ended:
                break
            peak = max(peak, sum(map(_resident_b, _tree(child.pid))))
            most = max(most, _bytes_below(folder))
            time.sleep(_SAMPLE_S)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{what}: exit code {child.returncode}")
    took = time.perf_counter() - begun
    return Cost(took, used.ru_utime + used.ru_stime, peak, _bytes_below(folder), most)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all processes below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = task.read_text("ascii").split()
        except OSError:  # it has ended
            continue
        for child in below:
            yield from _tree(int(child))


def _resident_b(pid: int) -> int:
    """Return the memory of a process, without the pages of files that it maps."""
    try:
        sizes = Path(f"/proc/{pid}/statm").read_text("ascii").split()
    except OSError:  # it has ended
        return 0
    return (int(sizes[1]) - int(sizes[2])) * _PAGE_B


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(Path(place, name)).st_size
            except OSError:  # it was deleted just now
                continue
    return total


def _add(source: Path, folder: Path) -> None:
    sfumato.create(folder / "vault", anchor=folder / "anchor")
    with sfumato.open(folder / "vault") as vault:
        vault.add("visits", source, CARD)


def _copy(source: Path, folder: Path) -> None:
    with duckdb.connect(str(folder / "rows.duckdb")) as connection:
        connection.execute(
            f"CREATE TABLE visits AS SELECT * FROM read_parquet('{source}/*.parquet') ORDER BY who"
        )


if __name__ == "__main__":
    asked = sys.argv[1:]
    if asked and asked[0] in (_ADD, _PLAIN):
        {_ADD: _add, _PLAIN: _copy}[asked[0]](Path(asked[1]), Path(asked[2]))
    else:
        from bench.page import table

        sizes = dict(zip(("rows", "turns"), map(int, asked[:2]), strict=False))
        print(table(run(**sizes, codec="".join(asked[2:]) or "snappy")))
