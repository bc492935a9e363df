"""Measure k-anonymous tables of synthetic people, modelled on the Adult data set.

The command is `python -m bench.crowd [--peers] [--page]`. `s` is processor time of one thread, the
best of a few runs, so a busy machine changes it little. Ratios are from one run on one machine. The
loss is the normalised certainty penalty over all rows, computed in the same way for all libraries.
A row that is left out counts as 1. With `--peers`, the libraries pycanon and anjana do the same
tasks in a separate environment (.bench/peers/crowd).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bench.page import show
from bench.peers.environments import ROOT, python_of
from sfumato.dp.anonymity.anonymity_check import check
from sfumato.dp.anonymity.coded_table import Table
from sfumato.dp.anonymity.generalization_hierarchy import Hierarchy
from sfumato.dp.anonymity.global_recoding import judge
from sfumato.dp.anonymity.privacy_criteria import Goal
from sfumato.dp.anonymity.recoded_table import (
    Recoded,
    RecodingSettings,
    recode_by_class,
    recode_globally,
    recode_mondrian,
)
from sfumato.dp.anonymity.recoding_task import task_of
from sfumato.lab.census_like_table import QUASI, SENSITIVE, adult_like, hierarchies

T = TypeVar("T")
Row = dict[str, object]
MILLION = 1_000_000
SUPPRESS = 0.05
GOALS: Mapping[str, Goal] = {
    "k = 5": Goal(5),
    "k = 10": Goal(10),
    "k = 10, l = 2": Goal(10, l=2),
    "k = 10, t = 0.2": Goal(10, t=0.2),
}
REPEATS = 3


def run(peers: bool = False, large: bool = True) -> list[Row]:
    """Return one row per task: seconds and loss, and who else was slower or lost more."""
    people = adult_like()
    made = hierarchies(people)
    rows = [_check(people)]
    for name, goal in GOALS.items():
        rows += _recodings(people, made, name, goal)
    if large:
        many = adult_like(MILLION)
        rows += [_check(many), *_large(many)]
    return [*rows, *(_peers(people, made, rows) if peers else [])]


def _check(people: Table) -> Row:
    seconds, found = _best(lambda: check(people, QUASI, [SENSITIVE]), REPEATS)
    return _row(f"check k, l, t ..., {people.rows:,} rows", seconds, note=f"k = {found.k}")


def _recodings(people: Table, made: dict[str, Hierarchy], name: str, goal: Goal) -> list[Row]:
    way = RecodingSettings(made, goal, [SENSITIVE] if goal.needs_sensitive else [])
    task = task_of(people, made, way.sensitive, goal)
    limit = int(SUPPRESS * people.rows)
    every_s, judged = _best(
        lambda: [judge(task, node, limit) for node in product(*map(range, task.heights))], 1
    )
    least = min(one.loss for one in judged if one.is_reached)
    global_s, found = _best(lambda: recode_globally(people, way, SUPPRESS), REPEATS)
    local_s, local = _best(lambda: recode_by_class(people, way), REPEATS)
    halves_s, halves = _best(lambda: recode_mondrian(people, way), REPEATS)
    is_least = "the least of all" if abs(found.loss - least) < 1e-9 else f"NOT THE LEAST: {least}"
    return [
        _row(f"global, {name}", global_s, found,
             f"{is_least} {found.nodes:,}, {found.looked:,} looked at; all: {every_s:.1f} s"),
        _row(f"local, {name}", local_s, local, _below(local, found)),
        _row(f"mondrian, {name}", halves_s, halves, _below(halves, found)),
    ]  # fmt: skip


def _large(people: Table) -> list[Row]:
    made = hierarchies(people)
    way = RecodingSettings(made, GOALS["k = 10"])
    global_s, found = _best(lambda: recode_globally(people, way, SUPPRESS), 1)
    local_s, local = _best(lambda: recode_by_class(people, way), 1)
    name = f"k = 10, {people.rows:,} rows"
    return [
        _row(f"global, {name}", global_s, found),
        _row(f"local, {name}", local_s, local, _below(local, found)),
    ]


def _below(local: Recoded, best: Recoded) -> str:
    return f"{1 - local.loss / best.loss:.0%} below global"


def _peers(people: Table, made: dict[str, Hierarchy], ours: list[Row]) -> list[Row]:
    """Return what others take for the same, beside ours."""
    python = python_of("crowd")
    if python is None:
        return [
            {
                "task": "peers",
                "note": "the libraries could not be installed, see .bench/peers/crowd.log",
            }
        ]
    with tempfile.TemporaryDirectory(dir=os.environ.get("SFUMATO_BENCH_DIR")) as folder:
        _write(Path(folder), people, made)
        said = subprocess.run(
            [python, "-W", "ignore", "-m", "bench.peers.crowd", folder],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        lines = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    rows = [_peer_row(line, people, made, ours) for line in lines]
    if said.returncode:
        rows.append({"task": "peers", "note": f"ended early: {said.stderr.splitlines()[-1][:100]}"})
    return rows


def _peer_row(
    line: dict[str, Any], people: Table, made: dict[str, Hierarchy], ours: list[Row]
) -> Row:
    mine = next(row for row in ours if row["task"] == line["ours"])
    ratio = float(line["s"]) / float(str(mine["s"]))
    row = _row(f"{line['peer']} {line['version']}: {line['task']}", float(line["s"]))
    row["note"] = f"{ratio:.0f} x ours {line.get('note', '')}"
    if "levels" in line:
        row["loss"] = _loss_of_levels(people, made, line)
        row["note"] = f"{row['note']}; ours loses {mine['loss']}"
    return row


def _loss_of_levels(people: Table, made: dict[str, Hierarchy], line: dict[str, Any]) -> float:
    """Return the loss of whole columns at these levels, with as many rows left out as were."""
    task = task_of(people, made, [], Goal(int(line["k"])))
    kept = np.array(line["kept"], np.int64)
    tuples = task.tuples.at(task.of_row[kept], np.ones(len(kept), np.int64))
    lost = people.rows - len(kept)
    return float((task.loss_of(tuples, tuple(line["levels"])).sum() + lost) / people.rows)


def _write(folder: Path, people: Table, made: dict[str, Hierarchy]) -> None:
    """Write the rows, and each hierarchy as its levels of every value."""
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(people.columns)
        columns = [[c.values[i] for i in c.codes.tolist()] for c in people.columns.values()]
        writer.writerows(zip(*columns, strict=True))
    shape = {
        name: [[level.labels[code] for code in level.of_value] for level in hierarchy.levels]
        for name, hierarchy in made.items()
    }
    (folder / "hierarchies.json").write_text(json.dumps(shape))


def _row(task: str, seconds: float, found: Recoded | None = None, note: str = "") -> Row:
    loss = "" if found is None else round(found.loss, 4)
    return {"task": task, "s": round(seconds, 3), "loss": loss, "note": note}


def _best(act: Callable[[], T], repeats: int) -> tuple[float, T]:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        made = act()
        times.append(time.process_time() - start)
    return min(times), made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--small", action="store_true", help="without the million rows")
    parser.add_argument(
        "--page", action="store_true", help="also write the table into docs/reference/figures.md"
    )
    asked = parser.parse_args()
    show(
        "anonymity beside other libraries" if asked.peers else "crowd",
        "python -m bench.crowd --peers" if asked.peers else "python -m bench crowd",
        lambda: run(asked.peers, not asked.small),
        asked.page,
    )
