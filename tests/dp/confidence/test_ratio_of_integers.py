"""Intervals of a ratio cover the truth as often as they say, and stay within the public range."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.confidence.ratio_of_integers import Spread, ratio_interval
from sfumato.dp.mechanisms.noise import Noise
from support.seeded_dice import SeededDice

DRAWS = 20_000


@pytest.mark.parametrize("people", [1, 5, 20, 60, 400, 10_000])
@pytest.mark.parametrize("theta", [-450.0, 0.0, 130.5])
@pytest.mark.parametrize(
    ("top", "bottom"),
    [
        (Noise("laplace", Fraction(2000)), Noise("laplace", Fraction(4))),
        (Noise("laplace", Fraction(8)), Noise("laplace", Fraction(8))),
        (Noise("gaussian", Fraction(900**2)), Noise("gaussian", Fraction(3**2))),
    ],
)
def test_the_interval_covers_the_true_ratio(
    people: int, theta: float, top: Noise, bottom: Noise
) -> None:
    tops = theta * people + top.sample(DRAWS, SeededDice(1)).astype(np.float64)
    bottoms = people + bottom.sample(DRAWS, SeededDice(2)).astype(float)
    spread = Spread(top.kind, top.width(), bottom.width())
    low, high = ratio_interval(tops, bottoms, spread, lower=-500, upper=500)
    covered = np.mean((low <= theta) & (theta <= high))
    assert covered > 0.944  # 95 % less four standard errors; small groups cover more
    assert np.all((low >= -500) & (high <= 500) & (low <= high))


def test_a_large_group_has_an_interval_no_wider_than_its_noise() -> None:
    top, bottom = Noise("laplace", Fraction(2000)), Noise("laplace", Fraction(4))
    tops = 100.0 * 10_000 + top.sample(DRAWS, SeededDice(1)).astype(np.float64)
    bottoms = 10_000 + bottom.sample(DRAWS, SeededDice(2)).astype(float)
    spread = Spread("laplace", top.width(), bottom.width())
    low, high = ratio_interval(tops, bottoms, spread, lower=-500, upper=500)
    assert np.mean((low <= 100) & (high >= 100)) < 0.958
    assert np.mean(high - low) < 2 * 3.3 * 2000 / 10_000


@given(top=st.floats(-1e6, 1e6), bottom=st.floats(1000, 1e5), sigma=st.floats(1, 1000))
def test_the_ends_of_gaussian_noise_are_where_the_law_of_the_difference_puts_them(
    top: float, bottom: float, sigma: float
) -> None:
    found = ratio_interval(
        np.array([top]), np.array([bottom]), Spread("gaussian", sigma, 4), lower=-1e9, upper=1e9
    )
    for theta in (float(end[0]) for end in found):
        distance = abs(top - theta * bottom) - 1 - abs(theta)  # a unit is given away for each
        assert distance == pytest.approx(1.959963985 * math.hypot(sigma, 4 * theta), rel=1e-6)


def test_a_count_that_may_be_nothing_leaves_the_whole_range() -> None:
    spread = Spread("laplace", 2000, 4)
    low, high = ratio_interval(
        np.array([10.0, 10.0]), np.array([-3.0, 0.0]), spread, lower=-1, upper=7
    )
    assert low.tolist() == [-1, -1]
    assert high.tolist() == [7, 7]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_few_cells_have_the_same_ends_as_among_many(kind: Literal["laplace", "gaussian"]) -> None:
    draws = np.random.default_rng(7)
    bottoms = draws.uniform(20, 5000, 400)
    tops = bottoms * draws.uniform(-60, 60, 400)
    spread = Spread(kind, 2000, 4)
    many = ratio_interval(tops, bottoms, spread, lower=-500, upper=500)
    for start in range(0, 400, 8):
        few = slice(start, start + 8)
        alone = ratio_interval(tops[few], bottoms[few], spread, lower=-500, upper=500)
        for one, all_of_them in zip(alone, many, strict=True):
            np.testing.assert_allclose(one, all_of_them[few], rtol=1e-12, atol=1e-9)
