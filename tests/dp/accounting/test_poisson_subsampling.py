"""What secret samples cost: the bound against divergences added up by brute force, both ways."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.accounting.poisson_subsampling import MAX_ORDER, subsampled_renyi, weights
from sfumato.dp.mechanisms import skellam
from sfumato.dp.refusal import Bug

Masses = NDArray[np.float64]
CHANCES = [Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]
ORDERS = [2, 3, 4, 8, 20, 64]
SLACK = 1e-9  # of sums of doubles


def divergence(order: int, logs: Masses, other: Masses) -> float:
    """The Renyi divergence of one law from another, by the logarithms of their masses."""
    return float(np.logaddexp.reduce(order * logs - (order - 1) * other)) / (order - 1)


def both_ways(order: int, logs: Masses, other: Masses) -> float:
    return max(divergence(order, logs, other), divergence(order, other, logs))


def mixed(chance: Fraction, without: Masses, beside: Masses) -> Masses:
    """The logarithms of the masses where a person is in with that chance."""
    q = float(chance)
    return np.logaddexp(math.log1p(-q) + without, math.log(q) + beside)


def curve_between(logs: Masses, other: Masses) -> Callable[[int], Fraction]:
    """The least that a mechanism with these two laws could claim, order by order."""
    return lambda order: Fraction(max(0.0, both_ways(order, logs, other)))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Masses, Masses]:
    """Two laws over a few outcomes: as far from each other as they like, and lopsided."""
    size = draw(st.integers(2, 6))
    parts = st.lists(st.floats(-12, 0), min_size=size, max_size=size)
    logs, other = (np.array(draw(parts)) for _ in range(2))
    return logs - np.logaddexp.reduce(logs), other - np.logaddexp.reduce(other)


@given(pairs(), st.sampled_from(CHANCES), st.sampled_from(ORDERS))
def test_no_two_laws_are_farther_apart_than_is_said(
    laws: tuple[Masses, Masses], chance: Fraction, order: int
) -> None:
    without, beside = laws
    said = float(subsampled_renyi(curve_between(without, beside), chance)(order))
    true = both_ways(order, mixed(chance, without, beside), without)
    assert true <= said * (1 + SLACK) + SLACK


@given(pairs(), st.sampled_from(CHANCES), st.sampled_from(ORDERS))
def test_nor_where_what_is_left_out_is_the_larger_part(
    laws: tuple[Masses, Masses], chance: Fraction, order: int
) -> None:
    """From 'the rest alone' and from 'with the person': what is claimed holds for both."""
    beside, without = laws
    said = float(subsampled_renyi(curve_between(without, beside), chance)(order))
    assert divergence(order, without, mixed(chance, without, beside)) <= said * (1 + SLACK) + SLACK


@pytest.mark.parametrize("chance", CHANCES, ids=str)
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("variance", [3, 20, 300])
def test_skellam_noise_is_no_farther_apart_than_is_said(
    variance: int, shift: int, chance: Fraction
) -> None:
    """By the bound that is charged; and by the divergences themselves, of which nothing is left."""
    law = stats.skellam(variance / 2, variance / 2)
    places = np.arange(-int(14 * math.sqrt(variance)) - 60, int(14 * math.sqrt(variance)) + 61)
    logs, other = law.logpmf(places), law.logpmf(places - shift)
    kept = np.isfinite(logs) & np.isfinite(other) & (logs > -600) & (other > -600)
    without, beside = logs[kept], other[kept]
    mixture = mixed(chance, without, beside)
    charged = skellam.renyi_curve(shift, shift**2, Fraction(variance), chance)
    closest = subsampled_renyi(curve_between(without, beside), chance)
    for order in ORDERS[:5]:
        true = both_ways(order, mixture, without)
        assert true <= float(charged(order)) * (1 + 1e-7) + SLACK
        assert true <= float(closest(order)) * (1 + 1e-7) + SLACK


def gaussian_logs(scale: float, shift: float) -> tuple[Masses, Masses]:
    """Two normal laws on a grid so fine that sums are integrals, to far out."""
    places = np.arange(-40 * scale - 40, 40 * scale + 40, scale / 200)
    step = math.log(scale / 200)
    return (
        stats.norm(0, scale).logpdf(places) + step,
        stats.norm(shift, scale).logpdf(places) + step,
    )


@pytest.mark.parametrize("chance", CHANCES, ids=str)
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_gaussian_noise_costs_exactly_what_is_known_of_it(scale: float, chance: Fraction) -> None:
    """Mironov, Talwar and Zhang 2019 at whole orders: there the bound gives nothing away."""
    without, beside = gaussian_logs(scale, 1.0)
    rho = Fraction(1) / (2 * Fraction(scale) ** 2)
    said = subsampled_renyi(lambda order: order * rho, chance)
    for order in (2, 3, 8, 20):
        mixture = mixed(chance, without, beside)
        true = both_ways(order, mixture, without)
        assert float(said(order)) == pytest.approx(true, rel=1e-6, abs=1e-12)
        assert divergence(order, without, mixture) <= float(said(order)) * (1 + 1e-6) + 1e-12


@given(
    st.fractions(Fraction(1, 200), Fraction(200)),
    st.fractions(Fraction(1, 1000), Fraction(999, 1000)),
    st.integers(2, 24),
)
def test_the_inequality_of_the_proof_holds_at_every_ratio(
    ratio: Fraction, chance: Fraction, order: int
) -> None:
    """In exact arithmetic: poisson_subsampling.proof.md, of one ratio r of two masses."""
    q, r, part = chance, ratio, 3 * (1 - chance) / ((2 * order - 1) * chance + 3 * (1 - chance))
    mixture, turned = 1 - q + q * r, 1 - q + q / r
    one_way = mixture**order - (2 * order - 1) * (mixture - 1)
    other_way = r * turned**order + (1 - q) * (1 - r)
    assert mixture ** (1 - order) <= part * one_way + (1 - part) * other_way


@pytest.mark.parametrize("order", [2, 3, 17, 100])
@pytest.mark.parametrize("chance", CHANCES, ids=str)
def test_it_is_rounded_up_and_by_nothing_that_counts(chance: Fraction, order: int) -> None:
    """Against the same sum of exact fractions and of twice as many digits."""
    with localcontext(Context(prec=120)):
        q = Decimal(chance.numerator) / Decimal(chance.denominator)
        rates = [Decimal(max(0, n - 1) * n) / 700 for n in range(order + 1)]
        true = sum(
            math.comb(order, n) * q**n * (1 - q) ** (order - n) * rate.exp()
            for n, rate in enumerate(rates)
        )
        exact = Fraction(Decimal(true).ln() / (order - 1))
    said = subsampled_renyi(lambda at: Fraction(at, 700), chance)(order)
    assert exact <= said <= exact + Fraction(1, 10**30)


@pytest.mark.parametrize("chance", CHANCES, ids=str)
def test_the_chances_of_so_many_coins_are_one_together(chance: Fraction) -> None:
    together = sum(map(Fraction, weights(chance, 100)))
    assert 1 <= together < 1 + Fraction(1, 10**40)


@given(st.fractions(Fraction(1, 10**6), Fraction(1)), st.integers(2, 700), st.integers(1, 10**6))
def test_a_sample_never_costs_more_than_everybody(
    chance: Fraction, order: int, variance: int
) -> None:
    whole = skellam.renyi_curve(100, 300, Fraction(variance))
    assert 0 <= subsampled_renyi(whole, chance)(order) <= whole(order)


def test_a_smaller_sample_costs_less_and_everybody_what_they_cost() -> None:
    whole = skellam.renyi_curve(10, 30, Fraction(2000))
    costs = [subsampled_renyi(whole, chance)(16) for chance in (*CHANCES, Fraction(1))]
    assert costs == sorted(costs)
    assert len(set(costs)) == len(costs)
    assert costs[-1] == whole(16)


def test_beyond_the_orders_that_are_counted_nothing_is_claimed() -> None:
    """Nor of divergences so large that they promise nothing."""
    whole = skellam.renyi_curve(10, 30, Fraction(2000))
    assert subsampled_renyi(whole, Fraction(1, 10))(MAX_ORDER) < whole(MAX_ORDER)
    assert subsampled_renyi(whole, Fraction(1, 10))(MAX_ORDER + 1) == whole(MAX_ORDER + 1)
    bare = skellam.renyi_curve(10**6, 10**12, Fraction(1))
    assert subsampled_renyi(bare, Fraction(1, 10))(2) == bare(2)


@pytest.mark.parametrize("chance", [Fraction(0), Fraction(-1, 2), Fraction(3, 2)], ids=str)
def test_what_is_no_chance_is_no_sample(chance: Fraction) -> None:
    with pytest.raises(Bug):
        subsampled_renyi(lambda order: Fraction(order), chance)


def test_noise_for_a_price_is_the_least_that_a_sample_needs() -> None:
    price, delta, chance = Fraction(2), Fraction(1, 10**5), Fraction(1, 10)
    variance = skellam.variance_for(50, 120, price, delta, 20, chance)
    assert skellam.epsilon_of(50, 120, variance, delta, 20, chance) <= price
    assert skellam.epsilon_of(50, 120, variance - 1, delta, 20, chance) > price
    assert 8 * variance < skellam.variance_for(50, 120, price, delta, 20)
