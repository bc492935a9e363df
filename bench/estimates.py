"""Compare the real error of survey estimates with the error stated beside them, at epsilon 1.

The bench simulates many surveys of synthetic people, and counts and estimates each. Each row about
shares has at least 20,000 squared errors, and each row about numbers at least 4,000. `stated` is
the error that the formula gives before anybody answers; for numbers, it is the error shown beside
each estimate. `seen` is the error that occurred. Both are root mean squares: in percentage points
for shares, in hundredths of the range for numbers. `held` is how often the 95 % interval contained
the true value. No figure here depends on the load of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_estimation import estimate, variances
from sfumato.dp.local.frequency_oracle import Oracle, Tally, randomise, simulate
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.mean_estimation import NumberTally, estimate_mean, randomise_numbers
from sfumato.dp.local.numeric_response import Numbers
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary
from sfumato.system.randomness import BulkRandomSource

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Make = Callable[[int, Fraction], Oracle]
Draw = Callable[[np.random.Generator, int], Integers]
ERRORS: Final = 20_000
EPSILON: Final = Fraction(1)
STEPS: Final = 100  # of a number's grid
MEAN: Final = 0.3  # of the numbers, as a share of the range


def _waves(size: int, epsilon: Fraction) -> PermanentResponse:
    return PermanentResponse.within(size, ever=4 * epsilon, wave=epsilon)


TASKS: Final[tuple[tuple[str, int, int, Make], ...]] = (
    ("yes or no, or no answer", 3, 2_500, KAry.within),
    ("yes or no, or no answer", 3, 10_000, KAry.within),
    ("yes or no, or no answer", 3, 40_000, KAry.within),
    ("k-ary", 1024, 10_000, KAry.within),
    ("unary", 128, 10_000, Unary.within),
    ("unary", 1024, 10_000, Unary.within),
    ("hashing", 1024, 10_000, Hashing.within),
    ("hadamard", 1024, 10_000, Hadamard.within),
    ("subset", 1024, 10_000, Subset.within),
    ("projective", 1024, 10_000, Projective.within),
    ("waves, 4 for ever", 5, 10_000, _waves),
)
NUMBERS: Final = (("duchi", Duchi), ("piecewise", Piecewise), ("hybrid", Hybrid))


def run(errors: int = ERRORS) -> list[dict[str, object]]:
    """Return one row for each task."""
    of_shares = [_of_shares(*task, errors) for task in TASKS]
    return of_shares + [
        _of_numbers(name, kind.within, 1_000, errors // 5) for name, kind in NUMBERS
    ]


def _of_shares(name: str, size: int, people: int, make: Make, errors: int) -> dict[str, object]:
    oracle, shares = make(size, EPSILON), _shares(size)
    ends = np.cumsum(shares)[:-1]

    def answers(generator: np.random.Generator, people: int) -> Integers:
        return np.searchsorted(ends, generator.random(people), "right")

    surveys = _surveys(-(-errors // size), people, answers)
    found = [estimate(_said(oracle, values)) for values in surveys]
    off = np.array([one.shares - shares for one in found])
    held = np.array([(one.low <= shares) & (shares <= one.high) for one in found])
    task = {"randomiser": name, "values": size, "people": people}
    return task | _errors(off, variances(oracle, shares, people), held)


def _of_numbers(
    name: str, make: Callable[[int, Fraction], Numbers], people: int, errors: int
) -> dict[str, object]:
    oracle, off, stated, held = make(STEPS, EPSILON), [], [], []
    for steps in _surveys(errors, people, _numbers):
        counts = oracle.counts(randomise_numbers(oracle, steps, BulkRandomSource()))
        one = estimate_mean(NumberTally(oracle, people, counts))
        off.append(one.mean / STEPS - MEAN)
        stated.append((one.std / STEPS) ** 2)
        held.append(one.low <= MEAN * STEPS <= one.high)
    task = {"randomiser": name, "values": STEPS + 1, "people": people}
    return task | _errors(np.array(off), np.array(stated), np.array(held))


def _errors(off: Floats, stated: Floats, held: NDArray[np.bool_]) -> dict[str, object]:
    seen, said = (100 * float(np.sqrt(np.mean(squares))) for squares in (off**2, stated))
    return {
        "squared errors": off.size, "stated": said, "seen": seen, "seen/stated": seen / said,
        "held %": 100 * float(held.mean()),
    }  # fmt: skip


def _surveys(repeats: int, people: int, drawn: Draw) -> Iterator[Integers]:
    """Yield the true answers of so many surveys' people."""
    generator = np.random.default_rng(1)
    for _ in range(repeats):
        yield drawn(generator, people)


def _numbers(generator: np.random.Generator, people: int) -> Integers:
    return generator.binomial(STEPS, MEAN, people)


def _said(oracle: Oracle, values: Integers) -> Tally:
    dice = BulkRandomSource()
    if isinstance(oracle, PermanentResponse):  # everybody's lasting answer is drawn first
        values = randomise(oracle.permanent, values, dice)[:, 0].astype(np.int64)
    return simulate(oracle, values, dice)


def _shares(size: int) -> Floats:
    weights = 1 / np.arange(1, size + 1) ** 1.3
    return np.asarray(weights / weights.sum())


if __name__ == "__main__":
    from bench.__main__ import main

    main(["estimates"])
