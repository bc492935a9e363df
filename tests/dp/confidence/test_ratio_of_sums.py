"""Intervals of quotients of noisy sums hold as often as they say."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.confidence.ratio_of_sums import Quotient, _rays, laplace_tail, plausible
from sfumato.dp.confidence.simultaneous import bonferroni
from sfumato.dp.confidence.weighted_sum_of_draws import margin_of_weighted_sum
from sfumato.dp.mechanisms.noise import Noise

MISS = Fraction(5, 100)
DRAWS = 40_000
# weights above, weights below, and the exact numbers
SHAPES = {
    "sum over count": ((1.0, 0.0), (0.0, 1.0), (5000, 100)),
    "a share of a whole": ((1.0, 0.0), (1.0, 1.0), (300, 120)),
    "two over two": ((1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, -1.0), (400, 900, 700, 100)),
    "a negative divisor": ((1.0, 0.0, 0.0), (0.0, 1.0, -1.0), (500, 40, 300)),
}


def noises(kind: str, count: int) -> tuple[Noise, ...]:
    if kind == "laplace":
        return tuple(Noise("laplace", Fraction(4 + 3 * place)) for place in range(count))
    return tuple(Noise("gaussian", Fraction((5 + 4 * place) ** 2)) for place in range(count))


def drawn(
    dice: np.random.Generator, noise: Noise, count: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return draws of the discrete law; the exact samplers are tested elsewhere."""
    if noise.kind == "laplace":
        chance = 1 - math.exp(-1 / float(noise.parameter))
        first, second = dice.geometric(chance, count), dice.geometric(chance, count)
        return np.asarray(first - second)
    return np.asarray(np.rint(dice.normal(0, noise.width(), count)).astype(np.int64))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_of_a_quotient_holds_as_often_as_it_says(kind: str, shape: str) -> None:
    top, bottom, exact = SHAPES[shape]
    of = Quotient(top, bottom, noises(kind, len(exact)), MISS)
    dice = np.random.default_rng(7)
    noisy = [e + drawn(dice, n, DRAWS) for e, n in zip(exact, of.noises, strict=True)]
    above = sum(w * x for w, x in zip(top, noisy, strict=True))
    below = sum(w * x for w, x in zip(bottom, noisy, strict=True))
    truth = np.dot(top, exact) / np.dot(bottom, exact)
    low, high = plausible(np.asarray(above), np.asarray(below), of).within(-np.inf, np.inf)
    held = np.mean((low <= truth) & (truth <= high))
    assert 0.945 <= held <= 0.985  # a unit of each number is given away


def test_a_divisor_that_may_be_zero_leaves_everything_open() -> None:
    of = Quotient((1.0, 0.0), (0.0, 1.0), noises("laplace", 2), MISS)
    low, high = plausible(np.array([50.0]), np.array([3.0]), of).within(-np.inf, np.inf)
    assert (low[0], high[0]) == (-np.inf, np.inf)


@pytest.mark.parametrize("scales", [(1.0,), (1.0, 2.0), (3.0, 3.0), (1.0, 1.0, 5.0), (2.0,) * 4])
def test_the_tail_of_a_sum_of_laplace_noise_is_what_is_drawn(scales: tuple[float, ...]) -> None:
    dice = np.random.default_rng(11)
    sums = np.abs(sum(dice.laplace(0, scale, 400_000) for scale in scales))
    for distance in (1.0, 5.0, 12.0):
        told = laplace_tail(np.array([distance]), [np.array([s]) for s in scales])[0]
        assert told == pytest.approx(np.mean(sums > distance), abs=0.003)


def test_scales_that_tie_are_moved_apart_and_never_narrow_the_tail() -> None:
    distance = np.array([9.0])
    tied = laplace_tail(distance, [np.array([2.0])] * 3)[0]
    apart = laplace_tail(distance, [np.array([s]) for s in (1.9, 1.95, 2.0)])[0]
    assert tied > apart


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("weights", [(1.0, -1.0), (0.01, 1.2, -3.0), (1.0,) * 12])
def test_the_margin_of_a_sum_is_exact(kind: str, weights: tuple[float, ...]) -> None:
    of = tuple(Noise(n.kind, n.parameter * 100) for n in noises(kind, len(weights)))
    margin = margin_of_weighted_sum(weights, of, 1 - MISS)
    dice = np.random.default_rng(3)
    sums = sum(w * drawn(dice, n, 400_000) for w, n in zip(weights, of, strict=True))
    assert np.mean(np.abs(sums) <= margin) == pytest.approx(0.95, abs=0.004)


def test_a_surer_noise_misses_so_many_times_less_often() -> None:
    noise = Noise("laplace", Fraction(20))
    surer = bonferroni(noise, 5)
    assert surer.margin() == noise.within(Fraction(99, 100)) > noise.margin()
    assert surer.miss() == Fraction(1, 100)
    assert (surer.std(), surer.width()) == (noise.std(), noise.width())
    assert bonferroni(noise, 1) is noise


@given(
    top=st.floats(-100, 100),
    far_top=st.floats(0.1, 50),
    far_bottom=st.floats(0.1, 50),
    share=st.floats(-0.99, 0.99),
)
def test_where_the_divisor_may_be_zero_the_rays_hold_all_that_is_plausible(
    top: float, far_top: float, far_bottom: float, share: float
) -> None:
    bottom = share * far_bottom

    def is_plausible(theta: float) -> bool:
        return abs(top - theta * bottom) <= far_top + abs(theta) * far_bottom

    rays = _rays(np.array([top]), np.array([bottom]), far_top, far_bottom)
    below, above = (float(ray[0]) for ray in rays)
    assert below <= 0 <= above
    for end in (below, above):
        if abs(end) > 1e-3:
            assert is_plausible(end * (1 + 1e-6))
            assert not is_plausible(end * (1 - 1e-6))
            assert not is_plausible(end / 2)
        assert is_plausible(end + math.copysign(1e9, end))
