"""Second-order Taylor intervals: slopes, bends, a true quantile, coverage, no wasted width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.dp.confidence.ratio_of_sums import MAX_NOISES, edge, is_within
from sfumato.dp.mechanisms.noise import Noise
from sfumato.query.aggregates.aggregate import Floats
from sfumato.query.aggregates.result_ranges import Range
from sfumato.query.aggregates.taylor_intervals import (
    MAX_CURVATURE,
    Law,
    Taylor,
    parts_at,
    taylor_interval,
)

Of = Callable[[Sequence[Taylor]], Range]


def sum_quantile(
    scales: Sequence[Floats], kind: Literal["laplace", "gaussian"], miss: Fraction
) -> Floats:
    """Return how far the sum of noises of these scales goes, without what is given away."""
    noises, given = (Noise(kind, Fraction(1)),) * len(scales), np.sum(scales, axis=0)
    zero = np.zeros(scales[0].shape)
    return edge(lambda far: is_within(far + given, scales, noises, miss), zero, zero + 1)


def taylor(made: Range) -> Taylor:
    assert isinstance(made, Taylor)
    return made


FUNCTIONS: dict[str, tuple[Of, Callable[[Floats], float]]] = {
    "product": (lambda p: p[0].times(p[1]).shifted(3), lambda x: x[0] * x[1] + 3),
    "quotient": (lambda p: p[0].over(p[1]).scaled(2), lambda x: 2 * x[0] / x[1]),
    "of a quotient": (
        lambda p: p[0].over(p[1]).shifted(2).times(p[1]).minus(p[0].over(p[1])),
        lambda x: (x[0] / x[1] + 2) * x[1] - x[0] / x[1],
    ),
    "of two": (
        lambda p: p[0].over(p[1]).times(p[1].over(p[0].shifted(1))),
        lambda x: x[0] / (x[0] + 1),
    ),
    "less a quotient": (lambda p: p[0].minus(p[1].over(p[0])), lambda x: x[0] - x[1] / x[0]),
    "root": (lambda p: taylor(p[0].times(p[1])).root(), lambda x: math.sqrt(x[0] * x[1])),
    "square": (lambda p: p[0].minus(p[1]).squared(), lambda x: (x[0] - x[1]) ** 2),
    "logarithm": (lambda p: taylor(p[0].over(p[1])).logarithm(), lambda x: math.log(x[0] / x[1])),
    "exponential": (
        lambda p: taylor(p[0].scaled(0.1).minus(p[1])).exponential(),
        lambda x: math.exp(0.1 * x[0] - x[1]),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(x=st.tuples(st.floats(2, 9), st.floats(1, 3)))
def test_value_slopes_and_bends_are_those_of_the_function(
    name: str, x: tuple[float, float]
) -> None:
    of, plain = FUNCTIONS[name]
    made = taylor(of(parts_at([np.array([v]) for v in x], [0.1, 0.1])))
    here, step = np.array(x), 1e-3
    moves = np.eye(2) * step
    assert made.low == pytest.approx(plain(here), rel=1e-9)
    for i in range(2):
        slope = (plain(here + moves[i]) - plain(here - moves[i])) / (2 * step)
        assert made.slopes[i] == pytest.approx(slope, rel=1e-3, abs=1e-3)
        for j in range(2):
            corners = [plain(here + a * moves[i] + b * moves[j]) * a * b
                       for a in (1, -1) for b in (1, -1)]  # fmt: skip
            bend = math.fsum(corners) / (4 * step**2)
            assert made.second_derivatives[i, j] == pytest.approx(bend, rel=1e-2, abs=1e-2)


def test_what_may_divide_by_zero_or_be_a_root_of_less_is_not_known() -> None:
    noises = (Noise("laplace", Fraction(5)), Noise("laplace", Fraction(5)))
    values = [np.array([50.0]), np.array([3.0])]
    nothing = [np.zeros(1), np.zeros(1)]
    ends: list[tuple[Of, float]] = [
        (lambda p: p[0].over(p[1]), -math.inf),
        (lambda p: p[0].times(taylor(p[1].root())), -math.inf),
        (lambda p: p[0].plus(taylor(p[1].logarithm())), -math.inf),
        (lambda p: taylor(p[0].over(p[1])).root(), 0.0),
        (lambda p: taylor(p[0].over(p[1])).logarithm(), -math.inf),
    ]
    for of, least in ends:
        low, high = taylor_interval(of, values, noises, nothing, Fraction(1, 20))
        assert (low[0], high[0]) == (least, math.inf)


def test_a_root_of_what_may_be_zero_goes_from_zero_to_that_of_the_upper_end() -> None:
    noise = (Noise("laplace", Fraction(5)),)
    low, high = taylor_interval(
        lambda p: p[0].root(), [np.array([3.0])], noise, [np.zeros(1)], Fraction(1, 20)
    )
    assert low[0] == 0
    assert high[0] == pytest.approx(math.sqrt(3 + 1 + 5 * math.log(20)), rel=1e-6)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_where_the_second_order_is_much_of_the_first_nothing_is_said(
    kind: Literal["laplace", "gaussian"],
) -> None:
    noises = (Noise(kind, Fraction(25)),) * 2
    nothing = [np.zeros(2)] * 2
    values = [np.array([10.0, 1e6]), np.array([-20.0, 2e6])]
    low, high = taylor_interval(
        lambda p: p[0].times(p[1]), values, noises, nothing, Fraction(1, 20)
    )
    assert np.isinf(low[0]) == (kind == "laplace")  # whose noise is five times as wide
    assert math.isfinite(low[1])
    assert math.isfinite(high[1])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@given(
    slopes=st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    bends=st.lists(st.floats(-1, 1), min_size=9, max_size=9),
    share=st.floats(0, MAX_CURVATURE),
)
@settings(max_examples=40)
def test_the_second_order_is_given_away_whatever_the_bends(
    kind: Literal["laplace", "gaussian"], slopes: list[float], bends: list[float], share: float
) -> None:
    """Slopes and bends at the truth, at any share of each other that an interval is given for."""
    slope, bend = np.array(slopes), np.array(bends).reshape(3, 3)
    assume(np.sum(np.abs(slope)) > 0.1)
    law = Law((Noise(kind, Fraction(1)),) * 3, np.zeros((3, 1)), Fraction(1, 25))
    zero = np.zeros(1)
    one = Taylor(zero, zero, slope[:, None], (bend + bend.T)[..., None], np.zeros((3, 1)))
    size = float(law.second_order(one)[0])
    assume(size > 1e-6)
    bend = bend * share * float(law.first_order(one)[0]) / size
    dice = np.random.default_rng(11)
    z = (dice.laplace if kind == "laplace" else dice.normal)(0, 1, (3, 20_000))
    off = slope @ z + np.einsum("ic,ij,jc->c", z, bend, z)  # half of twice the bends
    moved = slope[:, None] + (bend + bend.T) @ z  # what is released has slopes of its own
    there = Taylor(off, off, moved, np.broadcast_to((bend + bend.T)[..., None], (3, 3, 20_000)),
                   np.zeros((3, 1)))  # fmt: skip
    half = sum_quantile(list(np.abs(moved)), kind, law.miss) + law.second_order(there)
    is_said = law.second_order(there) <= MAX_CURVATURE * law.first_order(there)
    assert np.mean((np.abs(off) > half) & is_said) <= 0.05


@pytest.mark.parametrize("count", range(1, MAX_NOISES + 1))
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("spread", [1.0, 1.3, 10.0])
def test_the_quantile_of_a_sum_is_what_is_drawn(
    count: int, kind: Literal["laplace", "gaussian"], spread: float
) -> None:
    scales = [spread**place for place in range(count)]
    dice = np.random.default_rng(3)
    draw = dice.laplace if kind == "laplace" else dice.normal
    sums = np.abs(sum(draw(0, scale, 400_000) for scale in scales))
    found = sum_quantile([np.array([scale]) for scale in scales], kind, Fraction(1, 25))[0]
    least = 0.030 if spread == 1.0 and count > 5 else 0.038  # ties are moved apart, upwards
    assert least <= np.mean(sums > found) <= 0.0415


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_it_holds_as_often_as_it_says_and_is_hardly_wider_than_the_noise(
    kind: Literal["laplace", "gaussian"],
) -> None:
    noise = Noise(kind, Fraction(20) if kind == "laplace" else Fraction(400))
    dice, exact, draws = np.random.default_rng(5), (400_000.0, 9_000.0, -70_000.0), 4_000
    far = dice.laplace(0, 20, (3, draws)) if kind == "laplace" else dice.normal(0, 20, (3, draws))
    values = [e + np.rint(z) for e, z in zip(exact, far, strict=True)]

    def of(parts: Sequence[Taylor]) -> Range:
        return parts[0].plus(parts[2]).over(parts[1])

    nothing = [np.zeros(draws)] * 3
    low, high = taylor_interval(of, values, (noise,) * 3, nothing, Fraction(1, 20))
    truth = (exact[0] + exact[2]) / exact[1]
    assert 0.948 <= np.mean((low <= truth) & (truth <= high)) <= 0.975
    made = (values[0] + values[2]) / values[1]
    middle = np.quantile(made, 0.975) - np.quantile(made, 0.025)
    assert np.median(high - low) < 1.25 * middle


def test_rounding_is_added_whole() -> None:
    noise = (Noise("gaussian", Fraction(400)),)
    values = [np.array([1000.0])]
    for off in (0.0, 50.0):
        low, high = taylor_interval(
            lambda p: p[0].scaled(2), values, noise, [np.array([off])], Fraction(1, 25)
        )
        assert high[0] - low[0] == pytest.approx(4 * (20 * 2.0537 + 1 + off), rel=1e-3)
