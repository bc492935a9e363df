"""The mean of several draws: its deviation, its 95 %, and ratios of such means."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.confidence.ratio_of_integers import Spread, ratio_interval
from sfumato.dp.mechanisms.averaged_noise import AveragedNoise, average_noise, mean_of
from sfumato.dp.mechanisms.noise import CONFIDENCE, Noise
from sfumato.dp.refusal import Bug
from support.seeded_dice import SeededDice

DRAWS = 40_000


def laplace(*scales: str) -> list[Noise]:
    return [Noise("laplace", Fraction(scale)) for scale in scales]


def gaussian(*variances: str) -> list[Noise]:
    return [Noise("gaussian", Fraction(variance)) for variance in variances]


CASES = [
    laplace("8", "8"),
    laplace("2", "40"),
    laplace("40", "2"),
    laplace("1/2", "1/2"),
    laplace("1/3", "7"),
    laplace("100000", "300000"),
    laplace("8", "4", "2", "1"),
    gaussian("30", "30"),
    gaussian("1/4", "900"),
    gaussian("100000000", "400000000"),
]


def made(noise: AveragedNoise, seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    parts = [d.sample(DRAWS, SeededDice(100 * seed + i)) for i, d in enumerate(noise.draws)]
    return mean_of(noise.draws, parts)


def exactly_within(noise: AveragedNoise, t: float) -> float:
    """Return P(|w1 X1 + w2 X2| <= t) by summing over every pair, for narrow noise of two draws."""
    pairs = zip(noise.weights(), noise.draws, strict=True)
    (v, one), (w, other) = ((weight, masses(draw)) for weight, draw in pairs)
    far = len(one) // 2
    places = np.arange(-far, far + 1)
    sums = np.abs(v * places[:, None] + w * places[None, :])
    return float((one[:, None] * other[None, :])[sums <= t + 1e-9].sum())


def masses(draw: Noise) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    places = np.arange(-600, 601)
    if draw.kind == "laplace":
        weights = np.exp(-np.abs(places) / float(draw.parameter))
    else:
        weights = np.exp(-(places**2) / (2 * float(draw.parameter)))
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("draws", CASES)
def test_the_mean_is_as_wide_as_it_says(draws: list[Noise]) -> None:
    noise = average_noise(draws)
    assert isinstance(noise, AveragedNoise)
    seen = made(noise, 1)
    precision = sum(draw.std() ** -2 for draw in draws)
    assert noise.std() == pytest.approx(precision**-0.5, rel=1e-9)
    spread = np.std(seen**2) / math.sqrt(DRAWS)
    assert abs(np.mean(seen**2) - noise.std() ** 2) < 5 * spread
    assert abs(np.mean(seen)) < 5 * noise.std() / math.sqrt(DRAWS)


@pytest.mark.parametrize("draws", CASES)
def test_the_margin_holds_as_often_as_it_says(draws: list[Noise]) -> None:
    noise = average_noise(draws)
    assert isinstance(noise, AveragedNoise)
    inside = np.mean(np.abs(made(noise, 2)) <= noise.margin())
    assert inside > 0.95 - 5 * 0.0011
    tight = np.mean(np.abs(made(noise, 2)) <= 0.9 * noise.margin())
    assert tight < 0.955 or min(draw.std() for draw in draws) < 2  # a narrow law jumps


@pytest.mark.parametrize("confidence", [CONFIDENCE, Fraction(99, 100), 1 - Fraction(5, 600)])
@pytest.mark.parametrize(
    "draws",
    [laplace("8", "8"), laplace("2", "15"), laplace("1/2", "1/2"), gaussian("30", "4"),
     gaussian("1/4", "90")],
)  # fmt: skip
def test_the_margin_is_enough_by_exact_sums_and_hardly_more(
    draws: list[Noise], confidence: Fraction
) -> None:
    noise = average_noise(draws)
    assert isinstance(noise, AveragedNoise)
    reach = noise.within(confidence)
    assert exactly_within(noise, reach) >= float(confidence)
    shorter = reach - 0.004 * noise.std() - 1e-9
    assert exactly_within(noise, shorter) < float(confidence) + 2e-6 or not has_fine_steps(noise)


def has_fine_steps(noise: AveragedNoise) -> bool:
    return min(draw.std() for draw in noise.draws) > 5


def test_two_equal_laplaces_have_the_margin_of_the_closed_form() -> None:
    noise = average_noise(laplace("4000", "4000"))
    x = 4.1126  # (1 + x/2) e^-x = 5 %
    for _ in range(50):
        x = -math.log(0.05 / (1 + x / 2))
    assert noise.margin() == pytest.approx(x * 2000, rel=2e-3)


def test_one_draw_is_its_own_noise() -> None:
    (only,) = laplace("5")
    assert average_noise([only]) is only


def test_noise_of_two_kinds_has_no_mean() -> None:
    with pytest.raises(Bug):
        average_noise([*laplace("5"), *gaussian("5")])


def test_the_noise_of_a_mean_is_never_drawn() -> None:
    with pytest.raises(Bug):
        average_noise(laplace("5", "5")).sample(1, SeededDice(1))


def test_the_mean_is_exact_beside_sums_beyond_any_float() -> None:
    truth = 2**61 + 1
    parts = [np.array([truth + 4]), np.array([truth - 4])]
    assert mean_of(laplace("5", "5"), parts).tolist() == [float(truth)]


@pytest.mark.parametrize("theta", [-40.0, 0.3, 130.5])
@pytest.mark.parametrize("people", [20, 400])
@pytest.mark.parametrize(
    ("tops", "bottoms"),
    [
        (laplace("2000", "2000"), laplace("4", "4")),
        (laplace("2000", "500"), laplace("4", "1")),
        (laplace("8", "8", "8", "8"), laplace("8", "8", "8", "8")),
        (gaussian("810000", "90000"), gaussian("9", "1")),
    ],
)
def test_the_interval_of_a_ratio_of_means_covers_it(
    people: int, theta: float, tops: list[Noise], bottoms: list[Noise]
) -> None:
    top, bottom = average_noise(tops), average_noise(bottoms)
    assert isinstance(top, AveragedNoise)
    assert isinstance(bottom, AveragedNoise)
    spread = Spread(top.kind, top.width(), bottom.width())
    low, high = ratio_interval(
        theta * people + made(top, 3), people + made(bottom, 4), spread, lower=-500, upper=500
    )
    assert np.mean((low <= theta) & (theta <= high)) > 0.9455
