"""Many exponentials at once are as close to the truth as the proof says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.exponential_powers import (
    MAX_ERROR,
    fine_powers,
    high_word,
    lower_powers,
    powers_of,
)
from support.choice_laws import weight

WORDS = st.integers(0, 2**64 - 1)
RATES = [Fraction(n, d) for n, d in ((50, 1), (1, 3), (1, 999), (3, 10**7), (1, 10**13))]
NARROWEST = Fraction(1, 10**19)  # the gaps that count have eight digits


@settings(max_examples=300)
@given(WORDS, WORDS)
def test_the_high_word_of_a_product_is_exact(a: int, b: int) -> None:
    found = high_word(np.array([a], dtype=np.uint64), np.array([b], dtype=np.uint64))
    assert int(found[0]) == a * b >> 64


def some_gaps(rate: Fraction) -> list[int]:
    last = powers_of(rate).last
    random = np.random.default_rng(1).random(300)
    edges = [0, 1, 2, 255, 256, 65535, 65536, 65537, last - 1, last]
    return [gap for gap in [*edges, *(int(part * last) for part in random)] if 0 <= gap <= last]


@pytest.mark.parametrize("rate", [*RATES, NARROWEST])
def test_powers_are_never_too_high_and_less_than_the_margin_too_low(rate: Fraction) -> None:
    gaps = some_gaps(rate)
    for gap, low in zip(gaps, lower_powers(rate, np.array(gaps, dtype=np.uint64)), strict=True):
        assert int(low) <= weight(rate * gap) * 2**63 < int(low) + MAX_ERROR


@pytest.mark.parametrize("rate", RATES)
def test_what_is_farther_than_the_last_gap_counts_as_nothing(rate: Fraction) -> None:
    last = powers_of(rate).last
    assert weight(rate * (last + 1)) < Fraction(MAX_ERROR, 2**63)
    gaps = np.array([last + 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert lower_powers(rate, gaps).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rate", [*RATES, NARROWEST])
def test_no_gap_counts_exactly_once(rate: Fraction) -> None:
    assert lower_powers(rate, np.zeros(1, dtype=np.uint64)).tolist() == [2**63]
    assert list(fine_powers(rate, [0], 100)) == [(2**100, 2**100)]


@pytest.mark.parametrize("rate", [*RATES, NARROWEST])
@pytest.mark.parametrize("bits", [64, 150])
def test_fine_powers_enclose_the_truth_closely(rate: Fraction, bits: int) -> None:
    gaps = [*some_gaps(rate), 2**64 - 1]
    for gap, (low, high) in zip(gaps, fine_powers(rate, gaps, bits), strict=True):
        assert low <= weight(rate * gap) * 2**bits <= high
        assert high - low < 40


def test_a_rate_of_zero_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        powers_of(Fraction(0))
