"""Reconstruct everybody's secret bit from counts over random subsets (Dinur and Nissim 2003).

Each count is a linear equation. With more counts than people, and noise well below the square root
of the number of people, the solution is near the truth. Noise on each count protects nobody if
questions are unlimited. One budget for all counts does protect.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.client.plot import Plot
from sfumato.dp.refusal import Bug
from sfumato.lab.attack import EPSILONS_OPTION, Attack, Setting
from sfumato.lab.attack_report import CONFIDENCE, Report, SuccessRate
from sfumato.lab.line_plot import Axes, Point, curves
from sfumato.lab.one_bit_game import parts
from sfumato.lab.platform_noise import private_sums
from sfumato.lab.success_rate_bounds import guessing_bound, interval
from sfumato.system.optional_packages import extra_module

Bits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Method = Callable[[Bits, Counts], Bits]
Release = Callable[[Counts], Counts]
PEOPLE: Final = 64
PER_PERSON: Final = 4  # number of counts for each person
ROUNDS: Final = 3  # databases per point of the curve, by linear programming
FAST_ROUNDS: Final = 50  # the same by least squares
# the tried noise, in multiples of the square root of the number of people
STEPS: Final = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)


def random_subsets(people: int, counts: int, dice: np.random.Generator) -> Bits:
    """Draw random subsets of the people; a fair coin decides for each person and subset."""
    return dice.random((counts, people)) < 0.5


def subset_counts(subsets: Bits, secrets: Bits) -> Counts:
    """Count the people in each subset who have the secret bit; one row per database."""
    exact: Counts = secrets.astype(np.int64) @ subsets.T.astype(np.int64)
    return exact


def by_least_squares(subsets: Bits, answers: NDArray[Any]) -> Bits:
    """Reconstruct the secret bits by least squares, for one database or one row per database.

    This is much faster than linear programming.
    """
    inverse = np.linalg.pinv(subsets.astype(np.float64))
    guessed: Bits = np.asarray(answers, np.float64) @ inverse.T > 0.5
    return guessed


def by_linear_programme(subsets: Bits, answers: NDArray[Any]) -> Bits:
    """Reconstruct the secret bits of one database by linear programming: least absolute errors."""
    optimize = extra_module("scipy.optimize", "lab")
    counts, people = subsets.shape
    inside, slack = subsets.astype(np.float64), np.eye(counts)
    found = optimize.linprog(
        np.concatenate([np.zeros(people), np.ones(counts)]),
        A_ub=np.block([[inside, -slack], [-inside, -slack]]),
        b_ub=np.concatenate([answers, -np.asarray(answers)]).astype(np.float64),
        bounds=[(0, 1)] * people + [(0, None)] * counts,
        method="highs",
    )
    if found.x is None:
        raise Bug("the linear program has no solution, although any bits fit with enough error")
    guessed: Bits = found.x[:people] > 0.5
    return guessed


def rounded_off(exact: Counts, most: int, dice: np.random.Generator) -> Counts:
    """Return counts with home-made protection: independent uniform errors of at most `most`."""
    released: Counts = exact + dice.integers(-most, most, size=exact.shape, endpoint=True)
    return released


def within_budget(exact: Counts, *, epsilon: float, dice: np.random.Generator) -> Counts:
    """Return all counts of a database with Laplace noise; together they cost epsilon."""
    return private_sums(exact, sensitivity=exact.shape[-1], epsilon=epsilon, dice=dice)


def _run(setting: Setting) -> Report:
    people = setting.whole("people", PEOPLE, least=2, most=500)
    asked = setting.whole("counts", PER_PERSON * people, least=1, most=5000)
    subsets = random_subsets(people, asked, setting.dice)
    successes = (
        *_unprotected(subsets, setting),
        *(_ours(subsets, setting, epsilon) for epsilon in setting.epsilons()),
    )
    return Report(
        attack="reconstruction",
        title=f"Reconstructing {people} secrets from {asked} counts",
        knows="The attacker chooses random subsets of the people and sees the count of each.",
        measure="people whose secret bit is guessed correctly, by least squares",
        successes=successes,
        finding=_finding(successes),
        guessing=0.5,
        pictures=(_curve(subsets, setting),),
    )


def _unprotected(subsets: Bits, setting: Setting) -> tuple[SuccessRate, ...]:
    """Attack counts that no privacy budget limits, and return the success rates.

    The counts are exact, have random errors up to a limit, or have noise of epsilon 1 for each
    count.
    """
    root, dice = round(math.sqrt(subsets.shape[1])), setting.dice
    releases: dict[str, Release] = {"exact counts": lambda exact: exact}
    for most in (root // 2, root, 2 * root):
        releases[f"off by up to {most}"] = partial(rounded_off, most=most, dice=dice)
    successes = [_tried(name, subsets, setting, made) for name, made in releases.items()]
    each = partial(private_sums, sensitivity=1, epsilon=1, dice=dice)
    last = _tried("epsilon = 1 for each count", subsets, setting, each)
    note = f"no budget: {len(subsets)} in all"
    return (*successes, replace(last, note=note))


def _ours(subsets: Bits, setting: Setting, epsilon: float) -> SuccessRate:
    """Return the success rate against our release, where one budget pays for all counts.

    The bits of one database share a release. Still, for fair bits, many right guesses are no
    likelier than in as many independent trials (Steinke, Nasr and Jagielski 2023, Theorem 2.1). So
    the interval may be compared with the bound.
    """
    made = partial(within_budget, epsilon=epsilon, dice=setting.dice)
    found = _tried(f"epsilon = {epsilon:g} for all counts", subsets, setting, made)
    return replace(found, epsilon=epsilon, bound=guessing_bound(epsilon))


def _tried(name: str, subsets: Bits, setting: Setting, made: Release) -> SuccessRate:
    hits = 0
    for runs in parts(setting.runs, len(subsets)):
        secrets = _secrets(subsets, runs, setting.dice)
        guessed = by_least_squares(subsets, made(subset_counts(subsets, secrets)))
        hits += int((secrets == guessed).sum())
    return SuccessRate(name, hits, setting.runs * subsets.shape[1])


def _secrets(subsets: Bits, runs: int, dice: np.random.Generator) -> Bits:
    return dice.random((runs, subsets.shape[1])) < 0.5


def _finding(successes: tuple[SuccessRate, ...]) -> str:
    exact = successes[0]
    ours = [one for one in successes if one.epsilon is not None]
    shares = ", ".join(f"{one.rate:.0%} at epsilon {one.epsilon:g}" for one in ours)
    return (
        f"From exact counts, {exact.rate:.0%} of the secrets are reconstructed. Noise "
        "on each count helps only if it is larger than the square root of the number "
        f"of people. With one budget for all counts, it is {shares}; random guessing "
        "gives 50 %."
    )


def _curve(subsets: Bits, setting: Setting) -> Plot:
    """Plot the share of reconstructed bits against the noise.

    There is one line for least squares, and one for linear programming.
    """
    people = subsets.shape[1]
    points: list[Point] = []
    for most in (round(step * math.sqrt(people)) for step in STEPS):
        points.append(_point("least squares", by_least_squares, most, subsets, setting))
        points.append(_point("linear program", _each_by_programme, most, subsets, setting))
    return curves(
        Axes(
            title="Reconstruction with noise on every count",
            x="largest error of every count",
            y="secrets reconstructed",
            marks={"square root of the number of people": math.sqrt(people)},
        ),
        sorted(points, key=lambda point: (point.line, point.x)),
        says=f"{people} people, {len(subsets)} counts; random guessing gives half.",
    )


def _point(line: str, method: Method, most: int, subsets: Bits, setting: Setting) -> Point:
    rounds = min(setting.runs, ROUNDS if method is _each_by_programme else FAST_ROUNDS)
    secrets = _secrets(subsets, rounds, setting.dice)
    seen = rounded_off(subset_counts(subsets, secrets), most, setting.dice)
    hits = int((method(subsets, seen) == secrets).sum())
    low, high = interval(hits, secrets.size, CONFIDENCE)
    return Point(line, most, hits / secrets.size, low, high)


def _each_by_programme(subsets: Bits, answers: Counts) -> Bits:
    return np.stack([by_linear_programme(subsets, one) for one in answers])


ATTACK: Final = Attack(
    "reconstruction",
    "reconstruct everybody's secret bit from many random counts",
    _run,
    runs=200,
    options={
        "people": "how many people there are",
        "counts": "how many counts are asked",
        **EPSILONS_OPTION,
    },
)
