"""What a survey peer's script does: randomise and count so many answers, print one JSON line.

It runs in the peer's own environment: `python -m bench.peers.NAME PEOPLE TASK ...`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import numpy as np

EPSILON: Final = 1.0
# task -> how many values; each is a kind of oracle and that number
TASKS: Final = {
    "k-ary 2": 2,
    "k-ary 1024": 1024,
    "unary 128": 128,
    "unary 1024": 1024,
    "hashing 1024": 1024,
    "hadamard 1024": 1024,
    "subset 1024": 1024,
}
_WARM: Final = 200  # answers before the clock starts, so that what is compiled is compiled
Survey = Callable[[Any, int], Any]  # answers and how many values -> estimates of the peer's kind


def answer(distribution: str, surveys: Mapping[str, Survey]) -> None:
    """Do the tasks that the command line names with so many people."""
    people, names = int(sys.argv[1]), sys.argv[2:]
    for name in names:
        kind, size = name.split()[0], TASKS[name]
        if kind not in surveys:
            continue
        values = answers(size, people)
        surveys[kind](values[:_WARM], size)
        begun = time.process_time()  # of one core, whatever else the machine does
        surveys[kind](values, size)
        found = {"task": name, "people": people, "s": time.process_time() - begun}
        print(json.dumps(found | {"version": version(distribution)}), flush=True)


def answers(size: int, people: int) -> Any:
    """Return that many answers, a few of them frequent."""
    return np.minimum(np.random.default_rng(1).zipf(1.5, people) - 1, size - 1)
