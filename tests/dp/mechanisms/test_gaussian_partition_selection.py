"""A threshold on Gaussian counts keeps its promise, exactly, and is hardly larger than needed."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.accounting.privacy_events import (
    ApproximateEvent,
    JointEvent,
    PrivacyCost,
    PureEvent,
    ThresholdEvent,
    privacy_cost,
)
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.mechanisms.gaussian_partition_selection import (
    GaussianThreshold,
    tail_above,
    threshold_for,
)
from sfumato.dp.mechanisms.partition_selection import (
    ONE,
    keep_probabilities,
    people_for_even_odds,
    per_key,
)
from support.seeded_dice import ScriptedDice, SeededDice

Floats = NDArray[np.float64]
PRICES = [
    (Fraction(1), Fraction(1, 10**6)),
    (Fraction(1, 10), Fraction(1, 10**5)),
    (Fraction(3), Fraction(1, 100)),
    (Fraction(20), Fraction(1, 10)),
]


def made(epsilon: Fraction, delta: Fraction, groups: int) -> GaussianThreshold:
    found = threshold_for(epsilon, delta, groups)
    assert found is not None
    return found


def weights(variance: Fraction) -> tuple[NDArray[np.int64], Floats]:
    """Return places and chances of the discrete Gaussian, summed as floats."""
    far = math.ceil(14 * math.sqrt(variance)) + 2
    places = np.arange(-far, far + 1)
    found = np.exp(-(places.astype(np.float64) ** 2) / (2 * float(variance)))
    return places, found / found.sum()


def shown(found: GaussianThreshold, people: int) -> float:
    """Return the chance that a key with so many people is shown."""
    if people == 0:
        return 0.0
    places, chances = weights(found.variance)
    return float(chances[places + people >= found.threshold].sum())


def divergence(one: list[float], other: list[float], epsilon: float) -> float:
    """Return the least delta for which independent choices of these odds are that close."""
    total = 0.0
    for kept in product((False, True), repeat=len(one)):
        p = math.prod(a if k else 1 - a for a, k in zip(one, kept, strict=True))
        q = math.prod(b if k else 1 - b for b, k in zip(other, kept, strict=True))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize("groups", [1, 2, 4, 6])
@pytest.mark.parametrize(("epsilon", "delta"), [*PRICES[2:], (Fraction(1), Fraction(1, 1000))])
def test_all_subsets_of_keys_keep_the_promise_in_both_directions(
    epsilon: Fraction, delta: Fraction, groups: int
) -> None:
    found = made(epsilon, delta, groups)
    reach = found.threshold + math.ceil(2 * math.sqrt(found.variance))
    old = {n: shown(found, n) for n in range(reach + 2)}
    counts = range(1, reach, max(1, reach // 25))
    worst = 0.0
    for new, n in product(range(groups + 1), counts):
        without = [0.0] * new + [old[n]] * (groups - new)
        beside = [old[1]] * new + [old[n + 1]] * (groups - new)
        for one, other in ((without, beside), (beside, without)):
            worst = max(worst, divergence(one, other, float(epsilon)))
    assert worst <= float(delta) * (1 + 1e-9)


@pytest.mark.parametrize("groups", [1, 3, 40, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), PRICES)
def test_the_noise_is_for_all_groups_of_a_person_together(
    epsilon: Fraction, delta: Fraction, groups: int
) -> None:
    found = made(epsilon, delta, groups)
    assert found.rho == rho_within(epsilon, delta - found.tail)
    assert found.variance == groups / (2 * found.rho)
    places, chances = weights(found.variance)
    real = float(chances[1 + places >= found.threshold].sum())
    assert groups * real <= float(found.tail)
    assert 0 < found.tail < delta


@pytest.mark.parametrize("groups", [1, 3, 40, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), PRICES)
def test_the_threshold_is_the_least_but_for_one_part_in_a_hundred(
    epsilon: Fraction, delta: Fraction, groups: int
) -> None:
    found = made(epsilon, delta, groups)
    places, chances = weights(found.variance)
    tails = np.cumsum(chances[::-1])[::-1]  # P(noise >= place)
    least = 1 + int(places[np.flatnonzero(groups * tails <= float(found.tail))[0]])
    assert least <= found.threshold <= least * 1.01 + 1
    assert groups * tail_above(found.variance, found.threshold - 1) <= found.tail
    if found.threshold > 2:
        assert groups * tail_above(found.variance, found.threshold - 2) > found.tail


@pytest.mark.parametrize("groups", [10, 100])
@pytest.mark.parametrize(("epsilon", "delta"), PRICES[:3])
def test_the_threshold_is_near_the_best_over_all_splits(
    epsilon: Fraction, delta: Fraction, groups: int
) -> None:
    best = math.inf
    for share in range(1, 100):
        rho = float(rho_within(epsilon, delta * share / 100))
        sigma = math.sqrt(groups / (2 * rho))
        tail = float(delta) * (1 - share / 100) / groups
        best = min(best, 1 + sigma * float(stats.norm.isf(tail)))
    assert made(epsilon, delta, groups).threshold <= 1.03 * best + 1


@settings(deadline=None, max_examples=60)
@given(
    st.fractions(min_value=Fraction(1, 20), max_value=4000, max_denominator=50),
    st.integers(1, 300),
)
def test_the_bound_of_the_tail_is_above_it_and_close_far_out(variance: Fraction, t: int) -> None:
    places, chances = weights(variance)
    real = float(chances[places >= t].sum())
    bound = float(tail_above(variance, t))
    assert bound >= real * (1 - 1e-9)
    if 4 * math.sqrt(variance) < t < 12 * math.sqrt(variance) and real > 1e-40:
        assert bound <= 1.13 * real


def test_keys_are_shown_as_often_as_the_law_says() -> None:
    found = made(Fraction(1), Fraction(1, 100), 3)
    for people in range(0, found.threshold + 12, 3):
        draws = found.keep(np.full(20_000, people, dtype=np.int64), SeededDice(people))
        chance = shown(found, people)
        assert stats.binomtest(int(draws.sum()), 20_000, chance).pvalue > 1e-5


def test_a_key_at_the_threshold_is_shown_with_even_odds_and_not_one_below() -> None:
    found = made(Fraction(1), Fraction(1, 10**6), 50)
    assert found.people_for_odds(Fraction(1, 2)) == found.threshold
    assert shown(found, found.threshold) >= 0.5 > shown(found, found.threshold - 1)
    nearly = found.people_for_odds(Fraction(99, 100))
    assert shown(found, nearly) >= 0.99 > shown(found, nearly - 2)


def test_a_key_with_nobody_is_never_shown() -> None:
    certain = GaussianThreshold(Fraction(10**6), 1, Fraction(1), Fraction(1, 2))
    kept = certain.keep(np.zeros(5000, dtype=np.int64), SeededDice(1))
    assert not kept.any()


def test_where_no_gaussian_fits_there_is_no_threshold() -> None:
    assert threshold_for(Fraction(1, 10**6), Fraction(1, 10**9), 3) is None
    assert threshold_for(Fraction(1, 10**4), Fraction(1, 10**6), 10**4) is None


@pytest.mark.parametrize("groups", [1, 4, 30])
@pytest.mark.parametrize(("epsilon", "delta"), PRICES)
def test_even_odds_of_optimal_selection_by_formula_are_those_of_its_table(
    epsilon: Fraction, delta: Fraction, groups: int
) -> None:
    price = per_key(epsilon, delta, groups)
    table = keep_probabilities(*price)
    real = next(n for n, p in enumerate(table) if p >= ONE / 2)
    assert abs(people_for_even_odds(*price) - real) <= 1


def test_choosing_costs_its_rho_and_its_tail_in_the_second_test() -> None:
    event = ThresholdEvent(Fraction(1, 50), Fraction(1, 10**7), Fraction(1), Fraction(1, 10**6))
    assert privacy_cost(event) == PrivacyCost(10**9, 10**12, 2 * 10**10, 10**11)


def test_two_events_under_one_price_add_and_are_rounded_up_once() -> None:
    third = Fraction(1, 3)
    both = JointEvent((ApproximateEvent(third, Fraction(1, 10**6)), PureEvent(2 * third)))
    assert privacy_cost(both) == PrivacyCost(
        10**9, 10**12, math.ceil((third**2 + (2 * third) ** 2) / 2 * 10**12), 10**12
    )
    assert both.epsilon == 1
    assert both.delta == Fraction(1, 10**6)


def test_the_comparison_with_the_threshold_is_at_it() -> None:
    sure = GaussianThreshold(
        Fraction(1, 10**6), 7, Fraction(1), Fraction(1, 2)
    )  # no noise to speak of
    counts = np.array([5, 6, 7, 8], dtype=np.int64)
    assert sure.keep(counts, ScriptedDice(b"")).tolist() == [False, False, True, True]
