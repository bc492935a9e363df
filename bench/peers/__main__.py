"""Compare sfumato with other libraries, each in a separate environment: `make bench-peers`.

All libraries get the same rows, bounds and ε; the privacy unit is a person if the library
supports that. Each task runs up to three times in one process, and the best run counts. "ready s"
is the time before the first question: preparation for sfumato, reading into memory for the
others. A task that takes too long on the first size is not tried on the next.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from bench.page import show
from bench.peers.environments import ROOT, python_of
from bench.peers.lines import OURS, TASKS, Line, compared, read_lines, reason, skipped, without_rows

PEERS: Final = ("opendp", "diffprivlib", "smartnoise", "pipelinedp", "tumult")
SIZES: Final = (1_000_000, 10_000_000)
TIMEOUT_S: Final = 1200.0  # for all the tasks of a peer at one size
# people of very different numbers of rows; few keys of many people, and many of few
_SOURCE: Final = """
COPY (SELECT 'p' || CAST(CAST(floor({people} * pow((hash(i, 1) % 1000000007) / 1000000007.0, 1.5))
    AS BIGINT) AS VARCHAR) AS who,
  CAST(hash(i, 2) % 10 AS INTEGER) AS clinic,
  CASE WHEN hash(i, 3) % 50 > 0 THEN CAST(hash(i, 4) % 1100000 AS DOUBLE) / 100 END AS cost,
  'icd-' || CAST(CAST(floor(100000 * pow((hash(i, 5) % 1000000007) / 1000000007.0, 3)) AS BIGINT)
    AS VARCHAR) AS icd
FROM range({rows}) r(i)) TO '{path}' (FORMAT parquet)
"""
SLOWEST_S: Final = 30.0  # a task that takes longer is not tried on more rows


@dataclass(frozen=True)
class Run:
    """One peer on one table: its interpreter, the rows, and how long it may take."""

    peer: str
    python: Path
    source: Path
    rows: int
    timeout_s: float


def run(
    peers: Sequence[str] = PEERS,
    sizes: Sequence[int] = SIZES,
    tasks: Sequence[str] = tuple(TASKS),
    timeout_s: float = TIMEOUT_S,
) -> list[dict[str, object]]:
    """Return the table of all peers and sizes; ours is measured first, and in the same run."""
    pythons = {OURS: Path(sys.executable), **{peer: python_of(peer) for peer in peers}}
    lines: list[Line] = []
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
            source = Path(folder) / "rows.parquet"
            duckdb.sql(_SOURCE.format(people=max(1, rows // 10), rows=rows, path=source))
            for peer, python in pythons.items():
                if python is None:
                    lines += _uninstalled(peer) if rows == sizes[0] else []
                    continue
                lines += _at(lines, Run(peer, python, source, rows, timeout_s), tasks)
                print(f"{peer}, {rows:,} rows: done", file=sys.stderr, flush=True)
    return compared([without_rows(line) for line in lines])


def _uninstalled(peer: str) -> list[Line]:
    return [
        Line(peer, "declared", 0, failed=f"it could not be installed, see .bench/peers/{peer}.log")
    ]


def _at(before: Sequence[Line], run_: Run, tasks: Sequence[str]) -> list[Line]:
    """Return the lines of one peer at one size; noise is drawn once, whatever the sizes."""
    passed = skipped(before, run_.peer, run_.rows, SLOWEST_S)
    is_first = not any(line.peer == run_.peer for line in before)
    left = [t for t in tasks if t not in {x.task for x in passed} and (is_first or t != "noise")]
    return passed + _done(run_, left)


def _done(run_: Run, left: list[str]) -> list[Line]:
    """Run the tasks in one process; where it ends early, the next process goes on after that."""
    found: list[Line] = []
    while left:
        output, failed = _said(run_, left)
        made = read_lines(run_.peer, run_.rows, output)
        found += made
        left = [task for task in left if task not in {line.task for line in made}]
        if not failed:
            return found
        if left:
            found.append(Line(run_.peer, left.pop(0), run_.rows, failed=failed))
    return found


def _said(run_: Run, tasks: Sequence[str]) -> tuple[str, str]:
    """Return what the script printed, and why it ended early, if it did."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        [run_.python, "-W", "ignore", "-m", f"bench.peers.{run_.peer}", run_.source, *tasks],
        cwd=run_.source.parent,
        env={**kept, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=run_.timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: a Java below it goes too
        output, _ = process.communicate()
        return output, f"its script was stopped after {run_.timeout_s:.0f} s"
    return output, reason(errors) if process.returncode else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", default=PEERS, help=f"of {', '.join(PEERS)}")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument(
        "--page", action="store_true", help="also write the table into docs/reference/figures.md"
    )
    asked = parser.parse_args()
    show(
        "beside other libraries",
        "python -m bench.peers",
        lambda: run(asked.peers or PEERS, asked.sizes, asked.tasks, asked.timeout),
        asked.page,
    )
