"""The sum of many draws is within what is said as often as is said, and hardly more often."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.dp.confidence.sum_of_draws import margin_of_sum, std_of_sum
from sfumato.dp.mechanisms.averaged_noise import average_noise
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Bug

NOISES = [
    Noise("laplace", Fraction(1, 5)),
    Noise("laplace", Fraction(7, 2)),
    Noise("laplace", Fraction(40)),
    Noise("gaussian", Fraction(1, 5)),
    Noise("gaussian", Fraction(9)),
    Noise("gaussian", Fraction(900)),
]
CONFIDENCES = [Fraction(95, 100), Fraction(9975, 10_000)]


def law(noise: Noise) -> np.ndarray:
    """Return the chances of one draw on a lattice that all of it is on, by its own definition."""
    far = math.ceil(60 * noise.width()) + 20
    places = np.arange(-far, far + 1)
    if noise.kind == "laplace":
        weights = np.exp(-np.abs(places) / float(noise.parameter))
    else:
        weights = np.exp(-(places**2) / (2 * float(noise.parameter)))
    return np.asarray(weights / weights.sum())


def exact_inside(noise: Noise, count: int, reach: float) -> float:
    """Return P(|sum| <= reach) by convolving the law again and again."""
    one = law(noise)
    length = 1 << (count * len(one)).bit_length()
    whole = np.fft.irfft(np.fft.rfft(one, length) ** count, length)
    middle = count * (len(one) // 2)
    far = min(math.floor(reach), middle)
    return float(whole[middle - far : middle + far + 1].sum())


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("count", [1, 2, 8, 9, 30, 200])
@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_the_sum_is_within_as_often_as_is_said(
    noise: Noise, count: int, confidence: Fraction
) -> None:
    reach = margin_of_sum(noise, count, confidence)
    assert exact_inside(noise, count, reach) >= float(confidence) - 1e-9
    less = reach - 1 - 0.03 * std_of_sum(noise, count)
    assert exact_inside(noise, count, less) < float(confidence)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_very_many_draws_are_as_one_normal_number(kind: str) -> None:
    noise = Noise("laplace" if kind == "laplace" else "gaussian", Fraction(10**6))
    reach = margin_of_sum(noise, 50_000, Fraction(95, 100))
    assert reach == pytest.approx(1.95996 * std_of_sum(noise, 50_000), rel=0.01)


def test_a_sum_of_means_is_at_least_as_wide_as_one_normal_number() -> None:
    mean = average_noise([Noise("laplace", Fraction(20)), Noise("laplace", Fraction(10))])
    reach = margin_of_sum(mean, 100, Fraction(95, 100))
    assert 1.95 * std_of_sum(mean, 100) < reach < 4 * std_of_sum(mean, 100)


def test_a_confidence_beyond_the_grid_is_a_bug() -> None:
    with pytest.raises(Bug, match="does not reach that far"):
        margin_of_sum(Noise("laplace", Fraction(1)), 1000, 1 - Fraction(1, 10**20))
