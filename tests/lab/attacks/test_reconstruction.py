"""Many counts rebuild everybody, unless they share one budget."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.lab.attacks import attack
from sfumato.lab.attacks.reconstruction import (
    by_least_squares,
    by_linear_programme,
    random_subsets,
    rounded_off,
    subset_counts,
    within_budget,
)

PEOPLE, COUNTS = 24, 192


def dice() -> np.random.Generator:
    return np.random.default_rng(3)


def test_a_count_is_how_many_of_the_subset_have_the_secret() -> None:
    subsets = np.array([[True, True, False], [False, True, True]])
    secrets = np.array([[True, False, True], [True, True, False]])
    assert subset_counts(subsets, secrets).tolist() == [[1, 1], [2, 1]]


@pytest.mark.parametrize("most", [0, 1])
def test_both_methods_rebuild_everybody_from_nearly_exact_counts(most: int) -> None:
    generator = dice()
    subsets = random_subsets(PEOPLE, COUNTS, generator)
    secrets = generator.random((3, PEOPLE)) < 0.5
    answers = rounded_off(subset_counts(subsets, secrets), most, generator)
    assert (by_least_squares(subsets, answers) == secrets).all()
    for truth, seen in zip(secrets, answers, strict=True):
        assert (by_linear_programme(subsets, seen) == truth).mean() > 0.9


def test_one_answer_that_is_far_off_does_not_mislead_the_linear_programme() -> None:
    generator = dice()
    subsets = random_subsets(PEOPLE, COUNTS, generator)
    secrets = generator.random(PEOPLE) < 0.5
    answers = subset_counts(subsets, secrets[None])[0]
    answers[0] += 500
    assert (by_linear_programme(subsets, answers) == secrets).all()
    assert (by_least_squares(subsets, answers) != secrets).any()


def test_home_made_noise_is_never_larger_than_it_says_and_reaches_both_ends() -> None:
    off = rounded_off(np.zeros((1, 5000), np.int64), 3, dice())
    assert set(off.ravel().tolist()) == {-3, -2, -1, 0, 1, 2, 3}


def test_one_person_moves_all_counts_together_by_no_more_than_the_noise_is_made_for() -> None:
    subsets = np.ones((COUNTS, PEOPLE), dtype=bool)
    secrets = dice().random((2, PEOPLE)) < 0.5
    secrets[1] = secrets[0]
    secrets[1, 0] = ~secrets[0, 0]
    with_them, without = subset_counts(subsets, secrets)
    assert np.abs(with_them - without).sum() == COUNTS
    noise = within_budget(np.zeros((1000, COUNTS), np.int64), epsilon=1, dice=dice())
    assert np.abs(noise).mean() == pytest.approx(COUNTS, rel=0.03)


def test_the_report_shows_success_without_a_budget_and_failure_with_one() -> None:
    found = attack("reconstruction").report(runs=20, seed=1, people="32")
    rates = {one.against: one.rate for one in found.successes}
    assert rates["exact counts"] == 1
    assert rates["epsilon = 1 for each count"] > 0.9
    assert rates["epsilon = 0.1 for all counts"] < 0.6
    assert found.above_bounds() == ()
    (curve,) = found.pictures
    assert {cell[0] for cell in curve.cells} == {"least squares", "linear program"}
