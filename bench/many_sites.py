"""Measure what neighbourhoods save in a secure sum of many sites, of which a tenth drop out.

All sites and the server run in one process. `site_s` is the time of the slowest site over all
stages, in seconds; real sites compute at the same time. `server_s` is the time of the server alone.
Each line has a separate process, and `peak_mb` is all the memory of that process.
"""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.federated import cohort
from sfumato.dp.secure_aggregation.round_terms import fewest_neighbours

SIZE = 10_000
COHORTS = ((100, 90, 5), (500, 450, 25))  # sites, floor, colluders


def run() -> list[dict[str, object]]:
    """Return a line for everybody's masks with everybody, and one for the fewest neighbours."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as processes:
        return [
            processes.submit(line, *sizes, near).result()
            for sizes in COHORTS
            for near in (sizes[0] - 1, fewest_neighbours(*sizes))
        ]


def line(sites: int, floor: int, colluders: int, near: int) -> dict[str, object]:
    """Return what one such round took."""
    name = f"{sites} sites, {near} neighbours each"
    terms = {"floor": floor, "colluders": colluders, "neighbours": near}
    found = cohort(name, sites, SIZE, gone=sites - floor, **terms)
    del found["target_s"]
    return {**found, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    (held,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    return int(held) / 1024
