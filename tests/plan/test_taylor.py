"""Second-order Taylor intervals: true slopes, a true quantile, coverage, and no wasted width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.noise.kind import Noise
from sfumato.core.quotient import MOST_SUMMED, sum_quantile
from sfumato.plan.verbs.ranges import Range
from sfumato.plan.verbs.taylor import Taylor, part_of_box, taylor_interval
from sfumato.plan.verbs.verb import Floats

Of = Callable[[Sequence[Taylor]], Range]


def taylor(made: Range) -> Taylor:
    assert isinstance(made, Taylor)
    return made


FUNCTIONS: dict[str, tuple[Of, Callable[[Floats], float]]] = {
    "product": (lambda p: p[0].times(p[1]).shifted(3), lambda x: x[0] * x[1] + 3),
    "quotient": (lambda p: p[0].over(p[1]).scaled(2), lambda x: 2 * x[0] / x[1]),
    "by less than zero": (lambda p: p[0].over(p[1].scaled(-1)), lambda x: -x[0] / x[1]),
    "root": (lambda p: taylor(p[0].times(p[1])).root(), lambda x: math.sqrt(x[0] * x[1])),
    "square": (lambda p: p[0].minus(p[1]).squared(), lambda x: (x[0] - x[1]) ** 2),
    "logarithm": (lambda p: taylor(p[0].over(p[1])).logarithm(), lambda x: math.log(x[0] / x[1])),
    "exponential": (
        lambda p: taylor(p[0].scaled(0.1).minus(p[1])).exponential(),
        lambda x: math.exp(0.1 * x[0] - x[1]),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    x=st.tuples(st.floats(2, 9), st.floats(1, 3)),
    side=st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)),
    at=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_ranges_over_a_box_hold_every_value_slope_and_bend(
    name: str, x: tuple[float, float], side: tuple[float, float], at: tuple[float, float]
) -> None:
    of, plain = FUNCTIONS[name]
    box = [Range(np.array([v - s]), np.array([v + s])) for v, s in zip(x, side, strict=True)]
    made = taylor(of([part_of_box(place, 2, one) for place, one in enumerate(box)]))
    here = np.array([v + s * t for v, s, t in zip(x, side, at, strict=True)])
    step = 1e-3
    moves = np.eye(2) * step
    assert _holds(made.value, plain(here), 1e-9)
    for i in range(2):
        slope = (plain(here + moves[i]) - plain(here - moves[i])) / (2 * step)
        assert _holds(_at(made.slopes, i), slope, 1e-3)
        for j in range(2):
            corners = [plain(here + a * moves[i] + b * moves[j]) * a * b
                       for a in (1, -1) for b in (1, -1)]  # fmt: skip
            assert _holds(_at(made.bends, i, j), math.fsum(corners) / (4 * step**2), 1e-2)


def _at(of: Range, *place: int) -> Range:
    return Range(of.low[place], of.high[place])


def _holds(of: Range, value: float, slack: float) -> bool:
    slack = slack * max(1.0, abs(value))
    return bool(of.low[0] - slack <= value <= of.high[0] + slack)


def test_what_may_divide_by_zero_or_be_a_root_of_less_is_not_known() -> None:
    noises = (Noise("laplace", Fraction(5)), Noise("laplace", Fraction(5)))
    values = [np.array([50.0]), np.array([3.0])]
    nothing = [np.zeros(1), np.zeros(1)]
    ends: list[Of] = [
        lambda p: p[0].over(p[1]), lambda p: p[1].root(), lambda p: p[1].logarithm(),
    ]  # fmt: skip
    for of in ends:
        low, high = taylor_interval(of, values, noises, nothing, Fraction(1, 20))
        assert (low[0], high[0]) == (-math.inf, math.inf)


@pytest.mark.parametrize("count", range(1, MOST_SUMMED + 1))
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
            lambda p: p[0].scaled(2), values, noise, [np.array([off])], Fraction(1, 20)
        )
        assert high[0] - low[0] == pytest.approx(4 * (20 * 2.0537 + 1 + off), rel=1e-3)
