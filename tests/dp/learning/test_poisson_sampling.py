"""Coins that say who is in a round: as many as are asked for, each its own, none a second time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from sfumato.dp.learning import poisson_sampling as coins_
from sfumato.dp.learning.poisson_sampling import KEY_BYTES, PoissonSample, most_below
from sfumato.dp.refusal import Bug
from support.seeded_dice import SeededDice

PEOPLE = 200_000
ALARM = 1e-6
CHANCES = [Fraction(1, 1000), Fraction(1, 10), Fraction(1, 2), Fraction(99, 100)]


def is_likely(found: int, of: int, chance: float) -> bool:
    """Whether so many say yes as often as not more rarely than false alarms."""
    return bool(binom.ppf(ALARM / 2, of, chance) <= found <= binom.isf(ALARM / 2, of, chance))


@pytest.mark.parametrize("chance", CHANCES, ids=str)
def test_so_many_are_in_as_the_chance_says(chance: Fraction) -> None:
    is_in = PoissonSample.fresh(chance, SeededDice(1)).tossed(PEOPLE)
    assert is_likely(int(is_in.sum()), PEOPLE, float(chance))
    assert not is_likely(int(is_in.sum()), PEOPLE, 0.5 * float(chance))


@pytest.mark.parametrize("chance", CHANCES[1:], ids=str)
def test_neighbours_rounds_and_rows_of_a_table_are_drawn_independently(chance: Fraction) -> None:
    """Of two in a row, and of one person in two rounds: both are in as often as two coins say."""
    dice = SeededDice(2)
    first, second = (PoissonSample.fresh(chance, dice).tossed(PEOPLE) for _ in range(2))
    both = float(chance**2)
    assert is_likely(int((first & second).sum()), PEOPLE, both)
    for apart in (1, 2, 8):
        together = first[: PEOPLE // 2 // apart * apart].reshape(-1, apart)
        pairs = together[:-1:2] & together[1::2]
        assert is_likely(int(pairs.sum()), pairs.size, both)


def test_everybody_in_the_whole_of_many_rounds_is_drawn_as_often() -> None:
    """No place of the table, not the first nor the last, is in more or less often."""
    dice, rounds, people = SeededDice(3), 2000, 50
    often = sum(
        PoissonSample.fresh(CHANCES[1], dice).tossed(people).astype(int) for _ in range(rounds)
    )
    assert all(is_likely(int(one), rounds, 0.1) for one in np.asarray(often))


def test_whose_coin_it_is_hangs_on_nothing_but_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coins = PoissonSample.fresh(CHANCES[2], SeededDice(4))
    whole = coins.tossed(1000)
    assert (coins.tossed(77) == whole[:77]).all()
    monkeypatch.setattr(coins_, "_AT_ONCE", 10)
    assert (coins.tossed(1000) == whole).all()
    assert coins.tossed(0).size == 0


def test_the_chance_is_rounded_down_only() -> None:
    for chance in (*CHANCES, Fraction(1, 3), Fraction(999_999, 10**6), Fraction(1, 10**6)):
        told = Fraction(most_below(chance), 1 << 64)
        assert chance - Fraction(1, 1 << 64) < told <= chance


def test_a_key_is_drawn_from_the_dice_for_each_and_shown_to_nobody() -> None:
    dice = SeededDice(5)
    drawn = [SeededDice(5).draw(KEY_BYTES)]
    coins = PoissonSample.fresh(CHANCES[1], dice)
    assert coins.key == drawn[0]
    assert PoissonSample.fresh(CHANCES[1], dice).key != coins.key
    assert coins.key.hex() not in repr(coins)
    assert str(coins.key) not in repr(coins)


@pytest.mark.parametrize("below", [0, -1, 1 << 64])
def test_coins_that_always_say_the_same_are_none(below: int) -> None:
    with pytest.raises(Bug):
        PoissonSample(bytes(KEY_BYTES), below)
    with pytest.raises(Bug):
        PoissonSample(bytes(KEY_BYTES - 1), 1)
