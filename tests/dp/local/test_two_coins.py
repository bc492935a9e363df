"""Two coins: exact chances, an exact price, and the algebra there and back."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.dp.local import FAIR, TwoCoins, epsilon_of, worst_ratio
from sfumato.dp.local.random_words import PARTS
from sfumato.dp.refusal import Bug, Refused
from support.noise_probabilities import ALARM
from support.seeded_dice import ColumnDice, CountingDice, SeededDice

COINS = st.builds(TwoCoins, st.integers(1, PARTS - 1), st.integers(1, PARTS - 1))
SHARES = st.fractions(min_value=0, max_value=1, max_denominator=1000)
PEOPLE = 200_000


def words(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<u4").tobytes()


def share_said(coins: TwoCoins, truth: bool, seed: int) -> int:
    return int(coins.randomise(np.full(PEOPLE, truth), SeededDice(seed)).sum())


def test_seventy_percent_truth_is_seen_as_sixty_and_comes_back_as_seventy() -> None:
    assert FAIR.observed(Fraction(7, 10)) == Fraction(6, 10)
    assert FAIR.behind(Fraction(6, 10)) == Fraction(7, 10)


def test_two_fair_coins_tell_three_yes_of_four_and_cost_the_logarithm_of_three() -> None:
    assert FAIR.chance(True) == Fraction(3, 4)
    assert FAIR.chance(False) == Fraction(1, 4)
    assert worst_ratio(FAIR.law) == 3
    assert 0 <= float(FAIR.epsilon) - math.log(3) < 2e-9


@given(COINS, SHARES)
def test_the_algebra_back_undoes_the_coins_exactly(coins: TwoCoins, share: Fraction) -> None:
    assert coins.behind(coins.observed(share)) == share


@given(COINS)
def test_the_price_is_never_below_the_largest_log_ratio(coins: TwoCoins) -> None:
    p, q = coins.chance(True), coins.chance(False)
    ratio = max(p / q, (1 - q) / (1 - p))
    assert worst_ratio(coins.law) == ratio
    assert coins.epsilon >= 0
    low = coins.epsilon - Fraction(1, 10**9)
    exact = math.log(ratio.numerator) - math.log(ratio.denominator)
    assert float(low) - 1e-12 <= exact <= float(coins.epsilon) + 1e-12


@settings(deadline=None)
@given(st.fractions(min_value=Fraction(1, 100), max_value=15, max_denominator=10**6))
def test_coins_within_an_epsilon_cost_no_more_and_hardly_less(epsilon: Fraction) -> None:
    coins = TwoCoins.within(epsilon)
    assert coins.epsilon <= epsilon
    more = TwoCoins(min(coins.truth + 80, PARTS - 1), coins.yes)
    assert more.epsilon > epsilon or coins.truth >= PARTS - 81


def test_an_epsilon_of_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="above zero"):
        TwoCoins.within(Fraction(0))


@pytest.mark.parametrize("epsilon", [10**3, 23 * 10**5, 10**12])
def test_no_epsilon_is_too_large_for_coins(epsilon: int) -> None:
    """Two and a third million and more once overflowed an exponential."""
    coins = TwoCoins.within(Fraction(epsilon))
    assert coins.truth == PARTS - 1


@pytest.mark.parametrize("epsilon", ["1e-12", "1e-10"])
def test_an_epsilon_too_small_for_any_coin_is_refused(epsilon: str) -> None:
    with pytest.raises(Refused, match="so small that no randomiser"):
        TwoCoins.within(Fraction(epsilon))


@pytest.mark.parametrize("coins", [(0, 1), (PARTS, 1), (1, 0), (1, PARTS), (-1, 5)])
def test_a_coin_with_one_side_is_no_coin(coins: tuple[int, int]) -> None:
    with pytest.raises(Bug):
        TwoCoins(*coins)


def test_a_word_just_below_the_chance_is_heads_and_one_at_it_is_tails() -> None:
    coins = TwoCoins(5, 9)
    first, second = [4, 5, 5, 4], [9, 8, 9, 8]
    dice = ColumnDice(words(*first, *second))
    assert coins.randomise(np.array([True, False, True, False]), dice).tolist() == [
        True, True, False, False,
    ]  # fmt: skip


def test_the_same_bytes_are_drawn_whatever_the_truth() -> None:
    given_bytes = set()
    for truth in (np.zeros(1000, bool), np.ones(1000, bool)):
        dice = CountingDice(3)
        FAIR.randomise(truth, dice)
        given_bytes.add(dice.given)
    assert given_bytes == {8000}


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("coins", [FAIR, TwoCoins(PARTS // 3, PARTS // 5)])
def test_what_is_said_has_the_chances_of_the_law(coins: TwoCoins, truth: bool) -> None:
    yes = share_said(coins, truth, 1)
    assert stats.binomtest(yes, PEOPLE, float(coins.chance(truth))).pvalue > ALARM


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)])
def test_coins_that_are_off_by_a_tenth_would_be_seen(factor: Fraction) -> None:
    yes = share_said(TwoCoins(int(FAIR.truth * factor), FAIR.yes), True, 2)
    assert stats.binomtest(yes, PEOPLE, float(FAIR.chance(True))).pvalue < ALARM


def test_neighbours_coins_are_thrown_apart() -> None:
    said = FAIR.randomise(np.ones(PEOPLE, bool), SeededDice(4))
    both = int((said[:-1] & said[1:]).sum())
    assert stats.binomtest(both, PEOPLE - 1, 9 / 16).pvalue > ALARM


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.7, 1.0])
def test_the_interval_holds_as_often_as_it_says(share: float) -> None:
    rounds, people = 1500, 300
    generator = np.random.default_rng(5)
    truths = generator.random((rounds, people)) < share
    said = FAIR.randomise(truths, SeededDice(6)).sum(axis=1)
    found = [FAIR.estimate(int(yes), people) for yes in said]
    holds = sum(one.low <= share <= one.high for one in found)
    assert holds / rounds > 0.93
    mean = sum(float(one.share) for one in found) / rounds
    std = math.sqrt(FAIR.variance(Fraction(share), people))
    assert abs(mean - share) < 4.5 * std / math.sqrt(rounds)
    variance = sum(float(one.variance) for one in found) / rounds
    assert variance == pytest.approx(std**2, rel=0.05)
    assert np.var([float(one.share) for one in found]) == pytest.approx(std**2, rel=0.2)


def test_four_times_the_people_halve_the_error() -> None:
    one, four = (FAIR.variance(Fraction(7, 10), people) for people in (1000, 4000))
    assert one == 4 * four
    assert FAIR.estimate(600, 1000).std == pytest.approx(math.sqrt(one), rel=1e-3)


@pytest.mark.parametrize(("yes", "people"), [(1, 1), (-1, 5), (6, 5)])
def test_an_estimate_of_impossible_counts_is_a_bug(yes: int, people: int) -> None:
    with pytest.raises(Bug):
        FAIR.estimate(yes, people)


def test_something_said_under_one_truth_alone_has_no_limit() -> None:
    law = {0: {"a": Fraction(1)}, 1: {"a": Fraction(1, 2), "b": Fraction(1, 2)}}
    assert worst_ratio(law) is None


def test_chances_that_do_not_add_up_are_a_bug() -> None:
    with pytest.raises(Bug):
        worst_ratio({0: {"a": Fraction(1, 2)}})


def test_the_logarithm_is_rounded_up_and_never_of_less_than_one() -> None:
    assert epsilon_of(Fraction(1)) == 0
    assert epsilon_of(1 + Fraction(1, 10**30)) == Fraction(1, 10**9)
    with pytest.raises(Bug):
        epsilon_of(Fraction(1, 2))
