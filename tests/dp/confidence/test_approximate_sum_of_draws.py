"""The error of a sum of draws: exact where the law can be folded, a little more where not."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from sfumato.dp.confidence.sum_of_draws import margin_95_of_sum, std_of_sum
from sfumato.dp.mechanisms.binary_tree import Tree
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.mechanisms.running_count import Axis, TreeMechanism

LAPLACE, GAUSSIAN = Noise("laplace", Fraction(5, 2)), Noise("gaussian", Fraction(9))


class Seeded:
    """Dice that fall the same way every time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def draw(self, count: int) -> bytes:
        return self.random.randbytes(count)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_margin_is_the_smallest_of_the_law_folded_by_hand(noise: Noise, count: int) -> None:
    places = np.arange(-400, 401)
    if noise.kind == "laplace":
        law = np.exp(-np.abs(places) / float(noise.parameter))
    else:
        law = np.exp(-(places**2) / (2 * float(noise.parameter)))
    law /= law.sum()
    folded = law
    for _ in range(count - 1):
        folded = np.convolve(folded, law)
    middle = len(folded) // 2
    within = [folded[middle - t : middle + t + 1].sum() for t in range(200)]
    assert margin_95_of_sum(noise, count) == next(t for t, p in enumerate(within) if p >= 0.95)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("count", [2, 9, 60])
def test_wide_noise_has_the_margin_of_the_same_law_to_scale(kind: str, count: int) -> None:
    fine, wide = Fraction(100), Fraction(100 * 2**20)
    if kind == "laplace":
        near, far = Noise("laplace", fine), Noise("laplace", wide)
    else:
        near, far = Noise("gaussian", fine**2), Noise("gaussian", wide**2)
    ratio = margin_95_of_sum(far, count) / (margin_95_of_sum(near, count) * 2**20)
    assert 1 - 2 / margin_95_of_sum(near, count) < ratio < 1 + 3 / 1000


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN, Noise("laplace", Fraction(40_000))])
def test_sums_of_draws_are_within_the_margin_as_often_as_it_says(noise: Noise) -> None:
    count, sums = 5, 40_000
    drawn = noise.sample(count * sums, Seeded(3)).reshape(sums, count).sum(axis=1)
    inside = np.mean(np.abs(drawn) <= margin_95_of_sum(noise, count))
    below = np.mean(np.abs(drawn) < margin_95_of_sum(noise, count) * 0.97)
    assert 0.95 - 5 * math.sqrt(0.05 / sums) < inside
    assert below < 0.95 + 5 * math.sqrt(0.05 / sums)
    assert np.std(drawn) == pytest.approx(std_of_sum(noise, count), rel=0.03)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN, Noise("laplace", Fraction(10**9))])
@pytest.mark.parametrize("count", [64, 65, 127, 1000, 1023, 10_000])
def test_the_margin_of_many_draws_is_that_of_a_normal_law_and_little_more(
    noise: Noise, count: int
) -> None:
    normal = 1.959964 * std_of_sum(noise, count)
    assert normal * 0.9995 - 1 < margin_95_of_sum(noise, count) < normal * 1.02 + 1


def test_margins_do_not_fall_with_more_draws() -> None:
    margins = [margin_95_of_sum(LAPLACE, count) for count in range(1, 300)]
    assert margins == sorted(margins)


def test_noise_that_is_nearly_nothing_has_no_margin() -> None:
    assert margin_95_of_sum(Noise("laplace", Fraction(1, 1000)), 30) == 0


def test_every_cell_has_the_error_of_its_own_blocks() -> None:
    running = TreeMechanism(LAPLACE, Tree(7, 2), Axis(2, 7, 3))
    blocks = np.broadcast_to(np.array([1, 1, 2, 1, 2, 2, 3])[None, :, None], (2, 7, 3)).ravel()
    assert running.stds() == [std_of_sum(LAPLACE, n) for n in blocks.tolist()]
    assert running.margins() == [margin_95_of_sum(LAPLACE, n) for n in blocks.tolist()]
    assert running.std() == max(running.stds())
    assert running.margin() == max(running.margins())


def test_noise_whose_sums_could_pass_64_bits_is_not_drawable() -> None:
    noise = Noise("laplace", Fraction(2**49))
    assert noise.is_drawable()
    assert TreeMechanism(noise, Tree(3, 2), Axis(1, 3, 1)).is_drawable()
    assert not TreeMechanism(noise, Tree(31, 2), Axis(1, 31, 1)).is_drawable()
