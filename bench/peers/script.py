"""What every peer's script does: load the rows once, do each task, print one JSON line a task.

A script runs in an environment of its own, with nothing of the project but this folder:
`python -m bench.peers.NAME FILE TASK ...`. It is given Parquet with the columns who (text), clinic
(0 to 9), cost (a number or null) and icd (text).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

EPSILON: Final = 1.0  # for the whole answer: counts, sums and the choosing of keys
DELTA: Final = 1e-6  # only where keys are chosen
DECLARED_GROUPS: Final = 3  # of a person, by clinic
PRIVATE_GROUPS: Final = 5  # of a person, by icd
MOST_ROWS: Final = 20  # of a person and group
LARGEST: Final = 10_000  # of a cost; the smallest is 0
CLINICS: Final = 10
DRAWS: Final = 1_000_000
SCALE: Final = 100  # of the Laplace noise that is drawn
TURNS: Final = 3  # the first is cold; the best counts
LONG_S: Final = 200.0  # no other turn is begun when those before took longer


@dataclass(frozen=True)
class Peer:
    """A library: how it gets the rows ready, and how it does each task; a task returns its keys."""

    distribution: str
    load: Callable[[str], Any]  # each library has rows of its own kind
    tasks: Mapping[str, Callable[[Any], int]]
    differs: Mapping[str, str]


def answer(peer: Peer) -> None:
    """Do the tasks that the command line names."""
    file, *names = sys.argv[1:]
    asked = [name for name in names if name in peer.tasks]
    begun = time.perf_counter()
    rows = peer.load(file) if set(asked) - {"noise"} else None
    load_s = time.perf_counter() - begun
    for name in asked:
        seconds, keys = _best(peer.tasks[name], rows)
        found = {
            "task": name,
            "version": _version(peer.distribution),
            "load_s": 0.0 if name == "noise" else load_s,
            "s": seconds,
            "keys": keys,
            "differs": peer.differs.get(name, ""),
        }
        print(json.dumps(found), flush=True)


def _best(task: Callable[[Any], int], rows: object) -> tuple[float, int]:
    """Return the best time of a few, and how many keys came out; the slow has fewer turns."""
    times: list[float] = []
    keys = 0
    while len(times) < TURNS and sum(times) < LONG_S:
        begun = time.perf_counter()
        keys = task(rows)
        times.append(time.perf_counter() - begun)
    return min(times), keys


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from its own folder, as sfumato is
        return "here"
