"""The discrete Gaussian mechanism: its draws, its coins, its intervals and their inverse."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.dp.mechanisms import gaussian
from sfumato.dp.mechanisms.gaussian import (
    COIN_MARGIN,
    bits_below,
    interval,
    sample,
    std,
    variance_for,
)
from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.certified_arithmetic import exp_minus
from sfumato.dp.sampling.threshold_table import CHUNK, MAX_OUTCOME
from support.continuous_gaussian import analytic_sigma
from support.noise_probabilities import ALARM, gaussian_bins, gaussian_masses, p_value
from support.seeded_dice import ColumnDice, ScriptedDice, SeededDice

DRAWS = 200_000
CONFIDENCE = Fraction(95, 100)
FEW, MANY = 1, gaussian.MANY  # draws at once: a short table, or a longer one with smaller blocks
VARIANCE = Fraction(10**8)
SIGMAS = [Fraction(n) for n in (1, 15, 16, 63, 100, 1000, 10**4, 10**8, 10**12)]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_gaussian_draws_follow_the_law(sigma: Fraction) -> None:
    draws = sample(sigma**2, DRAWS, SeededDice(1))
    assert p_value(draws, *gaussian_bins(sigma**2, 100)) > ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
def test_draws_of_calls_for_fewer_follow_it_too(sigma: Fraction) -> None:
    dice = SeededDice(13)
    draws = np.concatenate([sample(sigma**2, MANY - 1, dice) for _ in range(DRAWS // MANY)])
    assert p_value(draws, *gaussian_bins(sigma**2, 100)) > ALARM


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_a_wrong_sigma_does_not_pass_for_the_right_one(sigma: Fraction, factor: Fraction) -> None:
    draws = sample((sigma * factor) ** 2, DRAWS, SeededDice(2))
    assert p_value(draws, *gaussian_bins(sigma**2, 100)) < ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
def test_repeated_noise_does_not_pass_for_fresh_noise(sigma: Fraction) -> None:
    draws = np.repeat(sample(sigma**2, DRAWS // 8, SeededDice(3)), 8)
    assert p_value(draws, *gaussian_bins(sigma**2, 100)) < ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
def test_noise_without_its_sign_does_not_pass(sigma: Fraction) -> None:
    draws = np.abs(sample(sigma**2, DRAWS, SeededDice(4)))
    assert p_value(draws, *gaussian_bins(sigma**2, 100)) < ALARM


@pytest.mark.parametrize("sigma", SIGMAS)
def test_every_draw_of_a_call_and_the_next_call_is_its_own(sigma: Fraction) -> None:
    dice = SeededDice(5)
    first, second = sample(sigma**2, 100_000, dice), sample(sigma**2, 100_000, dice)
    for one, other in [(first[:-1], first[1:]), (first, second), (first[:50_000], first[50_000:])]:
        assert abs(np.corrcoef(np.sign(one), np.sign(other))[0, 1]) < 5 / math.sqrt(one.size)
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)


@pytest.mark.parametrize("sigma", [Fraction(100), Fraction(10**6)])
@pytest.mark.parametrize("count", [0, 1, 2, 1000, CHUNK + 1])
def test_as_many_draws_come_as_were_asked(sigma: Fraction, count: int) -> None:
    assert sample(sigma**2, count, SeededDice(6)).shape == (count,)


def test_tiny_noise_is_zero_almost_always() -> None:
    assert not sample(Fraction(1, 10**6), 10_000, SeededDice(7)).any()


def test_the_low_bits_of_wide_noise_are_even() -> None:
    draws = sample(Fraction(10**12), DRAWS, SeededDice(8))
    assert p_value(draws % 64, np.arange(1, 64), np.full(64, 1 / 64)) > ALARM


@pytest.mark.parametrize("variance", [Fraction(16**2), Fraction(10**10, 7), Fraction(2**100)])
def test_the_top_of_wide_noise_has_a_sigma_between_8_and_16(variance: Fraction) -> None:
    assert 8**2 <= variance / 4 ** bits_below(variance, MANY - 1) < 16**2


@pytest.mark.parametrize("variance", [Fraction(64**2), Fraction(10**10, 7), Fraction(2**100)])
def test_the_top_of_many_draws_has_a_sigma_between_32_and_64(variance: Fraction) -> None:
    assert 32**2 <= variance / 4 ** bits_below(variance, MANY) < 64**2


@pytest.mark.parametrize("variance", [Fraction(16**2), Fraction(32**2), Fraction(64**2 - 1)])
def test_the_smallest_blocks_have_two_numbers(variance: Fraction) -> None:
    assert bits_below(variance, MANY) == 1


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("variance", [Fraction(16**2), Fraction(10**12), Fraction(2**100)])
def test_fewer_attempts_fail_than_are_made_to_spare(variance: Fraction, count: int) -> None:
    """Else numbers would have to be drawn anew each time: right, but slow."""
    low_bits = bits_below(variance, count)
    _, failed = gaussian._attempts(variance, low_bits, 10**6, SeededDice(12))
    assert failed.size < 10**6 / (2 * (math.isqrt(int(variance)) >> low_bits))


@pytest.mark.parametrize("count", [FEW, MANY])
def test_the_widest_proposal_that_is_let_through_fits_into_64_bits(count: int) -> None:
    assert (MAX_OUTCOME + 1) << bits_below(gaussian.MAX_VARIANCE, count) < 2**63


CHANCES = st.tuples(
    st.integers(0, 500),
    st.integers(0, 2**47 - 1),
    st.fractions(min_value=16**2, max_value=2**100, max_denominator=1000),
    st.sampled_from([FEW, MANY]),
)


@given(CHANCES)
def test_the_float_estimate_of_a_coin_is_within_half_its_margin(
    proposal: tuple[int, int, Fraction, int],
) -> None:
    block, rest, variance, count = proposal
    odds = gaussian._Odds(variance, bits_below(variance, count))
    rest %= 2**odds.low_bits + 1
    estimate = odds.estimate(np.array([block]), np.array([rest]))[0]
    low, high = odds.bounds(block, rest, 128)
    assert abs(Fraction(float(estimate)) - Fraction(low, 2**96)) < Fraction(COIN_MARGIN) / 2
    assert abs(Fraction(float(estimate)) - Fraction(high, 2**96)) < Fraction(COIN_MARGIN) / 2


@pytest.mark.parametrize("bits", [40, 50, 60, 70])
def test_the_bounds_of_a_chance_too_small_for_them_begin_at_zero(bits: int) -> None:
    odds, m = gaussian._Odds(Fraction(2**100), 43), 2**43  # its last place has a chance near 2**-42
    low, high = odds.bounds(0, m - 1, bits)
    exact_low, exact_high = odds.bounds(0, m - 1, 200)
    assert low << (200 - bits) <= exact_high
    assert high << (200 - bits) >= exact_low


def test_the_expm1_of_numpy_is_as_close_as_the_proof_assumes() -> None:
    points = np.concatenate([-np.linspace(0, 50, 3001), -np.geomspace(1e-18, 1, 500)])
    for point, value in zip(points.tolist(), np.expm1(points).tolist(), strict=True):
        low, high = exp_minus(Fraction(-point), 256)
        true = 1 - Fraction(low + high, 2**257)
        assert abs(-Fraction(value) - true) <= true * Fraction(1, 2**43)


def test_the_float_estimate_of_many_coins_at_once_is_that_of_one() -> None:
    odds = gaussian._Odds(VARIANCE, bits_below(VARIANCE, FEW))
    top, rest = np.arange(400), np.arange(400) * 7 % 256
    together = odds.estimate(top, rest)
    apart = [odds.estimate(top[i : i + 1], rest[i : i + 1])[0] for i in range(400)]
    assert np.abs(together - np.array(apart)).max() < COIN_MARGIN / 4


def coin_at(odds: gaussian._Odds, block: int, rest: int, uniform: int, bits: int) -> bool:
    """What the coin says to a uniform number given by its first 32, 64, 128 ... bits."""
    pieces = [(32, 32)]
    while pieces[-1][1] < bits:
        pieces.append((pieces[-1][1], 2 * pieces[-1][1]))
    spoken = b"".join(
        ((uniform >> (bits - end)) & ((1 << size) - 1)).to_bytes(size // 8, "little")
        for size, end in pieces
    )
    dice = ScriptedDice(spoken)
    return bool(gaussian._coins(odds, np.array([block]), np.array([rest]), dice)[0])


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
@pytest.mark.parametrize(("block", "rest"), [(0, 1), (1, 1), (3, 200), (40, 17), (150, 255)])
def test_a_coin_that_nearly_equals_its_chance_is_decided_exactly(
    bits: int, block: int, rest: int
) -> None:
    odds = gaussian._Odds(VARIANCE, bits_below(VARIANCE, FEW))
    chance = odds.bounds(block, rest, bits + 64)[0] >> 64
    assert coin_at(odds, block, rest, chance - 1, bits)
    assert not coin_at(odds, block, rest, chance + 1, bits)


def cell_of(floors: list[int], place: int) -> bytes:
    """The 16 bits that lead to a place of a table: those before its threshold."""
    return ((floors[place] >> 48) - 1).to_bytes(2, "little")


def words(m: int, minus: bool) -> bytes:
    """Each number of a block once, as words of 16 bits with that sign."""
    return (np.arange(m, dtype="<u2") | (minus << 15)).astype("<u2").tobytes()


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("place", [1, 2, 20])
def test_a_place_below_the_curve_is_every_number_of_its_block(place: int, count: int) -> None:
    low_bits = bits_below(VARIANCE, count)
    m = 2**low_bits
    cells = cell_of(gaussian._half_table(VARIANCE / m**2).floors.tolist(), place) * m
    for minus, numbers in [(False, range(m)), (True, range(-1, -m - 1, -1))]:
        dice = ColumnDice(cells, words(m, minus), b"", b"", b"")
        drawn, failed = gaussian._attempts(VARIANCE, low_bits, m, dice)
        offset = -m * (place - 1) if minus else m * (place - 1)
        assert drawn.tolist() == [offset + n for n in numbers]
        assert failed.size == 0


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("minus", [False, True])
def test_above_a_block_just_those_are_kept_whose_coin_is_below_their_chance(
    minus: bool, count: int
) -> None:
    """Below zero a number's weight is that of one farther out: a block there begins at -1."""
    odds, block = gaussian._Odds(VARIANCE, bits_below(VARIANCE, count)), 20
    m = 2**odds.low_bits
    chances = [odds.bounds(block, rest + minus, 96)[0] >> 64 for rest in range(m)]
    heads = np.array([max(0, c - 1 + 2 * (r % 2)) for r, c in enumerate(chances)], dtype="<u4")
    cells = cell_of(gaussian._above_table(VARIANCE / m**2).floors.tolist(), block) * m
    dice = ColumnDice(cells, words(m, minus), heads.tobytes())
    numbers, kept = gaussian._above(VARIANCE, odds.low_bits, m, dice)
    there = [block * m + rest for rest in range(m)]
    assert numbers.tolist() == ([-1 - n for n in there] if minus else there)
    assert kept.tolist() == [chance > 0 and rest % 2 == 0 for rest, chance in enumerate(chances)]


def test_the_ends_of_a_block_are_certain_whatever_the_coin() -> None:
    odds = gaussian._Odds(VARIANCE, bits_below(VARIANCE, FEW))
    assert coin_at(odds, 5, 0, 2**32 - 1, 32)
    assert not coin_at(odds, 5, 2**odds.low_bits, 0, 32)


@pytest.mark.parametrize(
    ("failed", "filled", "left"),
    [([], [0, 1, 2, 3], []), ([2, 5], [0, 1, 4, 3], []), ([0, 1, 3, 4], [5, 6, 2, 3], [3])],
    ids=["none fails", "one of each", "too few to spare"],
)
def test_failures_are_filled_in_order_by_what_is_to_spare(
    failed: list[int], filled: list[int], left: list[int]
) -> None:
    drawn = np.arange(7)
    holes = gaussian._filled(drawn, np.array(failed, dtype=np.int64), 4)
    assert drawn[:4].tolist() == filled
    assert holes.tolist() == left


@pytest.mark.parametrize("count", [FEW, MANY])
def test_blocks_and_coins_make_the_exact_law(count: int) -> None:
    """The chance of each number, by its tables and its coin, is its weight by that of zero."""
    variance = Fraction(10**4)
    odds = gaussian._Odds(variance, bits_below(variance, count))
    m = 2**odds.low_bits
    half, above = (
        np.diff([0, *table(variance / m**2).floors.tolist()]) / 2**64
        for table in (gaussian._half_table, gaussian._above_table)
    )
    masses = gaussian_masses(variance, reach=1300)

    def chance(n: int) -> float:
        block, rest = divmod(n if n >= 0 else -1 - n, m)
        low, high = odds.bounds(block, rest + (n < 0), 64)
        return float(half[block + 1] + half[0] * above[block] * (low + high) / 2**65)

    for n in range(-500, 500):
        wanted = float(masses[abs(n)] / masses[0])
        assert chance(n) / chance(0) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("sigma", [Fraction(1, 4), Fraction(1), Fraction(3), Fraction(7, 2)])
def test_std_is_that_of_the_discrete_law(sigma: Fraction) -> None:
    masses = gaussian_masses(sigma**2, reach=200)
    exact = sum((2 * k * k * mass for k, mass in enumerate(masses)), Decimal(0))
    assert std(sigma**2) == pytest.approx(float(exact) ** 0.5, rel=1e-12)


def test_std_of_wide_noise_is_sigma() -> None:
    assert std(Fraction(100)) == 10
    assert std(Fraction(16)) == pytest.approx(std(Fraction(16) - Fraction(1, 10**12)), rel=1e-12)


def smallest_by_hand(variance: Fraction, confidence: Fraction) -> int:
    """The smallest t with P(|X| <= t) >= confidence, by summing."""
    wanted = Decimal(confidence.numerator) / Decimal(confidence.denominator)
    masses = gaussian_masses(variance, reach=int(14 * float(variance) ** 0.5) + 20)
    total = masses[0]
    t = 0
    while total < wanted:
        t += 1
        total += 2 * masses[t]
    return t


@given(
    st.fractions(min_value=Fraction(1, 10), max_value=400, max_denominator=100),
    st.fractions(min_value=Fraction(1, 100), max_value=Fraction(9999, 10000)),
)
def test_the_interval_of_narrow_noise_is_the_smallest_that_holds(
    variance: Fraction, confidence: Fraction
) -> None:
    assert interval(variance, confidence) == smallest_by_hand(variance, confidence)


@pytest.mark.parametrize("sigma", [Fraction(64), Fraction(100), Fraction(1000, 7), Fraction(333)])
@pytest.mark.parametrize("percent", [Fraction(1, 10), 10, 50, 68, 80, 95, 99])
def test_the_interval_of_wide_noise_holds_and_is_at_most_one_too_wide(
    sigma: Fraction, percent: Fraction
) -> None:
    exact = smallest_by_hand(sigma**2, Fraction(percent, 100))
    assert exact <= interval(sigma**2, Fraction(percent, 100)) <= exact + 1


def test_the_interval_of_the_widest_noise_is_that_of_the_continuous() -> None:
    found = interval(Fraction(2**100), CONFIDENCE)
    assert found == pytest.approx(1.959963984540054 * 2**50, rel=1e-9)


def test_the_variance_is_the_exact_quotient() -> None:
    assert variance_for(3, Fraction(1, 10)) == 15


def test_noise_too_wide_for_64_bits_is_refused() -> None:
    with pytest.raises(Refused, match="noise-out-of-range"):
        sample(Fraction(2**100) + 1, 1, SeededDice(1))


def test_a_variance_of_zero_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        sample(Fraction(0), 1, SeededDice(1))


def continuous_delta(sigma: float, epsilon: float) -> float:
    """The delta of the continuous Gaussian at sensitivity 1, by scipy."""
    above = stats.norm.logcdf(0.5 / sigma - epsilon * sigma)
    below = stats.norm.logcdf(-0.5 / sigma - epsilon * sigma)
    return float(np.exp(above) - np.exp(epsilon + below))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-6), (20.0, 1e-5), (500.0, 1e-9)]
)
def test_the_analytic_oracle_finds_the_least_sigma(epsilon: float, delta: float) -> None:
    sigma = analytic_sigma(epsilon, delta, 3) / 3
    assert (
        continuous_delta(sigma * 1.0001, epsilon)
        < delta
        < continuous_delta(sigma * 0.9999, epsilon)
    )


def test_the_analytic_oracle_gives_the_published_sigma() -> None:
    assert analytic_sigma(1, 1e-5, 1) == pytest.approx(3.7306, abs=1e-4)
