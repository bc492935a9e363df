"""Keys are kept as often as differential privacy allows, and no more often."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.dp.mechanisms.partition_selection import (
    ONE,
    keep_partitions,
    keep_probabilities,
    per_key,
)
from sfumato.dp.refusal import Bug, Refused
from support.noise_probabilities import decimal_exp
from support.seeded_dice import CountingDice, ScriptedDice, SeededDice

EPSILONS = st.fractions(min_value=Fraction(1, 50), max_value=20, max_denominator=1000)
DELTAS = st.integers(1, 15).map(lambda power: Fraction(1, 10**power))
PRICES = [
    (Fraction(1), Fraction(1, 10**5)),
    (Fraction(1, 10), Fraction(1, 10**6)),
    (Fraction(10), Fraction(1, 10)),
    (Fraction(1, 100), Fraction(1, 10**15)),
    (Fraction(1000), Fraction(1, 10**15)),
]


def check_both_inequalities(epsilon: Fraction, delta: Fraction) -> None:
    """Every pair of neighbours, both events, both directions, on the very integers used."""
    grow = Fraction(1 / decimal_exp(epsilon)) * (1 + Fraction(1, 10**25))  # exp up to 28 digits
    strict = Fraction(1 / decimal_exp(epsilon)) * (1 - Fraction(1, 10**25))
    assert strict > 1
    slack = Fraction(delta) * ONE
    for kept, more in pairwise(keep_probabilities(epsilon, delta)):
        assert more <= strict * kept + slack
        assert kept <= more + slack
        assert ONE - kept <= grow * (ONE - more) + slack
        assert ONE - more <= (ONE - kept) + slack


@settings(deadline=None)
@given(EPSILONS, DELTAS)
def test_the_rounded_probabilities_keep_both_inequalities(
    epsilon: Fraction, delta: Fraction
) -> None:
    check_both_inequalities(epsilon, delta)


@pytest.mark.parametrize(("epsilon", "delta"), PRICES)
def test_the_rounded_probabilities_keep_both_inequalities_at_chosen_prices(
    epsilon: Fraction, delta: Fraction
) -> None:
    check_both_inequalities(epsilon, delta)


@pytest.mark.parametrize(("epsilon", "delta"), PRICES[:3])
def test_no_larger_probabilities_are_possible(epsilon: Fraction, delta: Fraction) -> None:
    grow, best = math.exp(epsilon), 0.0
    for kept in keep_probabilities(epsilon, delta):
        assert kept / ONE == pytest.approx(best, rel=1e-9)
        best = min(grow * best + float(delta), 1 - (1 - best - float(delta)) / grow, 1.0)


def test_one_person_alone_is_shown_with_probability_delta() -> None:
    assert keep_probabilities(Fraction(1), Fraction(1, 1024))[:2] == (0, ONE // 1024)


def test_half_of_the_keys_with_twelve_people_are_kept_at_epsilon_one() -> None:
    kept = keep_probabilities(Fraction(1), Fraction(1, 10**5))
    assert kept[11] < ONE // 2 <= kept[12]


def test_probabilities_never_fall_and_end_in_certainty() -> None:
    kept = keep_probabilities(Fraction(1, 10), Fraction(1, 10**6))
    assert all(fewer < more for fewer, more in pairwise(kept))
    assert kept[-1] == ONE


def test_keys_are_kept_as_often_as_the_probabilities_say() -> None:
    epsilon, delta = Fraction(1), Fraction(1, 100)
    kept = keep_probabilities(epsilon, delta)
    for count in range(len(kept) + 2):
        draws = keep_partitions(np.full(20_000, count), epsilon, delta, SeededDice(count))
        chance = kept[min(count, len(kept) - 1)] / ONE
        assert stats.binomtest(int(draws.sum()), 20_000, chance).pvalue > 1e-4


@pytest.mark.parametrize("offset", [-1, 0])
def test_the_comparison_with_the_probability_is_exact(offset: int) -> None:
    epsilon, delta = Fraction(1), Fraction(1, 10**5)
    for count, kept in enumerate(keep_probabilities(epsilon, delta)[1:-1], start=1):
        dice = ScriptedDice((kept + offset).to_bytes(8, "little"))
        assert keep_partitions(np.array([count]), epsilon, delta, dice)[0] == (offset < 0)


def test_a_key_without_people_is_never_kept() -> None:
    lucky = ScriptedDice(b"")  # zeros: the smallest uniform there is
    assert not keep_partitions(np.array([0, -3]), Fraction(1), Fraction(1, 10), lucky).any()


def test_a_key_with_enough_people_is_always_kept() -> None:
    unlucky = ScriptedDice(b"", then=255)
    assert keep_partitions(np.array([10**6, 2**62]), Fraction(1), Fraction(1, 10), unlucky).all()


@pytest.mark.parametrize("count", [0, 1, 12, 10**6])
def test_the_bits_drawn_do_not_depend_on_the_counts(count: int) -> None:
    dice = CountingDice(1)
    keep_partitions(np.full(100, count), Fraction(1), Fraction(1, 10**5), dice)
    assert dice.given == 800


def test_the_price_is_split_over_the_groups_of_a_person() -> None:
    assert per_key(Fraction(1), Fraction(1, 10**6), 4) == (Fraction(1, 4), Fraction(1, 4 * 10**6))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(Fraction(1, 10**6), Fraction(1, 10**15)), (Fraction(1), Fraction(0))],
)
def test_a_price_at_which_no_key_would_be_shown_is_refused(
    epsilon: Fraction, delta: Fraction
) -> None:
    with pytest.raises(Refused, match="noise-out-of-range"):
        keep_probabilities(epsilon, delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (1, 1), (1, -1)])
def test_a_price_that_is_none_is_our_own_fault(epsilon: float, delta: float) -> None:
    with pytest.raises(Bug):
        keep_probabilities(Fraction(epsilon), Fraction(delta))
