"""A count moves the odds of a secret by e to the epsilon at most; the village tells the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sfumato.lab.attacks import attack, attribute_inference
from sfumato.lab.attacks.attribute_inference import (
    Village,
    joint_chances,
    noise_chances,
    odds_moved,
    right_without,
)
from sfumato.lab.platform_noise import private_sums

EPSILONS = [0.01, 0.1, 0.5, 1.0, 3.0, 10.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rates", [(0.2, 0.8), (0.5,), (0.01, 0.3, 0.99)])
def test_the_targets_row_moves_the_odds_by_no_more_than_epsilon(
    epsilon: float, rates: tuple[float, ...]
) -> None:
    moved = odds_moved(Village(12, rates), epsilon=epsilon)
    assert moved <= epsilon + 1e-9
    assert moved > 0.9 * epsilon  # far out, all of it


def test_half_the_noise_would_move_the_odds_by_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        attribute_inference, "noise_chances", lambda off, e: noise_chances(off, 2 * e)
    )
    assert odds_moved(Village(12), epsilon=1) > 1.5


def test_the_chances_of_all_counts_and_secrets_add_up_to_one() -> None:
    released = np.arange(-60, 80)
    for is_in in (True, False):
        chances = joint_chances(Village(12), released, epsilon=1, is_in=is_in)
        assert chances.sum() == pytest.approx(1)
        assert chances.sum(axis=1) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_count_that_can_be_released_is_left_out_of_the_reckoning(epsilon: float) -> None:
    released = attribute_inference._reachable(Village(12), epsilon)
    chances = joint_chances(Village(12), released, epsilon=epsilon, is_in=True)
    assert chances.sum() == pytest.approx(1, abs=1e-9)


def test_a_lone_target_who_is_left_out_is_told_by_nothing() -> None:
    assert right_without(Village(1), epsilon=1) == pytest.approx(0.5)


def test_the_noise_is_the_platforms_law() -> None:
    chances = noise_chances(np.arange(-80, 81), 0.5)
    assert chances.sum() == pytest.approx(1)
    assert chances[80] / chances[81] == pytest.approx(math.exp(0.5))


def test_the_report_tells_what_the_village_gives_from_what_the_row_gives() -> None:
    found = attack("attribute").report(runs=4000, seed=1)
    rates = {one.against: one.rate for one in found.successes}
    assert rates["exact count, others known"] == 1
    assert rates["epsilon = 1, others known"] == pytest.approx(0.731, abs=0.03)
    assert rates["epsilon = 1, village known, target removed"] > 0.7
    assert found.above_bounds() == ()


def test_what_the_removed_target_gives_is_what_the_arithmetic_says() -> None:
    found = attack("attribute").report(runs=20_000, seed=2, epsilons="1")
    (removed,) = [one for one in found.successes if "removed" in one.against]
    assert removed.rate == pytest.approx(right_without(Village(20), epsilon=1), abs=0.015)


def test_noise_of_half_the_scale_is_right_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = private_sums

    def halved(
        sums: attribute_inference.Counts,
        *,
        sensitivity: int,
        epsilon: float,
        dice: np.random.Generator,
    ) -> attribute_inference.Counts:
        return ours(sums, sensitivity=sensitivity, epsilon=2 * epsilon, dice=dice)

    monkeypatch.setattr(attribute_inference, "private_sums", halved)
    broken = attack("attribute").report(runs=20_000, seed=1).above_bounds()
    assert {one.against for one in broken} >= {"epsilon = 1, others known"}
