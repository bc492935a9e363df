"""A model gives its members away to shadow models; its private twin does not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato.dp.refusal import Bug
from sfumato.lab import logistic_models
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.membership_in_models import (
    COLUMNS,
    RIDGE,
    Bells,
    Shadows,
    draw_people,
    released,
    stand_above,
)
from sfumato.lab.logistic_models import chance_of, noise_variance, private_twins, trained
from support.continuous_gaussian import analytic_sigma


def dice() -> np.random.Generator:
    return np.random.default_rng(3)


def loss(rows: logistic_models.Floats, weights: logistic_models.Floats, ridge: float) -> float:
    bent = np.log1p(np.exp(-rows @ weights)).sum()
    return float(bent + ridge * (weights**2).sum() / 2)


def test_training_finds_the_least_loss() -> None:
    rows = draw_people(30, 8, dice())
    (weights,) = trained(rows[None], 0.5)
    best = loss(rows, weights, 0.5)
    for step in dice().standard_normal((50, 8)):
        assert loss(rows, weights + 0.01 * step, 0.5) > best


def test_many_models_are_trained_as_each_alone() -> None:
    rows = draw_people(40, 6, dice()).reshape(2, 20, 6)
    both = trained(rows, 0.3)
    alone = np.concatenate([trained(one[None], 0.3) for one in rows])
    assert both == pytest.approx(alone, abs=1e-6)


def test_a_model_that_never_rests_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logistic_models, "STEPS", 1)
    with pytest.raises(Bug, match="has not converged"):
        trained(draw_people(30, 8, dice())[None], 0.1)


def test_an_example_that_would_move_the_weights_further_is_a_bug() -> None:
    with pytest.raises(Bug, match="a norm above 1"):
        trained(np.array([[[1.0, 0.0], [0.8, 0.61]]]), 0.1)


@pytest.mark.parametrize("ridge", [0.05, 0.5, 5.0])
def test_one_person_moves_the_weights_by_no_more_than_one_over_the_ridge(ridge: float) -> None:
    generator = dice()
    people = draw_people(200 * 5, 4, generator).reshape(200, 5, 4)
    everyone, without = trained(people, ridge), trained(people[:, 1:], ridge)
    moved = np.sqrt(((everyone - without) ** 2).sum(axis=1))
    assert moved.max() < 1 / ridge
    alone = trained(people[:, :1], ridge)  # against nobody, whose weights are zero
    assert np.sqrt((alone**2).sum(axis=1)).max() < 1 / ridge


def test_half_of_that_distance_is_needed_by_one_person_alone() -> None:
    (alone,) = trained(np.array([[[1.0, 0.0]]]), 100.0)
    assert alone[0] > 0.49 / 100  # with a margin near zero, the pull is a half


def test_the_twins_noise_is_as_wide_as_the_ridge_needs() -> None:
    twins = private_twins(np.zeros((300, 50)), ridge=0.1, epsilon=1, dice=dice())
    least = analytic_sigma(1, 1e-5, 10)  # of any Gaussian; ours is a little wider
    assert least < twins.std() < 1.12 * least
    said = noise_variance(ridge=0.1, columns=50, epsilon=1)
    assert twins.var() == pytest.approx(said, rel=0.05)


def test_a_shadow_model_with_the_row_comes_to_what_training_anew_gives() -> None:
    generator = dice()
    shadows = Shadows.of(24, COLUMNS, 8, generator)
    rows = draw_people(6, COLUMNS, generator)
    without, with_it = shadows.margins(rows)
    for place, row in enumerate(rows):
        more = np.concatenate([shadows.rows, np.broadcast_to(row, (8, 1, COLUMNS))], axis=1)
        anew = trained(more, RIDGE) @ row
        assert with_it[place] == pytest.approx(anew, abs=0.02)
        assert np.abs(with_it[place] - without[place]).min() > 0.2


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_a_stranger_is_named_exactly_as_rarely_as_is_said(epsilon: float | None) -> None:
    generator, trials, others = dice(), 500, 9
    shadows = Shadows.of(24, COLUMNS, 16, generator)
    rows = draw_people(trials * 24, COLUMNS, generator).reshape(trials, 24, COLUMNS)
    models = released(trained(rows, RIDGE), epsilon, generator)
    above = []
    for model in models:
        crowd = draw_people(others + 1, COLUMNS, generator)
        above.append(stand_above(crowd, model, Bells.of(shadows, crowd), epsilon))
    seen = np.bincount(above, minlength=others + 1)
    assert stats.chisquare(seen).pvalue > 1e-4


def test_a_chance_is_no_error_far_from_the_middle() -> None:
    assert chance_of(np.array([-1e6, 0.0, 1e6])).tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_the_report_names_members_of_the_model_and_not_of_its_twins() -> None:
    found = attack("membership-models").report(runs=60, seed=1, strangers="99")
    exact, *ours = found.successes
    assert exact.within()[0] > 0.08
    assert {one.epsilon for one in ours} == {0.1, 1, 10}
    assert ours[0].rate < 0.1
    assert found.above_bounds() == ()


def test_two_shares_of_mistakes_are_shown_where_there_are_strangers_enough() -> None:
    found = attack("membership-models").report(runs=2, seed=1, epsilons="1")
    names = [one.against for one in found.successes]
    assert names == [
        "the model itself, at 1 %", "the model itself, at 0.1 %",
        "epsilon = 1, at 1 %", "epsilon = 1, at 0.1 %",
    ]  # fmt: skip
    assert [one.bound for one in found.successes[2:]] == pytest.approx([0.0272, 0.00273], rel=0.01)
