"""Private sums: the noise of the sum is what was priced, and nobody drew all of it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.mechanisms import skellam
from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation.distributed_noise import NoisySum, noisy_sum_for
from sfumato.dp.secure_aggregation.stochastic_rounding import Grid
from support.secure_aggregation_rounds import Round
from support.seeded_dice import SeededDice

DELTA = Fraction(1, 10**5)


def plan(size: int = 4000, **terms: object) -> NoisySum:
    given = {"sites": 6, "floor": 5, "colluders": 1, "epsilon": Fraction(3), "rounds": 2, **terms}
    return noisy_sum_for(Grid(Fraction(1), 100, size), delta=DELTA, **given)  # type: ignore[arg-type]  # as named


@pytest.mark.parametrize("gone", [{}, {"s04": "mask"}])
def test_a_noisy_round_gives_the_pooled_sum_and_the_noise_of_those_who_are_left(
    gone: dict[str, str],
) -> None:
    made = plan()
    round_ = Round(sites=6, floor=5, colluders=1, size=4000, bits=made.bits)
    updates = {n: np.sin(np.arange(4000.0) + i) / 63 for i, n in enumerate(round_.names)}
    round_.values = {n: made.noisy(updates[n], SeededDice(i)) for i, n in enumerate(round_.names)}
    total = made.grid.numbers(round_.play(gone))
    left = [name for name in round_.names if name not in gone]
    error = total - np.sum([updates[name] for name in left], axis=0)
    expected = float(made.share) * len(left) / 100**2
    assert 0.9 < error.var() / expected < 1.1
    assert expected >= float(made.variance) / 100**2
    assert abs(error.mean()) < 5 * (expected / 4000) ** 0.5


def test_colluders_who_take_their_own_noise_away_leave_all_that_was_priced() -> None:
    made = plan()
    assert made.share * (made.floor - made.colluders) == made.variance


def test_the_price_counts_every_round_and_the_failures_in_delta() -> None:
    made = plan()
    whole = made.epsilon(DELTA, 2)
    assert Fraction(299, 100) < whole <= 3
    assert made.epsilon(DELTA, 1) < whole
    l1, l2_squared = 2 * made.grid.most_absolute, 4 * made.grid.most_squared
    assert whole >= skellam.epsilon_of(l1, l2_squared, made.variance, DELTA, 2)
    with pytest.raises(Bug):
        made.epsilon(2 * made.failure, 2)


def test_the_sensitivity_is_that_of_the_rounded_numbers() -> None:
    """Rounding makes an update longer than its clip; the price is of what is sent."""
    made = plan(size=10_000)
    assert made.grid.most_squared > 100**2
    update = np.full(10_000, 0.01 - 1e-12)
    longest = max(
        int(np.sum(made.grid.rounded(update, SeededDice(seed)) ** 2)) for seed in range(5)
    )
    assert 100**2 * 0.9 < longest <= made.grid.most_squared


def test_more_rounds_colluders_or_privacy_mean_more_noise_for_each_site() -> None:
    base = plan().share
    for change in ({"rounds": 4}, {"colluders": 2}, {"epsilon": Fraction(2)}, {"floor": 4}):
        assert plan(**change).share > base


def test_a_person_behind_an_update_needs_about_four_times_the_variance_of_an_update() -> None:
    assert 3.5 < plan(moves=2).variance / plan(moves=1).variance < 4.5


def test_the_width_leaves_room_for_all_sites_and_their_noise() -> None:
    made = plan()
    far = skellam.noise_bound(made.share, made.failure / (6 * 4000))
    most = (2 ** (made.bits - 1) - 1) // 6
    assert made.grid.most_each + far <= most
    assert made.grid.most_each + far > (2 ** (made.bits - 2) - 1) // 6


@pytest.mark.parametrize(
    "wrong",
    [{"floor": 1}, {"colluders": 5}, {"moves": 3}, {"floor": 7}, {"failure": Fraction(0)}],
    ids=str,
)
def test_a_sum_without_honest_noise_cannot_be_made(wrong: dict[str, object]) -> None:
    given = {"sites": 6, "floor": 5, "colluders": 1, "failure": DELTA, **wrong}
    with pytest.raises(Bug):
        NoisySum(Grid(Fraction(1), 10, 4), variance=Fraction(9), **given)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3), Fraction(20)], ids=str)
def test_a_site_that_is_silent_counts_on_both_sides_of_the_price(epsilon: Fraction) -> None:
    """Silence on the neighbour's side is worth e**epsilon: f(1 + e**epsilon), not f."""
    made = plan(epsilon=epsilon, size=50)
    failing = 2 * float(made.failure) * (1 + math.exp(float(epsilon)))
    l1, l2_squared = 2 * made.grid.most_absolute, 4 * made.grid.most_squared
    assert failing <= float(DELTA) / 100
    rest = DELTA - Fraction(failing)
    assert skellam.epsilon_of(l1, l2_squared, made.variance, rest, 2) <= epsilon
    assert made.epsilon(DELTA, 2) <= epsilon
