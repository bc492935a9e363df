"""What the peers' scripts said becomes a table; what one did not do, a line that says why.

Held by tests/benches/test_peers.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.page import figure

OURS: Final = "ours"
TASKS: Final = {
    "declared": "count and sum by 10 declared keys",
    "private": "count and sum by 100,000 undeclared keys",
    "noise": "a million values of noise",
}
COLUMNS: Final = ("version", "seconds", "ours", "ratio", "ready s", "keys", "differs")
_LONGEST_REASON: Final = 120


@dataclass(frozen=True)
class Line:
    """What one library took for one task, in seconds; or why it did not do it."""

    peer: str
    task: str
    rows: int
    version: str = ""
    load_s: float = 0.0
    s: float = 0.0
    keys: int = 0
    differs: str = ""
    failed: str = ""


def read_lines(peer: str, rows: int, output: str) -> list[Line]:
    """Return a line for each task that the script's output says was done; other prints are none."""
    found = []
    for text in output.splitlines():
        try:
            said = json.loads(text)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("task") in TASKS:
            found.append(Line(peer, rows=rows, **said))
    return found


def reason(errors: str) -> str:
    """Return the last thing that was printed before the end, cut short: no trace of a stack."""
    said = [line.strip() for line in errors.splitlines() if line.strip()]
    return said[-1][:_LONGEST_REASON] if said else "it ended without a word"


def skipped(lines: Sequence[Line], peer: str, rows: int, slowest_s: float) -> list[Line]:
    """Return why each task is not tried again on more rows: it failed, or took long on fewer."""
    before = [line for line in lines if line.peer == peer and line.task != "noise"]
    return [
        Line(peer, line.task, rows, failed=f"not tried: {_why(line, slowest_s)}")
        for line in before
        if line.failed or line.s > slowest_s
    ]


def _why(line: Line, slowest_s: float) -> str:
    return "it failed on fewer rows" if line.failed else f"over {slowest_s:.0f} s on {line.rows:,}"


def compared(lines: Sequence[Line]) -> list[dict[str, object]]:
    """Return the table: task by task, ours first, each beside ours of the same task and size."""
    ordered = sorted(lines, key=lambda x: (list(TASKS).index(x.task), x.rows, x.peer != OURS))
    return [_row(line, _ours(lines, line)) for line in ordered]


def _ours(lines: Sequence[Line], line: Line) -> Line | None:
    same = (x for x in lines if (x.peer, x.task, x.rows) == (OURS, line.task, line.rows))
    return next((x for x in same if not x.failed), None)


def _row(line: Line, ours: Line | None) -> dict[str, object]:
    name = "sfumato" if line.peer == OURS else line.peer
    size = f"{line.rows:,}" if line.rows else ""
    row = {"task": TASKS[line.task], "rows": size, "peer": name, **dict.fromkeys(COLUMNS, "")}
    if line.failed:
        return {**row, "differs": f"no figure: {line.failed}"}
    if ours is not None and line.peer != OURS:
        row |= {"ours": figure(ours.s), "ratio": figure(line.s / ours.s)}
    if line.task != "noise":
        row |= {"ready s": figure(line.load_s), "keys": str(line.keys)}
    return {**row, "version": line.version, "seconds": figure(line.s), "differs": line.differs}


def without_rows(line: Line) -> Line:
    """Return the line of a task that reads no rows, whatever the size it was run beside."""
    return replace(line, rows=0) if line.task == "noise" else line
