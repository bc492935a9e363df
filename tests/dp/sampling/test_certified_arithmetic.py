"""Bounds of exp(-x) and of what is built of it enclose the true value and are narrow."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.sampling.certified_arithmetic import (
    Interval,
    Uniform,
    _exp_above,
    _exp_below,
    exp_minus,
    is_at_most,
    is_uniform_below,
    one_minus,
    product,
    ratio,
)
from support.seeded_dice import ScriptedDice

BITS = 192
NUMBERS = st.fractions(min_value=0, max_value=1000, max_denominator=10**12)


def exp_by_decimal(x: Fraction) -> Fraction:
    """exp(-x) to 200 digits, by another method than ours."""
    with localcontext() as context:
        context.prec = 200
        return Fraction((-(Decimal(x.numerator) / Decimal(x.denominator))).exp())


def encloses(bounds: Interval, value: Fraction, bits: int, slack: Fraction = Fraction(0)) -> bool:
    """Whether the bounds enclose the value, known to within the slack."""
    scaled, reach = value * 2**bits, slack * 2**bits
    return bool(bounds[0] <= scaled + reach and scaled - reach <= bounds[1])


@given(NUMBERS, st.sampled_from([64, 192, 500]))
def test_bounds_of_exp_enclose_the_true_value(x: Fraction, bits: int) -> None:
    slack = Fraction(1, 10**198)
    assert encloses(exp_minus(x, bits), exp_by_decimal(x), bits, slack)


@given(NUMBERS, st.sampled_from([64, 192, 500]))
def test_bounds_of_exp_are_at_most_two_units_apart(x: Fraction, bits: int) -> None:
    low, high = exp_minus(x, bits)
    assert 0 <= high - low <= 2


@given(NUMBERS)
def test_more_bits_only_narrow_the_bounds(x: Fraction) -> None:
    low, high = exp_minus(x, 128)
    fine_low, fine_high = exp_minus(x, 256)
    assert low << 128 <= fine_high
    assert fine_low <= high << 128


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_the_series_bounds_exp_at_the_coarsest_precision(bits: int) -> None:
    for y in range(2**bits // 64):
        with localcontext() as context:
            context.prec = 50
            exact = (Decimal(y) / 2**bits).exp() * 2**bits
        assert _exp_below(y, bits) <= exact <= _exp_above(y, bits)


def test_exp_at_zero_is_exactly_one() -> None:
    assert exp_minus(Fraction(0), 64) == (2**64, 2**64)


def test_a_vanishing_exp_is_not_taken_for_zero() -> None:
    assert exp_minus(Fraction(10**9), 64) == (0, 1)


def test_bounds_of_a_tiny_exponent_stay_below_one() -> None:
    x = Fraction(1, 2**60)
    assert encloses(exp_minus(x, 192), exp_by_decimal(x), 192)
    assert exp_minus(x, 192)[1] < 2**192


INTERVALS = st.tuples(st.integers(1, 2**BITS - 2**20), st.integers(0, 2**20)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(INTERVALS, INTERVALS)
def test_products_ratios_and_complements_round_outwards(a: Interval, b: Interval) -> None:
    one = Fraction(1, 2**BITS)
    for first, second in zip(a, b, strict=True):
        assert encloses(product(a, b, BITS), first * second * one**2, BITS)
        assert encloses(ratio(a, b, BITS), Fraction(first, second), BITS)
        assert encloses(one_minus(a, BITS), 1 - first * one, BITS)


@pytest.mark.parametrize("offset", [1, -1])
def test_a_comparison_is_certain_however_close_the_numbers(offset: int) -> None:
    x = Fraction(1, 3)
    near = Fraction(exp_minus(x, 400)[0] + 3 * offset, 2**400)
    assert is_at_most(lambda bits: exp_minus(x, bits), near) is (offset > 0)


def bits_of_exp(x: Fraction, count: int) -> int:
    """The first binary digits of exp(-x)."""
    return exp_minus(x, count + 200)[0] >> 200


@pytest.mark.parametrize("offset", [0, 1])
def test_a_uniform_that_follows_the_number_is_decided_by_the_bit_that_leaves_it(
    offset: int,
) -> None:
    x, known = Fraction(1, 3), 1024
    path = bits_of_exp(x, known) - 1 + 2 * offset  # leaves the number in the last of 1024 bits
    script = b"".join(
        ((path >> (known - start - size)) & ((1 << size) - 1)).to_bytes(size // 8, "little")
        for start, size in [(64, 64), (128, 128), (256, 256), (512, 512)]
    )
    start = Uniform(path >> (known - 64), 64)
    verdict = is_uniform_below(start, lambda bits: exp_minus(x, bits), ScriptedDice(script))
    assert verdict is (offset == 0)
