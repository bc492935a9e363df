"""Skellam noise: its law, its shares, what it costs, and how far it reaches."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.dp.accounting.renyi import ORDERS, epsilon_at, failure_budget
from sfumato.dp.mechanisms import skellam
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.threshold_table import certified_floors
from support.noise_probabilities import ALARM, p_value
from support.seeded_dice import SeededDice

DRAWS = 100_000
VARIANCES = [Fraction(1, 3), Fraction(4), Fraction(250), Fraction(10**4), Fraction(10**6)]
Bins = tuple[np.ndarray, np.ndarray]


def bins_of(variance: Fraction) -> Bins:
    """Edges between about equally likely bins, and their chances by scipy."""
    law = stats.skellam(float(variance) / 2, float(variance) / 2)
    wide = math.sqrt(variance)
    edges = np.unique(np.round(stats.norm.ppf(np.arange(1, 40) / 40) * wide)).astype(np.int64)
    below = np.concatenate([[0.0], law.cdf(edges - 1), [1.0]])
    return edges, np.diff(below)


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_draws_follow_the_law(variance: Fraction) -> None:
    draws = skellam.sample(variance, DRAWS, SeededDice(1))
    assert p_value(draws, *bins_of(variance)) > ALARM


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)], ids=str)
@pytest.mark.parametrize("variance", VARIANCES[1:], ids=str)
def test_a_wrong_width_does_not_pass_for_the_right_one(
    variance: Fraction, factor: Fraction
) -> None:
    draws = skellam.sample(variance * factor**2, DRAWS, SeededDice(2))
    assert p_value(draws, *bins_of(variance)) < ALARM


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_repeated_noise_does_not_pass_for_fresh_noise(variance: Fraction) -> None:
    draws = np.repeat(skellam.sample(variance, DRAWS // 100, SeededDice(3)), 100)
    assert p_value(draws, *bins_of(variance)) < ALARM


def test_the_widest_noise_takes_no_more_memory_than_its_numbers() -> None:
    """A draw of the widest is a sum of thousands; a hundred thousand of them took gigabytes."""
    skellam.sample(skellam.MAX_VARIANCE, 1, SeededDice(5))  # makes the tables
    count = 1 << 12
    tracemalloc.start()
    skellam.sample(skellam.MAX_VARIANCE, count, SeededDice(6))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50 * 8 * count


@pytest.mark.parametrize(("floor", "colluders"), [(3, 0), (7, 2)])
def test_the_shares_of_the_honest_of_a_floor_are_noise_of_the_whole_variance(
    floor: int, colluders: int
) -> None:
    variance, dice = Fraction(400), SeededDice(4)
    share = skellam.share_of(variance, floor, colluders)
    shares = [skellam.sample(share, DRAWS, dice) for _ in range(floor - colluders)]
    assert p_value(np.sum(shares, axis=0), *bins_of(variance)) > ALARM
    assert p_value(np.sum(shares[1:], axis=0), *bins_of(variance)) < ALARM


def test_the_thresholds_are_those_of_the_poisson_law() -> None:
    """Against exact sums of mean**k / k! over the series of e**mean, to 100 bits."""
    for mean in (Fraction(1, 7), Fraction(5, 2), Fraction(40)):
        terms = [mean**k / math.factorial(k) for k in range(400)]
        whole = sum(terms)
        for k, (low, high) in enumerate(islice(skellam.poisson_distribution(mean)(128), 60)):
            true = sum(terms[: k + 1]) / whole
            assert Fraction(low - 1, 2**128) <= true <= Fraction(high + 1, 2**128)
            assert high - low < 2**28


def test_a_long_table_is_certain_in_every_floor() -> None:
    mean = Fraction(skellam.MAX_MEAN)
    floors = (
        np.array(certified_floors(skellam.poisson_distribution(mean)), dtype=np.float64) / 2.0**64
    )
    true = stats.poisson(float(mean)).cdf(np.arange(floors.size))
    assert np.abs(floors - true).max() < 1e-9
    assert (np.diff(floors) >= 0).all()


def test_noise_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(Refused, match="noise-out-of-range"):
        skellam.sample(skellam.MAX_VARIANCE + 1, 1, SeededDice(5))
    with pytest.raises(Refused, match="noise-out-of-range"):
        skellam.variance_for(10**6, 10**12, Fraction(1, 100), Fraction(1, 10**9))
    with pytest.raises(Bug):
        skellam.sample(Fraction(0), 1, SeededDice(5))


def divergence(order: int, shift: list[int], variance: float) -> float:
    """The Renyi divergence of shifted Skellam vectors, by scipy's masses: coordinates add."""
    reach = int(40 * math.sqrt(variance)) + 60
    places = np.arange(-reach, reach + 1)
    law = stats.skellam(variance / 2, variance / 2)
    logs = law.logpmf(places)
    whole = 0.0
    for step in shift:
        other = law.logpmf(places - step)
        kept = np.isfinite(logs) & np.isfinite(other) & (logs > -600) & (other > -600)
        powers = order * logs[kept] - (order - 1) * other[kept]
        whole += float(np.logaddexp.reduce(powers)) / (order - 1)
    return whole


@pytest.mark.parametrize("shift", [[1], [3], [1, 1, 1, 1], [2, -1, 0]], ids=str)
@pytest.mark.parametrize("variance", [5, 40, 1000])
@pytest.mark.parametrize("order", [2, 3, 8])
def test_the_bound_holds_and_is_not_loose(order: int, variance: int, shift: list[int]) -> None:
    l1, l2_squared = sum(map(abs, shift)), sum(step**2 for step in shift)
    bound = float(skellam.renyi(order, l1, l2_squared, Fraction(variance)))
    true = max(divergence(order, shift, variance), divergence(order, [-s for s in shift], variance))
    assert true <= bound * (1 + 1e-9)
    if variance == 1000:
        assert bound < 1.02 * true


def test_the_bound_is_the_papers_in_both_of_its_branches() -> None:
    assert skellam.renyi(2, 1, 1, Fraction(5)) == Fraction(2, 10) + Fraction(9, 100)
    assert skellam.renyi(2, 1, 1, Fraction(1, 10)) == 10 + 15


def test_the_bound_holds_for_whole_orders_only() -> None:
    with pytest.raises(Bug):
        skellam.renyi(1, 1, 1, Fraction(10))


@pytest.mark.parametrize("delta", [-1, 0, 1, 2], ids=str)
def test_a_delta_that_is_no_chance_is_a_bug(delta: int) -> None:
    with pytest.raises(Bug, match="inside"):
        epsilon_at(lambda order: Fraction(order), Fraction(delta))


@given(epsilon=st.fractions(Fraction(1, 100), 20), delta=st.fractions(Fraction(1, 10**9), 1))
def test_a_failure_takes_the_delta_that_is_left_for_it_and_wastes_little(
    epsilon: Fraction, delta: Fraction
) -> None:
    whole = delta / failure_budget(epsilon, delta)
    assert 1 + math.exp(epsilon) <= whole * (1 + Fraction(1, 10**12))
    assert whole <= 4 * Fraction(4) ** math.floor(epsilon)


@pytest.mark.parametrize("delta", [Fraction(1, 100), Fraction(1, 10**6)], ids=str)
@pytest.mark.parametrize("rho", [Fraction(1, 1000), Fraction(1, 10), Fraction(2)], ids=str)
def test_the_conversion_agrees_with_dp_accounting(rho: Fraction, delta: Fraction) -> None:
    ours = float(epsilon_at(lambda order: order * rho, delta))
    orders = [float(order) for order in ORDERS]
    theirs, _ = rdp_privacy_accountant.compute_epsilon(
        orders, [float(rho) * order for order in orders], float(delta)
    )
    assert theirs <= ours * (1 + 1e-6) + 1e-9
    assert ours <= theirs * (1 + 1e-6) + 1e-6 or theirs == 0


@pytest.mark.parametrize("rounds", [1, 20])
def test_the_variance_for_a_price_is_the_least(rounds: int) -> None:
    price, delta = Fraction(2), Fraction(1, 10**5)
    variance = skellam.variance_for(50, 120, price, delta, rounds)
    assert skellam.epsilon_of(50, 120, variance, delta, rounds) <= price
    assert skellam.epsilon_of(50, 120, variance - 1, delta, rounds) > price


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(30), Fraction(10**5)], ids=str)
@pytest.mark.parametrize("failure", [Fraction(1, 100), Fraction(1, 10**9)], ids=str)
def test_noise_reaches_its_bound_as_rarely_as_is_said(
    variance: Fraction, failure: Fraction
) -> None:
    far = skellam.noise_bound(variance, failure)
    law = stats.skellam(float(variance) / 2, float(variance) / 2)
    assert 2 * law.sf(far - 1) <= float(failure)
    assert 2 * law.sf(far // 2 - 1) > float(failure)
