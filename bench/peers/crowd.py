"""pycanon and anjana on the same table and hierarchies; run by `python -m bench.crowd --peers`."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anjana.anonymity import k_anonymity, l_diversity, t_closeness
from anjana.anonymity.utils import utils
from pycanon import anonymity

SENSITIVE = "salary"
PERCENT = 5  # of the rows that may be left out


def main(folder: Path) -> None:
    """Do the tasks and print a JSON line for each."""
    rows = pd.read_csv(folder / "rows.csv")
    levels = json.loads((folder / "hierarchies.json").read_text())
    quasi = list(levels)
    rows["age"] = rows["age"].astype(str)
    seconds, _ = _timed(lambda: _checked(rows, quasi))
    _say("pycanon", "check k, l, t", f"check k, l, t ..., {len(rows):,} rows", seconds)
    tasks: dict[str, tuple[int, Callable[[], Any]]] = {
        "k = 5": (5, lambda: k_anonymity(rows.copy(), [], quasi, 5, PERCENT, _made(levels))),
        "k = 10": (10, lambda: k_anonymity(rows.copy(), [], quasi, 10, PERCENT, _made(levels))),
        "k = 10, l = 2": (
            10,
            lambda: l_diversity(rows.copy(), [], quasi, SENSITIVE, 10, 2, PERCENT, _made(levels)),
        ),
        "k = 10, t = 0.2": (
            10,
            lambda: t_closeness(rows.copy(), [], quasi, SENSITIVE, 10, 0.2, PERCENT, _made(levels)),
        ),
    }
    for name, (k, act) in tasks.items():
        seconds, found = _timed(act)
        chosen = utils.get_transformation(found, quasi, _made(levels)) if len(found) else []
        note = f"{len(rows) - len(found):,} rows left out"
        line = {"k": k, "note": note}
        if chosen:
            line |= {
                "levels": [int(x) for x in chosen],
                "kept": _kept(rows, found, quasi, levels, chosen),
            }
        _say("anjana", name, f"global, {name}", seconds, **line)


def _checked(rows: Any, quasi: list[str]) -> tuple[Any, Any, Any]:
    return (
        anonymity.k_anonymity(rows, quasi),
        anonymity.l_diversity(rows, quasi, [SENSITIVE]),
        anonymity.t_closeness(rows, quasi, [SENSITIVE]),
    )


def _kept(rows: Any, found: Any, quasi: list[str], levels: Any, chosen: list[int]) -> list[int]:
    """Return which rows are left: those whose class, at the levels it chose, is in its output."""
    made = rows[quasi].copy()
    for name, level in zip(quasi, chosen, strict=True):
        step = dict(zip(levels[name][0], levels[name][level], strict=True))
        made[name] = made[name].map(step)
    there = set(map(tuple, found[quasi].astype(str).itertuples(index=False)))
    is_in = [tuple(row) in there for row in made.astype(str).itertuples(index=False)]
    return [int(place) for place in np.flatnonzero(is_in)]


def _made(levels: Any) -> dict[str, dict[int, np.ndarray[Any, Any]]]:
    return {n: {i: np.array(step) for i, step in enumerate(steps)} for n, steps in levels.items()}


def _timed(act: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        found = act()
    return time.process_time() - start, found


def _say(peer: str, task: str, ours: str, seconds: float, **more: object) -> None:
    line = {
        "peer": peer,
        "version": version(peer),
        "task": task,
        "ours": ours,
        "s": seconds,
        **more,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
