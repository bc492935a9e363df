"""The bits of float noise give a count away; whole-number noise has none to give."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.lab.attacks import attack, floating_point
from sfumato.lab.attacks.floating_point import (
    could_be,
    guess_one,
    guess_one_by_lowest_bit,
    lowest_bit,
    naive_release,
)
from sfumato.lab.platform_noise import private_sums

LOOKS = 1500


def dice() -> np.random.Generator:
    return np.random.default_rng(3)


def naive(count: int, epsilon: float) -> floating_point.Floats:
    return naive_release(np.full(LOOKS, count), epsilon, dice())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("count", [0, 1])
def test_what_the_noise_made_from_a_count_could_be_from_it(count: int, epsilon: float) -> None:
    released = naive(count, epsilon)
    assert could_be(released, float(count), epsilon).all()
    assert could_be(released, float(1 - count), epsilon).mean() < 0.35


@pytest.mark.parametrize(
    ("number", "bit"), [(1.0, 0), (1.5, -1), (0.75, -2), (-6.0, 1), (2.0**-60, -60), (0.0, 4043)]
)
def test_the_lowest_bit_is_the_power_of_two_that_is_left(number: float, bit: int) -> None:
    assert lowest_bit(np.array([number])).tolist() == [bit]


def test_one_look_beats_the_promise_of_float_noise_and_not_of_ours() -> None:
    found = attack("floats").report(runs=1500, seed=1, epsilons="0.1,1")
    naive_ones = [one for one in found.successes if one.epsilon is None]
    assert naive_ones[0].within(0.9999)[0] > 0.85  # 52.5 % were promised
    assert naive_ones[1].within(0.9999)[0] > 0.85
    assert found.above_bounds() == ()


def test_the_lowest_bit_alone_tells_a_finer_number_from_one_and_noise() -> None:
    made_of_one = naive(1, 1.0)
    told = guess_one_by_lowest_bit(np.concatenate([naive(0, 1.0), made_of_one]), 1.0)
    assert not told[:LOOKS][lowest_bit(naive(0, 1.0)) < -53].any()
    assert (lowest_bit(made_of_one[np.abs(made_of_one) >= 0.5]) >= -53).all()


def test_the_lowest_bit_tells_more_than_the_size() -> None:
    dice = np.random.default_rng(1)
    truths = dice.random(20_000) < 0.5
    released = naive_release(truths.astype(np.int64), 0.5, dice)
    by_size = ((released >= 0.5) == truths).mean()  # 60.7 %, the best that the size can do
    assert (guess_one_by_lowest_bit(released, 0.5) == truths).mean() > by_size + 0.03
    rounded = np.round(released * 2.0**20) / 2.0**20
    assert (guess_one_by_lowest_bit(rounded, 0.5) == truths).mean() < by_size + 0.01


def test_whole_numbers_could_be_from_either_count() -> None:
    whole = np.arange(-5.0, 6.0)
    ours = guess_one(whole, 1.0)
    assert ours.tolist() == (whole >= 1).tolist()


def test_noise_of_half_the_scale_is_seen_in_one_look_each(monkeypatch: pytest.MonkeyPatch) -> None:
    right = private_sums

    def halved(
        sums: np.typing.NDArray[np.int64],
        *,
        sensitivity: int,
        epsilon: float,
        dice: np.random.Generator,
    ) -> np.typing.NDArray[np.int64]:
        return right(sums, sensitivity=sensitivity, epsilon=2 * epsilon, dice=dice)

    monkeypatch.setattr(floating_point, "private_sums", halved)
    assert attack("floats").report(runs=2000, seed=1, epsilons="1").above_bounds() != ()
