"""The exact geometric law, and its digits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.sampling.geometric import (
    bits_below,
    digit_law,
    digit_widths,
    geometric_law,
    sample,
)
from sfumato.dp.sampling.threshold_table import MAX_OUTCOME, certified_floors
from support.noise_probabilities import ALARM, p_value
from support.seeded_dice import ColumnDice, SeededDice

DRAWS = 200_000


def geometric_bins(scale: Fraction, bins: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Edges of about equally likely bins, and their chances."""
    wide = float(scale)
    marks = -np.log1p(-np.arange(1, bins) / bins) * wide
    edges = np.unique(np.ceil(marks)).astype(np.int64)
    sums = np.concatenate([[0.0], -np.expm1(-edges / wide), [1.0]])
    return edges, np.diff(sums)


@pytest.mark.parametrize(
    "scale", [Fraction(n) for n in ("1/2", 7, 8, 10, 1000, 10**12, 2**50)], ids=str
)
def test_geometric_draws_follow_the_law(scale: Fraction) -> None:
    draws = sample(scale, DRAWS, SeededDice(1))
    assert p_value(draws, *geometric_bins(scale, 100)) > ALARM


@pytest.mark.parametrize("factor", [Fraction(9, 10), Fraction(11, 10)])
@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10**12)])
def test_a_wrong_scale_does_not_pass_for_the_right_one(scale: Fraction, factor: Fraction) -> None:
    draws = sample(scale * factor, DRAWS, SeededDice(2))
    assert p_value(draws, *geometric_bins(scale, 100)) < ALARM


@pytest.mark.parametrize("scale", [Fraction(100), Fraction(1000), Fraction(10**8)])
def test_the_low_digits_follow_their_own_law(scale: Fraction) -> None:
    draws = sample(scale, DRAWS, SeededDice(3))
    low = 2 ** min(6, bits_below(scale))
    chances = np.exp(-np.arange(low) / float(scale))
    seen = np.bincount(draws % low, minlength=low)
    assert stats.chisquare(seen, chances / chances.sum() * DRAWS).pvalue > ALARM


@pytest.mark.parametrize("scale", [Fraction(1000), Fraction(10**5), Fraction(10**8)])
def test_the_digits_are_independent(scale: Fraction) -> None:
    draws = sample(scale, DRAWS, SeededDice(4))
    bits = bits_below(scale)
    low, top = (draws >> (bits - min(bits, 4))) & 7, np.minimum(draws >> bits, 63) // 8
    table = np.zeros((8, 8))
    np.add.at(table, (low, top), 1)
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 50]).pvalue > ALARM


@pytest.mark.parametrize("scale", [Fraction(64), Fraction(200), Fraction(1000, 3)])
def test_digits_and_top_multiply_to_the_exact_law(scale: Fraction) -> None:
    bits = bits_below(scale)
    top = np.diff([0, *certified_floors(geometric_law(scale / 2**bits))]) / 2**64
    digit = np.diff([0, *certified_floors(digit_law(scale, bits)), 2**64]) / 2**64
    for k in range(300):
        exact = -math.expm1(-1 / float(scale)) * math.exp(-k / float(scale))
        assert top[k >> bits] * digit[k % 2**bits] == pytest.approx(exact, rel=1e-12)


CELLS = np.arange(2**16, dtype="<u2").tobytes()
ZEROS = bytes(2**17)


@pytest.mark.parametrize("scale", [Fraction(64), Fraction(1000), Fraction(10**5), Fraction(10**7)])
def test_over_all_cells_each_digit_comes_as_often_as_its_law_says(scale: Fraction) -> None:
    place = bits_below(scale)
    for digit, width in enumerate(digit_widths(place)):
        place -= width
        columns = [ZEROS] * (1 + digit) + [CELLS]
        draws = sample(scale, 2**16, ColumnDice(*columns))
        chances = np.exp(-np.arange(2**width) * 2.0**place / float(scale))
        seen = np.bincount(draws >> place, minlength=2**width)
        assert seen.size == 2**width
        assert np.abs(np.cumsum(seen - chances / chances.sum() * 2**16)).max() < 1 + 1e-6


def test_over_all_cells_the_top_comes_as_often_as_its_law_says() -> None:
    draws = sample(Fraction(1000), 2**16, ColumnDice(CELLS))
    sums = -np.expm1(-np.arange(1, 50) * 128 / 1000) * 2**16
    assert np.abs(np.cumsum(np.bincount(draws >> 7))[:49] - sums).max() < 1 + 1e-6


@pytest.mark.parametrize("scale", [Fraction(8), Fraction(1000), Fraction(10**9), Fraction(2**50)])
def test_the_top_has_a_scale_between_4_and_8(scale: Fraction) -> None:
    assert 4 <= scale / 2 ** bits_below(scale) < 8


def test_the_widths_of_the_digits_add_up_and_none_is_over_seven() -> None:
    for low_bits in range(bits_below(Fraction(2**50)) + 1):
        widths = digit_widths(low_bits)
        assert sum(widths) == low_bits
        assert all(low_bits // len(widths) <= width <= 7 for width in widths)


def test_the_widest_draw_that_is_let_through_fits_into_64_bits() -> None:
    low_bits = bits_below(Fraction(2**50))
    assert (MAX_OUTCOME << low_bits) + (
        1 << low_bits
    ) < 2**63  # Laplace adds one to all digits full


def test_noise_too_wide_for_64_bits_is_refused() -> None:
    with pytest.raises(Refused, match="noise-out-of-range"):
        sample(Fraction(2**50) + 1, 1, SeededDice(1))


def test_a_scale_of_zero_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        sample(Fraction(0), 1, SeededDice(1))
