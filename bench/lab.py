"""Measure how long the attacks of the privacy lab and its short audit take.

For an attack, generating the data and repeating the attack are timed separately. The audit is timed
as one whole command, including the start of Python.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from bench.__main__ import table
from sfumato.dp.anonymity.uniqueness import all_subsets
from sfumato.lab.attacks.leave_one_out_report import Values, attack_means
from sfumato.lab.attacks.rating_linkage import Knows, find, hints_of
from sfumato.lab.film_ratings import film_ratings

T = TypeVar("T")
PEOPLE = 60
RUNS = 1000
ROWS = 100_000
COLUMNS = 8
REPEATS = 5


def run() -> list[dict[str, object]]:
    """Return one row per attack: milliseconds, the best of a few, and what is aimed at."""
    dice = np.random.default_rng(1)
    values = Values(tuple(np.linspace(150.0, 190.0, PEOPLE)))
    columns = {f"c{n}": dice.integers(0, 2 + 7 * n, ROWS) for n in range(COLUMNS)}
    made_ms, ratings = _ms_of(lambda: film_ratings(dice))
    hints = hints_of(ratings, 7, Knows(8, stars_off=1, days_off=14), dice)
    return [
        _row(f"loo, {PEOPLE} people, {RUNS:,} runs", lambda: attack_means(values, dice), 2000),
        _row(f"all choices of {COLUMNS} of {ROWS:,} rows", lambda: all_subsets(columns), 10_000),
        {"attack": f"making {len(ratings):,} ratings", "ms": round(made_ms), "target_ms": 5000},
        _row(f"one target among {ratings.people:,}", lambda: find(ratings, hints), 1000),
        {"attack": "sfumato audit", "ms": round(_ms_of(_short_audit)[0]), "target_ms": 60_000},
    ]


def _short_audit() -> None:
    program = "import sys; from sfumato.app.command_line import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", program, "audit"], check=True, stdout=subprocess.DEVNULL)


def _row(name: str, act: Callable[[], object], target_ms: int) -> dict[str, object]:
    act()  # the tables of the noise are made once
    best = min(_ms_of(act)[0] for _ in range(REPEATS))
    return {"attack": name, "ms": round(best, 1), "target_ms": target_ms}


def _ms_of(act: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    made = act()
    return 1000 * (time.perf_counter() - start), made


if __name__ == "__main__":
    print(table(run()))
