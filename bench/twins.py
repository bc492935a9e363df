"""Compare the error and time of DP twins (synthetic data) with another library's.

The reference data has 30,000 synthetic people and nine columns. An error is the total variation
distance between the twin and the reference, on the shares of all tables of one, two or three
columns (`1-way`, `2-way`, `3-way`): 0 is equal, 1 is disjoint. Each is a mean over the seeds, and
`worst 2-way` is the largest over the seeds. `s` is the median time of one twin in seconds. Epsilon
is 1 and delta is 1e-9.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from bench.peers.environments import python_of
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.mechanisms import gaussian
from sfumato.dp.mechanisms.exponential import rate_for
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.spanning_tree import choose_highest_utility, choose_tree
from sfumato.features.synthetic.junction_tree import Clique, Floats
from sfumato.features.synthetic.marginal_selection import METHODS
from sfumato.features.synthetic.measurement_port import Choice, Integers, Merged
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.system.randomness import SystemRandomSource

SIZES: Final = (15, 8, 16, 7, 15, 6, 5, 2, 2)  # as Adult's age, workclass, education, ...
ROWS: Final = 30_000
EPSILON, DELTA = Fraction(1), Fraction(1, 10**9)
SEEDS: Final = 10
PEER_SEEDS: Final = 3  # of the other library, which takes a quarter of a minute for each
Found = tuple[list[float], float]  # errors of 1, 2 and 3 columns; seconds


def adult_like(seed: int, rows: int = ROWS) -> Integers:
    """Return rows of nine columns that hang together through one another, unevenly spread."""
    dice = np.random.default_rng(seed)
    codes = np.zeros((rows, len(SIZES)), dtype=np.int64)
    parents: dict[int, tuple[int, ...]] = {
        0: (), 7: (), 2: (0,), 3: (0, 7), 4: (2, 7), 1: (4,), 5: (3, 7), 6: (), 8: (2, 3),
    }  # fmt: skip
    law = np.random.default_rng(1994)  # the same population for every seed
    for column, above in parents.items():
        groups = np.zeros(rows, dtype=np.int64)
        for other in above:
            groups = groups * SIZES[other] + codes[:, other]
        count = int(np.prod([SIZES[other] for other in above], dtype=int))
        base = law.dirichlet(np.full(SIZES[column], 0.5))
        chances = np.array([law.dirichlet(base * 6 + 0.02) for _ in range(count)])
        marks = np.cumsum(chances, axis=1)[groups]
        codes[:, column] = (
            (dice.random(rows)[:, None] > marks).sum(axis=1).clip(0, SIZES[column] - 1)
        )
    return codes


@dataclass
class InMemory:
    """Rows in memory, counted with the house's own noise; public or synthetic rows only."""

    codes: Integers
    sizes: tuple[int, ...]
    rho: Fraction
    spent: Fraction = Fraction(0)
    dice: SystemRandomSource = field(default_factory=SystemRandomSource)

    def std(self, share: Fraction) -> float:
        return math.sqrt(1 / float(2 * self.rho * share))

    def exact(self, columns: Clique, merged: Merged) -> Integers:
        sizes = [max(merged[c]) + 1 for c in columns]
        groups = [np.asarray(merged[c])[self.codes[:, c]] for c in columns]
        flat = np.ravel_multi_index(groups, sizes)
        return np.bincount(flat, minlength=int(np.prod(sizes))).astype(np.int64)

    def count(self, columns: Clique, merged: Merged, share: Fraction) -> Floats:
        self.spent += share
        noise = Noise("gaussian", gaussian.variance_for(1, self.rho * share))
        exact = self.exact(columns, merged)
        noisy = exact + noise.sample(exact.size, self.dice)
        return np.asarray(noisy.reshape([max(merged[c]) + 1 for c in columns]), dtype=np.float64)

    def choose(self, choice: Choice, share: Fraction) -> tuple[int, ...]:
        self.spent += share
        utilities = np.array(
            [
                c.weight
                * (int(np.abs(self.exact(c.columns, choice.merged) - c.expected).sum()) - c.penalty)
                for c in choice.candidates
            ]
        )
        most = max(c.weight for c in choice.candidates)
        pairs = [c.columns for c in choice.candidates]
        rounds = len(self.sizes) - 1 if choice.kind == "tree" else 1
        epsilon = Fraction(math.sqrt(float(8 * self.rho * share / rounds))).limit_denominator(10**6)
        rate = rate_for(epsilon, most, monotone=False)
        if choice.kind == "tree":
            return choose_tree(utilities, pairs, rate, self.dice)
        return (choose_highest_utility(utilities, rate, self.dice),)


def distance(one: Integers, other: Integers, columns: Clique) -> float:
    """Return the total variation between two tables' shares over the columns."""
    sizes = [SIZES[c] for c in columns]
    shares = [
        np.bincount(
            np.ravel_multi_index([t[:, c] for c in columns], sizes), minlength=int(np.prod(sizes))
        )
        / len(t)
        for t in (one, other)
    ]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def errors(real: Integers, made: Integers) -> list[float]:
    """Return the mean distance of marginals of one, two and three columns."""
    columns = range(real.shape[1])
    return [
        float(np.mean([distance(real, made, c) for c in combinations(columns, size)]))
        for size in (1, 2, 3)
    ]


def one(method: str, seed: int, rho: Fraction) -> Found:
    """Return the errors and the seconds of one twin."""
    real = adult_like(seed)
    device = InMemory(real, SIZES, rho)
    begun = time.perf_counter()
    made = METHODS[method](device).draw(len(real), Seeded(str(seed)))
    spent_s = time.perf_counter() - begun
    if device.spent > 1:
        raise RuntimeError(f"{method} spent {device.spent}")
    return errors(real, made), spent_s


def run(seeds: int = SEEDS) -> list[dict[str, object]]:
    """Return a line for each method, and for private-pgm if it installs; each seed in turn."""
    rho, peer = rho_within(EPSILON, DELTA), python_of("privatepgm")
    found: dict[str, list[Found]] = {}
    for seed in range(seeds):
        for method in METHODS:
            found.setdefault(f"sfumato {method}", []).append(one(method, seed, rho))
        if peer is not None and seed < PEER_SEEDS:
            found.setdefault("private-pgm mst", []).append(theirs(peer, seed, rho))
            print(f"seed {seed} done", file=sys.stderr, flush=True)
    return [_line(name, lines) for name, lines in found.items()]


def theirs(python: Path, seed: int, rho: Fraction) -> Found:
    """Return the errors and the seconds of private-pgm's own MST, on the same rows and rho."""
    real = adult_like(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.npz", Path(folder) / "made.npy"
        np.savez(source, codes=real, sizes=np.array(SIZES))
        script = Path(__file__).parent / "peers" / "privatepgm.py"
        words = [str(python), "-W", "ignore", str(script), str(source), str(target)]
        words += [str(float(rho)), str(seed)]
        said = subprocess.run(words, capture_output=True, text=True, check=True)
        return errors(real, np.load(target)), float(said.stdout)


def _line(name: str, found: list[Found]) -> dict[str, object]:
    means = np.mean([e for e, _ in found], axis=0)
    return {
        "method": name,
        "1-way": round(float(means[0]), 4),
        "2-way": round(float(means[1]), 4),
        "3-way": round(float(means[2]), 4),
        "worst 2-way": round(max(e[1] for e, _ in found), 4),
        "s": round(float(np.median([s for _, s in found])), 2),
        "seeds": len(found),
    }
