"""Golden vectors: what given words make of an answer, for clients in other languages.

`PYTHONPATH=tests python -m support.local_golden_vectors` writes vectors.json anew;
test_golden_vectors.py compares.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.dp.local.ballot_split import Sampled, Split, arity, choices
from sfumato.dp.local.binary_response import Binary
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_oracle import Oracle, Randomiser
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.numeric_response import Numbers
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.ranking_response import by_pairs
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary

PATH = Path(__file__).parents[1] / "dp" / "local" / "vectors.json"
EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(3))
SIZES = (2, 5, 33, 1000)
TOP = 2**32 - 1
LONG = 64  # words: reports that take more get fewer cases


def oracles() -> list[Oracle]:
    made: list[Oracle] = [Binary(3 << 30, 1 << 30), Binary(TOP, 1)]
    for epsilon in EPSILONS:
        made.append(Binary.within(epsilon))
        for size in SIZES:
            kinds = (KAry, Unary, Hadamard, Hashing, Subset, Projective)
            made += [kind.within(size, epsilon) for kind in kinds]
    made.append(PermanentResponse.within(7, ever=Fraction(3), wave=Fraction(1)))
    return made


def numbers() -> list[Numbers]:
    kinds = (Duchi, Piecewise, Hybrid)
    return [kind.within(n, eps) for eps in EPSILONS for n in (1, 10, 1000) for kind in kinds]


def ballots() -> list[Randomiser]:
    one = Fraction(1)
    third = (lambda e: KAry.within(4, e), lambda e: Hybrid.within(100, e), lambda e: choices(3, e))
    return [
        Split.within(third, one),
        Sampled.within(third, one),
        choices(6, one),
        by_pairs(4, one),
        Split((Binary.within(one), Unary.within(40, one))),
    ]


def cases(randomiser: Randomiser, answers: list[Any], seed: int) -> list[dict[str, object]]:
    """Random words, the smallest, the largest, and those at the edge of the chances."""
    generator, count = np.random.default_rng(seed), randomiser.words_per_report
    columns = [[0] * count, [TOP] * count]
    if count <= LONG:
        edges = [n for n in randomiser.parameters.values() if isinstance(n, int) and 0 < n <= TOP]
        columns += [[edge - less] * count for edge in edges for less in (0, 1)]
    columns += [generator.integers(0, 2**32, count).tolist() for _ in range(len(answers))]
    values = [answers[place % len(answers)] for place in range(len(columns))]
    return [
        {"value": value, "words": words, "report": report(randomiser, value, words)}
        for value, words in zip(values, columns, strict=True)
    ]


def report(randomiser: Randomiser, value: Any, words: list[int]) -> str:
    column = np.array(words, dtype=np.uint32).reshape(-1, 1)
    return randomiser.randomise(np.array([value]), column).tobytes().hex()


def vectors() -> list[dict[str, object]]:
    generator = np.random.default_rng(1)
    found: list[dict[str, object]] = []
    for oracle in oracles():
        count = 11 if oracle.words_per_report <= LONG else 1
        answers = [*generator.integers(0, oracle.size, count).tolist(), oracle.size - 1]
        found.append(vector(oracle, answers, len(found)))
    for one in numbers():
        answers = [0, *generator.integers(0, one.steps + 1, 7).tolist(), one.steps, one.steps + 1]
        found.append(vector(one, answers, len(found)))
    for ballot in ballots():
        rows = [generator.integers(0, 2, arity(ballot)).tolist() for _ in range(10)]
        found.append(vector(ballot, rows, len(found)))
    return found


def vector(randomiser: Randomiser, answers: list[Any], seed: int) -> dict[str, object]:
    return {
        "parameters": dict(randomiser.parameters),
        "words": randomiser.words_per_report,
        "width": randomiser.width,
        "ratio": str(randomiser.ratio),
        "epsilon": f"{float(randomiser.epsilon):.9f}",
        "cases": cases(randomiser, answers, seed),
    }


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(one) for one in vectors())
    PATH.write_text(f"[\n{lines}\n]\n")
