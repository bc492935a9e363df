"""A gradient is its picture; clipped and noisy it is one of many."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.lab import dense_model
from sfumato.lab.attacks import attack
from sfumato.lab.attacks.gradient_inversion import (
    between_rulers,
    invert_one,
    label_of_one,
    pick,
    plant_rulers,
    rebuilt,
    separate,
)
from sfumato.lab.dense_model import (
    Dense,
    clipped,
    draw_model,
    draw_pictures,
    private_sum,
)
from support.continuous_gaussian import analytic_sigma

SEEDS = pytest.mark.parametrize("seed", range(3, 11))


def dice(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


def loss(model: Dense, picture: dense_model.Floats, label: int) -> float:
    hidden = np.maximum(picture @ model.first.T + model.first_bias, 0)
    scores = hidden @ model.last.T + model.last_bias
    return float(np.log(np.exp(scores).sum()) - scores[label])


def test_a_gradient_is_how_the_loss_changes() -> None:
    generator = dice()
    model, (pictures, labels) = draw_model(16, generator), draw_pictures(1, generator)
    found = model.gradients(pictures, labels)
    for name, place in (("first", (3, 7)), ("first_bias", (3,)), ("last", (1, 5)),
                        ("last_bias", (2,))):  # fmt: skip
        ends = []
        for step in (1e-6, -1e-6):
            moved = {one: getattr(model, one).copy() for one in ("first", "first_bias", "last")}
            moved["last_bias"] = model.last_bias.copy()
            moved[name][place] += step
            ends.append(loss(Dense(**moved), pictures[0], int(labels[0])))
        slope = (ends[0] - ends[1]) / 2e-6
        assert getattr(found, name)[0][place] == pytest.approx(slope, abs=1e-6)


@SEEDS
def test_one_picture_and_its_label_come_back_exactly(seed: int) -> None:
    generator = dice(seed)
    model, (pictures, labels) = draw_model(32, generator), draw_pictures(20, generator)
    every = model.gradients(pictures, labels)
    for place in range(20):
        found = invert_one(every.first[place], every.first_bias[place])
        assert found == pytest.approx(pictures[place], abs=1e-10)
        assert label_of_one(every.last_bias[place]) == labels[place]


@SEEDS
def test_clipping_alone_changes_no_digit_of_the_picture(seed: int) -> None:
    generator = dice(seed)
    model, (pictures, labels) = draw_model(32, generator), draw_pictures(1, generator)
    alone = model.gradients(pictures, labels)
    short = alone.shaped(clipped(alone.flat(), 0.01)[0])
    assert np.sqrt((clipped(alone.flat(), 0.01) ** 2).sum()) == pytest.approx(0.01)
    assert invert_one(short.first, short.first_bias) == pytest.approx(pictures[0], abs=1e-10)


@SEEDS
def test_what_separates_is_a_picture_of_the_batch_and_never_a_mixture(seed: int) -> None:
    generator = dice(seed)
    model, (pictures, labels) = draw_model(256, generator), draw_pictures(4, generator)
    summed = model.gradients(pictures, labels).summed()
    found = separate(summed.first, summed.first_bias)
    assert len(found) == rebuilt(found, pictures) >= 2


@SEEDS
def test_planted_rulers_give_most_of_a_batch_back(seed: int) -> None:
    generator = dice(seed)
    pictures, labels = draw_pictures(8, generator)
    bright = draw_pictures(500, generator)[0].mean(axis=1)
    model = plant_rulers(draw_model(256, generator), bright)
    summed = model.gradients(pictures, labels).summed()
    assert rebuilt(between_rulers(summed.first, summed.first_bias), pictures) >= 6


def test_a_silent_model_gives_nothing_back() -> None:
    assert rebuilt(separate(np.zeros((4, 64)), np.zeros(4)), np.zeros((2, 64))) == 0


def test_the_nearest_gradient_is_picked() -> None:
    lineup = np.eye(3)
    assert pick(np.array([0.1, 0.9, 0.2]), lineup) == 1


def test_one_example_moves_the_noisy_sum_by_no_more_than_the_clipping() -> None:
    rows = dice().standard_normal((50, 400)) * 10
    lengths = np.sqrt((clipped(rows, 1.0) ** 2).sum(axis=1))
    assert lengths.max() <= 1 + 1e-12
    short = clipped(rows * 1e-4, 1.0)
    assert short == pytest.approx(rows * 1e-4)


def test_the_noise_on_a_gradient_is_as_wide_as_the_clipping_needs() -> None:
    noise = private_sum(np.zeros((1, 20_000)), most=1.0, epsilon=1, dice=dice())
    least = analytic_sigma(1, 1e-5, 1)  # of any Gaussian; ours is a little wider
    assert least < noise.std() < 1.12 * least


def test_the_report_rebuilds_bare_gradients_and_not_noisy_ones() -> None:
    found = attack("gradients").report(runs=60, seed=1)
    one, short, many, planted, fitted, *ours = found.successes
    assert fitted.tries == 2  # of them some: it may end in a wrong valley
    assert (one.rate, short.rate) == (1, 1)
    assert many.rate > 0.3
    assert planted.rate > 0.7
    assert ours[0].rate < 0.3
    assert found.above_bounds() == ()
    (faces,) = found.pictures
    errors = {cell[0]: float(cell[1]) for cell in faces.cells}
    assert errors["from its gradient"] < 1e-9
    assert errors["epsilon = 1"] > 0.1
