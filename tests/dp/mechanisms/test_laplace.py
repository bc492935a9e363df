"""The discrete Laplace mechanism: its draws, its intervals and their inverse."""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.mechanisms.laplace import interval, sample, scale_for, std, tail
from sfumato.dp.ports import RandomSource
from sfumato.system.randomness import BulkRandomSource, SystemRandomSource
from support.noise_probabilities import ALARM, decimal_exp, laplace_bins, p_value
from support.seeded_dice import CountingDice, ScriptedDice, SeededDice

DRAWS = 200_000
SCALES = [Fraction(n) for n in (1, 7, 8, 63, 64, 100, 1000, 10**4, 10**8, 10**12)]
CONFIDENCE = Fraction(95, 100)
SOME_SCALES = st.fractions(min_value=Fraction(1, 100), max_value=200, max_denominator=1000)
SOME_CONFIDENCES = st.fractions(min_value=Fraction(1, 100), max_value=Fraction(99999, 100000))


def exact_tail(scale: Fraction, t: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(2) * decimal_exp((t + 1) / scale) / (1 + decimal_exp(1 / scale))


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_draws_follow_the_law(scale: Fraction) -> None:
    draws = sample(scale, DRAWS, SeededDice(1))
    assert p_value(draws, *laplace_bins(scale, 100)) > ALARM


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)])
@pytest.mark.parametrize("scale", SCALES)
def test_a_wrong_scale_does_not_pass_for_the_right_one(scale: Fraction, factor: Fraction) -> None:
    draws = sample(scale * factor, DRAWS, SeededDice(2))
    assert p_value(draws, *laplace_bins(scale, 100)) < ALARM


@pytest.mark.parametrize("scale", SCALES)
def test_repeated_noise_does_not_pass_for_fresh_noise(scale: Fraction) -> None:
    draws = np.repeat(sample(scale, DRAWS // 8, SeededDice(3)), 8)
    assert p_value(draws, *laplace_bins(scale, 100)) < ALARM


@pytest.mark.parametrize("scale", SCALES)
def test_noise_without_its_sign_does_not_pass(scale: Fraction) -> None:
    draws = np.abs(sample(scale, DRAWS, SeededDice(4)))
    assert p_value(draws, *laplace_bins(scale, 100)) < ALARM


@pytest.mark.parametrize("scale", SCALES)
def test_every_draw_of_a_call_and_the_next_call_is_its_own(scale: Fraction) -> None:
    dice = SeededDice(5)
    first, second = sample(scale, 100_000, dice), sample(scale, 100_000, dice)
    for one, other in [(first[:-1], first[1:]), (first, second), (first[:50_000], first[50_000:])]:
        correlation = np.corrcoef(np.sign(one), np.sign(other))[0, 1]
        assert abs(correlation) < 5 / math.sqrt(one.size)
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(1000)])
def test_a_long_call_made_in_chunks_still_follows_the_law(scale: Fraction) -> None:
    draws = sample(scale, 3 * 2**16 + 5, SeededDice(6))
    assert draws.size == 3 * 2**16 + 5
    assert p_value(draws, *laplace_bins(scale, 50)) > ALARM


def test_tiny_noise_is_zero_almost_always() -> None:
    assert not sample(Fraction(1, 1000), 10_000, SeededDice(7)).any()


def test_noise_of_almost_no_scale_is_drawn_and_not_searched_for_ever() -> None:
    assert not sample(Fraction(1, 10**12), 100, SeededDice(7)).any()


def test_a_draw_goes_on_into_the_tail_as_far_as_the_bits_do() -> None:
    ones = bytes([255]) * (1000 // 8)
    draw = int(sample(Fraction(1, 2), 1, ScriptedDice(ones))[0])
    assert exact_tail(Fraction(1, 2), abs(draw)) < Decimal(2) ** -512


def test_most_draws_take_little_more_than_16_bits_each() -> None:
    dice = CountingDice(8)
    sample(Fraction(5), 100_000, dice)
    assert dice.given < 100_000 * 2.4


def test_the_scale_is_the_exact_quotient_of_sensitivity_and_epsilon() -> None:
    assert scale_for(3, Fraction(1, 10)) == 30


@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(10), Fraction(100)])
def test_std_is_that_of_the_discrete_law(scale: Fraction) -> None:
    reach = np.arange(10_000, dtype=np.float64)
    chances = np.exp(-reach / float(scale))
    whole = 2 * chances.sum() - 1
    assert std(scale) == pytest.approx(math.sqrt(2 * (chances @ reach**2) / whole), rel=1e-12)


def test_std_of_vanishing_noise_is_zero() -> None:
    assert std(Fraction(1, 10**6)) == 0


@given(SOME_SCALES, SOME_CONFIDENCES)
def test_the_interval_is_the_smallest_that_holds(scale: Fraction, confidence: Fraction) -> None:
    t = interval(scale, confidence)
    miss = Decimal((1 - confidence).numerator) / Decimal((1 - confidence).denominator)
    assert exact_tail(scale, t) <= miss
    assert t == 0 or exact_tail(scale, t - 1) > miss


@pytest.mark.parametrize("scale", [Fraction(10**6), Fraction(10**12, 7), Fraction(2**50)])
def test_the_interval_is_the_smallest_that_holds_for_wide_noise_too(scale: Fraction) -> None:
    t = interval(scale, CONFIDENCE)
    assert exact_tail(scale, t) <= Decimal("0.05") < exact_tail(scale, t - 1)


@given(st.fractions(min_value=1, max_value=200, max_denominator=99), st.integers(0, 1000))
def test_the_tail_is_rounded_up_and_by_little(scale: Fraction, t: int) -> None:
    bound = tail(scale, t)
    exact = Fraction(exact_tail(scale, t))
    assert bound >= exact * (1 - Fraction(1, 10**50))
    assert bound <= exact * (1 + Fraction(1, 2**64))


def test_beyond_minus_one_lies_everything() -> None:
    assert tail(Fraction(10), -1) == 1


def first_draws_of_a_fork(count: int, dice: RandomSource) -> bytes:
    """What a forked worker draws first."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, sample(Fraction(1000), count, dice).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    return drawn


@pytest.mark.parametrize(
    "dice", [SystemRandomSource(), BulkRandomSource()], ids=lambda one: type(one).__name__
)
def test_no_forked_worker_repeats_the_noise_of_another(dice: RandomSource) -> None:
    sample(Fraction(1000), 4000, dice)  # the tables are warm before the fork
    workers = [first_draws_of_a_fork(4000, dice) for _ in range(8)]
    assert len(workers[0]) == 8 * 4000
    assert len(set(workers)) == 8
