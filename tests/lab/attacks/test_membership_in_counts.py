"""Exact means name the members of a study; ours do not."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.lab.attacks import attack
from sfumato.lab.attacks.membership_in_counts import (
    Floats,
    false_alarms,
    is_named,
    likeness,
    private_counts,
)
from support.continuous_gaussian import analytic_sigma

TRAITS, STRANGERS = 300, 19


def dice() -> np.random.Generator:
    return np.random.default_rng(3)


def named(*, is_in: bool, trials: int) -> int:
    generator, hits = dice(), 0
    for _ in range(trials):
        usual = generator.uniform(0.1, 0.9, TRAITS)
        crowd = generator.random((STRANGERS + 1, TRAITS)) < usual
        counts = generator.binomial(49, usual) + crowd[0] * is_in
        hits += is_named(crowd[0], crowd[1:], counts / 50, usual)
    return hits


def test_likeness_is_the_sum_of_both_leanings() -> None:
    usual: Floats = np.array([0.5, 0.5])
    people = np.array([[1, 0], [0, 0]])
    assert likeness(people, np.array([0.7, 0.4]), usual).tolist() == pytest.approx([0.15, -0.05])


def test_members_are_named_and_strangers_exactly_as_rarely_as_is_said() -> None:
    assert named(is_in=True, trials=300) > 150
    mistaken = named(is_in=False, trials=2000) / 2000
    assert false_alarms(STRANGERS) == 0.05
    assert abs(mistaken - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 2000)


def test_who_is_equal_to_a_stranger_is_not_named() -> None:
    one = np.array([1.0, 0.0])
    assert not is_named(one, one[None], np.array([0.9, 0.2]), np.array([0.5, 0.5]))


def test_our_counts_have_noise_for_all_traits_together() -> None:
    noise = private_counts(np.zeros(40_000, np.int64), epsilon=1, dice=dice())
    least = analytic_sigma(1, 1e-5, 200)  # of any Gaussian; ours is a little wider
    assert least < noise.std() < 1.12 * least


def test_the_report_names_members_by_exact_means_alone() -> None:
    found = attack("membership").report(runs=150, seed=1, traits="500")
    exact, *ours = found.successes
    assert exact.within()[0] > 0.2
    assert [one.epsilon for one in ours] == [0.1, 1, 10]
    assert ours[0].rate < 0.05
    assert found.above_bounds() == ()
