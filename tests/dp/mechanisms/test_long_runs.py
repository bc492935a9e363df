"""Millions of draws against the exact law, and against OpenDP as an oracle."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from sfumato.dp.mechanisms import gaussian, laplace
from support.noise_probabilities import ALARM, Integers, gaussian_bins, laplace_bins, p_value
from support.seeded_dice import SeededDice

pytestmark = pytest.mark.slow

DRAWS = 5_000_000
ORACLE_DRAWS = 100_000
SCALES = [Fraction(n) for n in (10, 100, 1000, 10**4, 10**8, 10**12)]
FACTORS = [Fraction(99, 100), Fraction(101, 100)]


@pytest.mark.parametrize("scale", SCALES)
def test_five_million_laplace_draws_follow_the_law(scale: Fraction) -> None:
    draws = laplace.sample(scale, DRAWS, SeededDice(1))
    assert p_value(draws, *laplace_bins(scale, 1000)) > ALARM


@pytest.mark.parametrize("sigma", SCALES)
def test_five_million_gaussian_draws_follow_the_law(sigma: Fraction) -> None:
    draws = gaussian.sample(sigma**2, DRAWS, SeededDice(2))
    assert p_value(draws, *gaussian_bins(sigma**2, 1000)) > ALARM


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("scale", SCALES)
def test_five_million_draws_tell_one_percent_of_scale(scale: Fraction, factor: Fraction) -> None:
    narrow = laplace.sample(scale * factor, DRAWS, SeededDice(3))
    assert p_value(narrow, *laplace_bins(scale, 1000)) < ALARM
    normal = gaussian.sample((scale * factor) ** 2, DRAWS, SeededDice(4))
    assert p_value(normal, *gaussian_bins(scale**2, 1000)) < ALARM


@pytest.mark.parametrize("scale", SCALES)
def test_the_far_tail_of_laplace_is_as_full_as_it_should_be(scale: Fraction) -> None:
    far = laplace.interval(scale, 1 - Fraction(1, 10**4))
    seen = int((np.abs(laplace.sample(scale, DRAWS, SeededDice(5))) > far).sum())
    assert stats.binomtest(seen, DRAWS, float(laplace.tail(scale, far))).pvalue > ALARM


def from_opendp(make: Callable[..., dp.Measurement], scale: float) -> Integers:
    """Draws of OpenDP's noise, added to zeros."""
    space = dp.vector_domain(dp.atom_domain(T="i64")), metrics()[make]
    return np.array(make(*space, scale=scale)([0] * ORACLE_DRAWS), dtype=np.int64)


def metrics() -> dict[Callable[..., dp.Measurement], dp.Metric]:
    """The metric that each of OpenDP's constructors wants."""
    dp.enable_features("contrib")
    return {dp.m.make_laplace: dp.l1_distance(T="i64"), dp.m.make_gaussian: dp.l2_distance(T="i64")}


def two_sample_p_value(ours: Integers, theirs: Integers, bins: int) -> float:
    """Whether two samples come from one law, by their counts in shared bins."""
    edges = np.unique(np.quantile(ours, np.arange(1, bins) / bins))
    counts = [np.bincount(np.searchsorted(edges, one), minlength=bins) for one in (ours, theirs)]
    table = np.array(counts)
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


@pytest.mark.parametrize("scale", [10, 1000, 10**8])
def test_our_laplace_and_that_of_opendp_are_one_law(scale: int) -> None:
    ours = laplace.sample(Fraction(scale), ORACLE_DRAWS * 10, SeededDice(6))
    theirs = from_opendp(dp.m.make_laplace, float(scale))
    assert two_sample_p_value(ours, theirs, 50) > ALARM
    assert two_sample_p_value(ours, (theirs * 0.95).astype(np.int64), 50) < ALARM


@pytest.mark.parametrize("sigma", [10, 1000, 10**8])
def test_our_gaussian_and_that_of_opendp_are_one_law(sigma: int) -> None:
    ours = gaussian.sample(Fraction(sigma) ** 2, ORACLE_DRAWS * 10, SeededDice(7))
    theirs = from_opendp(dp.m.make_gaussian, float(sigma))
    assert two_sample_p_value(ours, theirs, 50) > ALARM
    assert two_sample_p_value(ours, (theirs * 0.95).astype(np.int64), 50) < ALARM
