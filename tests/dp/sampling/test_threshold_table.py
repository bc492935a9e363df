"""A table decides as an infinitely fine uniform number would: ties, tail and all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, islice, repeat

import numpy as np
import pytest

from sfumato.dp.mechanisms.gaussian import above_law, half_law, magnitude_law
from sfumato.dp.mechanisms.laplace import magnitude_law as laplace_law
from sfumato.dp.mechanisms.laplace import zero_law
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Interval, Uniform
from sfumato.dp.sampling.geometric import digit_law, geometric_law
from sfumato.dp.sampling.threshold_table import (
    MAX_OUTCOME,
    Distribution,
    Table,
    draw_from,
    resolve_tie,
    table_of,
)
from support.noise_probabilities import decimal_exp, gaussian_masses
from support.seeded_dice import ScriptedDice, SeededDice

TOP = 2**64 - 1
SCALES = [Fraction(1, 3), Fraction(1), Fraction(10), Fraction(200, 7), Fraction(63)]


def geometric_floor(scale: Fraction, k: int) -> Decimal:
    return 1 - decimal_exp((k + 1) / scale)


def laplace_floor(scale: Fraction, k: int) -> Decimal:
    return 1 - 2 * decimal_exp((k + 1) / scale) / (1 + decimal_exp(1 / scale))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("law", "threshold"), [(geometric_law, geometric_floor), (laplace_law, laplace_floor)]
)
def test_every_floor_of_a_table_is_that_of_the_exact_probability(
    scale: Fraction,
    law: Callable[[Fraction], Distribution],
    threshold: Callable[[Fraction, int], Decimal],
) -> None:
    floors = table_of(law(scale)).floors.tolist()
    with localcontext() as context:
        context.prec = 60
        exact = [int(threshold(scale, k) * 2**64) for k in range(len(floors))]
    assert floors == exact


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10**6), Fraction(2**50)])
def test_every_floor_of_a_digit_table_is_that_of_the_exact_probability(scale: Fraction) -> None:
    floors = table_of(digit_law(scale, 8)).floors.tolist()
    with localcontext() as context:
        context.prec = 80
        whole = 1 - decimal_exp(256 / scale)
        exact = [int((1 - decimal_exp((k + 1) / scale)) / whole * 2**64) for k in range(255)]
    assert floors == exact[: len(floors)]
    assert len(floors) == 255 or floors[-1] == TOP


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10**6), Fraction(2**50)])
def test_the_floor_of_zero_is_that_of_the_exact_probability(scale: Fraction) -> None:
    with localcontext() as context:
        context.prec = 80
        a = decimal_exp(1 / scale)
        exact = int((1 - a) / (1 + a) * 2**64)
    assert table_of(zero_law(scale)).floors.tolist() == [exact]


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(1), Fraction(200, 7), Fraction(900)])
def test_every_floor_of_a_gaussian_table_is_that_of_the_exact_probability(
    variance: Fraction,
) -> None:
    masses = gaussian_masses(variance, reach=500)
    with localcontext() as context:
        context.prec = 60
        half = sum(masses, Decimal(0))
        for law, whole, times in [(magnitude_law, Decimal(1), 2), (half_law, half, 1)]:
            floors = table_of(law(variance)).floors.tolist()
            total, exact = masses[0] / whole, []
            for mass in masses[1 : len(floors) + 1]:
                exact.append(int(total * 2**64))
                total += times * mass / whole
            assert floors == exact


@pytest.mark.parametrize("law", [geometric_law(Fraction(10)), magnitude_law(Fraction(100))])
def test_a_table_ends_where_64_bits_cannot_tell_the_rest_from_one(law: Distribution) -> None:
    floors = table_of(law).floors.tolist()
    assert floors[-1] == TOP
    assert floors[-2] < TOP


def test_the_guide_gives_the_outcome_of_both_ends_of_a_cell_or_none() -> None:
    table = table_of(geometric_law(Fraction(3)))
    floors = table.floors.tolist()
    for cell, outcome in enumerate(table.guide.tolist()):
        first, last = cell << 48, (cell << 48) + 2**48 - 1
        below, past = sum(f < first for f in floors), sum(f <= last for f in floors)
        assert outcome == (below if below == past else -1)


def script(uniform: int, bits: int) -> bytes:
    """What dice must say so that a single draw reads that uniform number, bit for bit."""
    pieces, read = [(16, 16), (48, 64)], 64
    while read < bits:
        pieces.append((read, 2 * read))
        read *= 2
    spoken = uniform << (read - bits)
    return b"".join(
        ((spoken >> (read - after)) & ((1 << size) - 1)).to_bytes(size // 8, "little")
        for size, after in pieces
    )


def decide(table: Table, uniform: int, bits: int) -> int:
    """The outcome of a uniform number given by its first bits, zeros after."""
    return int(draw_from(table, 1, ScriptedDice(script(uniform, bits)))[0])


LAWS = [
    geometric_law(Fraction(10)),
    geometric_law(Fraction(1, 3)),
    laplace_law(Fraction(63)),
    zero_law(Fraction(10**6)),
    digit_law(Fraction(10**6), 8),
    magnitude_law(Fraction(100)),
    half_law(Fraction(1000)),
    above_law(Fraction(1000)),
]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_a_tie_is_decided_by_the_bits_that_follow(law: Distribution, bits: int) -> None:
    table = table_of(law)
    for k, (low, _) in islice(enumerate(law(bits + 128)), 12):
        threshold = low >> 128  # the first bits of the threshold, exactly
        assert decide(table, threshold - 1, bits) == k
        assert decide(table, threshold + 1, bits) == k + 1


@pytest.mark.parametrize("law", LAWS)
def test_a_draw_just_beside_a_floor_needs_no_further_bits(law: Distribution) -> None:
    table = table_of(law)
    floors = [floor for floor in table.floors[:12].tolist() if floor < TOP]
    for k, floor in enumerate(floors):
        assert decide(table, floor - 1, 64) == k
        assert decide(table, floor + 1, 64) == k + 1


@pytest.mark.parametrize("ones", [64, 128, 200, 1000])
def test_all_ones_go_as_far_into_the_tail_as_the_law_says(ones: int) -> None:
    scale = Fraction(1, 2)
    drawn = decide(table_of(geometric_law(scale)), 2**ones - 1, ones)  # then zeros
    with localcontext() as context:
        context.prec = 400
        left = Decimal(2) ** -ones  # the smallest k with 1 - u > a**(k+1), where 1 - u = 2**-ones
        exact = next(k for k in range(2000) if decimal_exp((k + 1) / scale) < left)
    assert drawn == exact


@pytest.mark.parametrize("ones", [64, 128, 200])
def test_all_ones_go_as_far_into_the_gaussian_tail_as_the_law_says(ones: int) -> None:
    masses = gaussian_masses(Fraction(9), reach=300, digits=400)
    with localcontext() as context:
        context.prec = 400
        beyond = [2 * sum(masses[k + 1 :], Decimal(0)) for k in range(120)]
        exact = next(k for k, rest in enumerate(beyond) if rest < Decimal(2) ** -ones)
    assert decide(table_of(magnitude_law(Fraction(9))), 2**ones - 1, ones) == exact


def test_all_ones_end_at_the_last_outcome_of_a_finite_law() -> None:
    table = table_of(digit_law(Fraction(10), 8))
    assert decide(table, 2**600 - 1, 600) == 255


@pytest.mark.parametrize("floor", [5 << 48, (6 << 48) - 1, (5 << 48) + 77, 0, TOP])
def test_a_threshold_at_the_edge_of_a_cell_is_seen(floor: int) -> None:
    table = table_of(lambda bits: iter([(floor << (bits - 64), floor << (bits - 64))]))
    for uniform in {max(0, floor - 1), floor, min(TOP, floor + 1)}:
        assert decide(table, uniform, 64) == (uniform >= floor)


def test_a_floor_that_the_first_precision_leaves_open_is_computed_more_finely() -> None:
    def just_above_77(bits: int) -> Iterator[Interval]:
        threshold = (77 << (bits - 64)) + (1 << bits >> 300)
        return iter([(threshold - 2, threshold + 2)])

    assert table_of(just_above_77).floors.tolist() == [77]


def test_a_draw_that_would_not_fit_into_64_bits_is_our_own_fault() -> None:
    def endless(bits: int) -> Iterator[Interval]:
        return repeat((0, 0), MAX_OUTCOME + 2)

    with pytest.raises(Bug, match="64 bits"):
        resolve_tie(endless, 0, Uniform(1, 64), SeededDice(1))


def test_a_table_too_long_for_its_guide_is_our_own_fault() -> None:
    with pytest.raises(Bug, match="too long"):
        table_of(lambda bits: repeat((0, 0), 2**15))


@pytest.mark.parametrize("bits", [10, 20, 40, 64])
@pytest.mark.parametrize("scale", SCALES)
def test_thresholds_enclose_the_exact_probability_at_every_precision(
    scale: Fraction, bits: int
) -> None:
    masses = gaussian_masses(scale, reach=200)
    sums = list(accumulate([masses[0], *(2 * mass for mass in masses[1:])]))
    laws: list[tuple[Distribution, Callable[[int], Decimal]]] = [
        (geometric_law(scale), lambda k: geometric_floor(scale, k)),
        (laplace_law(scale), lambda k: laplace_floor(scale, k)),
        (magnitude_law(scale), lambda k: sums[k]),
    ]
    with localcontext() as context:
        context.prec = 60
        for law, exact in laws:
            for k, (low, high) in islice(enumerate(law(bits)), 100):
                assert low <= exact(k) * 2**bits <= high


def test_a_chunk_and_single_draws_of_the_same_bits_agree() -> None:
    table = table_of(laplace_law(Fraction(63)))
    cells = SeededDice(1).draw(2000)
    together = draw_from(table, 1000, ScriptedDice(cells, then=7))
    apart = [
        int(draw_from(table, 1, ScriptedDice(cells[2 * i : 2 * i + 2], then=7))[0])
        for i in range(1000)
    ]
    assert together.tolist() == apart


def test_nothing_is_drawn_when_nothing_is_asked() -> None:
    assert draw_from(table_of(zero_law(Fraction(5))), 0, SeededDice(1)).dtype == np.int64
