"""Compare sfumato's survey randomisers with plain NumPy, for a million respondents on one core.

`ours_s` is the time to randomise a million answers, pack the reports, count them and estimate every
share. The random numbers are cryptographic (AES-256-CTR with a fresh system key for each block).
`plain_s` is the same task with NumPy's fast generator, floats as probabilities and, for hashing, a
cheap hash with a seed for each person. Nobody should use that as a randomiser. `peak_mb` is the
memory of sfumato in addition to the answers. It is the same for ten times as many people.
`elsewhere_s` is the time of plain NumPy on the machine where the target was set: three times that
is the target. Seconds are processor time.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.frequency_estimation import estimate
from sfumato.dp.local.frequency_oracle import Oracle, simulate
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary
from sfumato.system.randomness import BulkRandomSource

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Generator = np.random.Generator
PEOPLE: Final = 1_000_000
EPSILON: Final = Fraction(1)
E: Final = exp(1)
TURNS: Final = 3
BLOCK: Final = 1 << 14


def run() -> list[dict[str, object]]:
    """Return one row per task."""
    return [_row(*task) for task in TASKS]


def _row(
    name: str,
    size: int,
    make: Callable[[int, Fraction], Oracle],
    plain: Callable[[Integers, int, Generator], Floats] | None,
) -> dict[str, object]:
    values = answers(size)
    oracle = make(size, EPSILON)
    ours = min(_seconds(lambda: ours_on(oracle, values)) for _ in range(TURNS))
    row: dict[str, object] = {"name": name, "values": size, "ours_s": ours}
    if plain is not None:
        theirs = min(_seconds(lambda: plain(values, size, _generator())) for _ in range(TURNS))
        row |= {"plain_s": theirs, "ours/plain": ours / theirs}
    elsewhere = ELSEWHERE.get((name, size))
    if elsewhere is not None:
        row |= {"elsewhere_s": elsewhere, "ours/elsewhere": ours / elsewhere}
    return row | {"reports_per_s": round(PEOPLE / ours), "peak_mb": _peak_mb(oracle, values)}


def answers(size: int) -> Integers:
    """Return a million answers, a few of them frequent."""
    return np.minimum(_generator().zipf(1.5, PEOPLE) - 1, size - 1)


def ours_on(oracle: Oracle, values: Integers) -> Floats:
    """Return the estimated shares, after all reports were made and counted."""
    return estimate(simulate(oracle, values, BulkRandomSource())).shares


def _plain_k_ary(values: Integers, size: int, generator: Generator) -> Floats:
    p = E / (E + size - 1)
    q = (1 - p) / (size - 1)
    is_told = generator.random(len(values)) < p - q
    said = np.where(is_told, values, generator.integers(0, size, len(values)))
    return np.asarray((np.bincount(said, minlength=size) / len(values) - q) / (p - q))


def _plain_unary(values: Integers, size: int, generator: Generator) -> Floats:
    p, q = 0.5, 1 / (E + 1)
    counts = np.zeros(size)
    for start in range(0, len(values), BLOCK):
        some = values[start : start + BLOCK]
        bits = generator.random((len(some), size), dtype=np.float32) < q
        bits[np.arange(len(some)), some] = generator.random(len(some)) < p
        counts += bits.sum(axis=0)
    return np.asarray((counts / len(values) - q) / (p - q))


def _plain_hashing(values: Integers, size: int, generator: Generator) -> Floats:
    cells = round(E + 1)
    p = E / (E + cells - 1)
    counts = np.zeros(size)
    every = np.arange(size, dtype=np.uint32)
    for start in range(0, len(values), 64):
        some = values[start : start + 64].astype(np.uint32)
        seeds = generator.integers(0, 2**32, len(some), dtype=np.uint32)
        own = _cheap(seeds, some, cells)
        other = (own + generator.integers(1, cells, len(some), dtype=np.uint32)) % cells
        said = np.where(generator.random(len(some)) < p, own, other)
        counts += (_cheap(seeds[:, None], every, cells) == said[:, None]).sum(axis=0)
    return np.asarray((counts / len(values) - 1 / cells) / (p - 1 / cells))


def _cheap(seeds: NDArray[np.uint32], values: NDArray[np.uint32], cells: int) -> Integers:
    mixed = (values + np.uint32(1)) * (seeds | np.uint32(1))
    return np.asarray((mixed >> np.uint32(16)) % np.uint32(cells))


def _plain_hadamard(values: Integers, size: int, generator: Generator) -> Floats:
    rows = 1 << size.bit_length()
    places = generator.integers(0, rows, len(values))
    signs = 1 - 2 * (np.bitwise_count((values + 1) & places) & 1).astype(np.int64)
    signs[generator.random(len(values)) >= E / (E + 1)] *= -1
    sums = np.bincount(places, weights=signs, minlength=rows)
    step = 1
    while step < rows:
        pairs = sums.reshape(-1, 2, step)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        step *= 2
    return np.asarray(sums[1 : size + 1] / len(values) * (E + 1) / (E - 1))


TASKS: Final = (
    ("k-ary", 2, KAry.within, _plain_k_ary),
    ("k-ary", 1024, KAry.within, _plain_k_ary),
    ("unary", 128, Unary.within, _plain_unary),
    ("unary", 1024, Unary.within, _plain_unary),
    ("hashing", 1024, Hashing.within, _plain_hashing),
    ("hadamard", 1024, Hadamard.within, _plain_hadamard),
    ("subset", 1024, Subset.within, None),
)


ELSEWHERE: Final = {
    ("k-ary", 2): 0.03,
    ("k-ary", 1024): 0.01,
    ("unary", 128): 0.19,
    ("unary", 1024): 1.6,
    ("hashing", 1024): 3.0,
    ("hadamard", 1024): 0.014,
}


def _peak_mb(oracle: Oracle, values: Integers) -> float:
    tracemalloc.start()
    ours_on(oracle, values[: PEOPLE // 4])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def _generator() -> Generator:
    return np.random.default_rng(1)


def _seconds(act: Callable[[], object]) -> float:
    start = time.process_time()  # of this one core, whatever else the machine does
    act()
    return time.process_time() - start
