"""One bit behind the platform's noise: guessed as often as theory allows, and never more often."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.mechanisms import laplace
from sfumato.lab.attack_report import Report
from sfumato.lab.attacks import averaging, differencing, linkage_report, rating_linkage_report
from sfumato.lab.one_bit_game import (
    CELLS,
    Look,
    by_the_mean,
    by_the_votes,
    parts,
    successes_against_ours,
)
from sfumato.lab.success_rate_bounds import guessing_bound

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TRIALS = 20_000
REPORTS: list[Callable[[np.random.Generator], Report]] = [
    lambda dice: averaging.attack_counts(dice, runs=TRIALS // 10),
    lambda dice: differencing.attack_counts(dice, runs=TRIALS // 10),
    lambda dice: linkage_report.attack_counts(dice, trials=TRIALS),
    lambda dice: rating_linkage_report.attack_counts(dice, trials=TRIALS),
]


def dice(seed: int = 20261121) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("report", REPORTS)
def test_no_attack_is_above_its_bound(report: Callable[[np.random.Generator], Report]) -> None:
    found = report(dice())
    assert {one.epsilon for one in found.successes if one.epsilon} >= {0.1, 1.0, 10.0}
    assert found.above_bounds(0.999) == ()


def halved(sensitivity: int, epsilon: Fraction) -> Fraction:
    return Fraction(sensitivity) / epsilon / 2


@pytest.mark.parametrize("report", [REPORTS[0], REPORTS[2]])
def test_noise_of_half_the_scale_is_above_the_bound(
    report: Callable[[np.random.Generator], Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laplace, "scale_for", halved)
    assert 1.0 in {one.epsilon for one in report(dice()).above_bounds(0.999)}


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_guess_from_one_count_reaches_the_bound(epsilon: float) -> None:
    rate = Look().hits(dice(), epsilon=epsilon, runs=TRIALS) / TRIALS
    assert rate == pytest.approx(guessing_bound(epsilon), abs=0.012)


@pytest.mark.parametrize("guess", [by_the_mean, by_the_votes])
@pytest.mark.parametrize("counts", [1, 2, 7])
def test_however_the_epsilon_is_split_the_bound_holds(
    guess: Callable[..., np.ndarray], counts: int
) -> None:
    found = successes_against_ours(dice(), runs=TRIALS, look=Look(counts, guess), epsilons=EPSILONS)
    assert [one for one in found if one.is_above_bound(1 - 2 * 0.001 / len(found))] == []


@pytest.mark.parametrize("guess", [by_the_mean, by_the_votes])
def test_who_sees_no_lean_tosses_a_coin(guess: Callable[..., np.ndarray]) -> None:
    undecided = np.tile([0, 1], (TRIALS, 1))
    assert guess(undecided, dice()).mean() == pytest.approx(0.5, abs=0.02)


def test_counts_that_lean_are_told_so() -> None:
    counts = np.array([[0, -3, 1], [2, 1, 0]])
    assert by_the_votes(counts, dice()).tolist() == [0, 1]
    assert by_the_mean(counts, dice()).tolist() == [0, 1]


@pytest.mark.parametrize(("runs", "width"), [(1, 1), (10, 10**9), (9_000_001, 3), (8, 500_000)])
def test_all_runs_are_taken_a_part_at_a_time(runs: int, width: int) -> None:
    taken = parts(runs, width)
    assert sum(taken) == runs
    assert max(taken) * width <= max(CELLS, width)
