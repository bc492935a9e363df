"""What is drawn is what is proved: laws by exact counts of words, and the epsilon of each."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.local.ballot_split import Sampled, Split
from sfumato.dp.local.binary_response import Binary
from sfumato.dp.local.duchi import Duchi
from sfumato.dp.local.frequency_oracle import Randomiser
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.hybrid_mechanism import Hybrid
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.likelihood_ratio import epsilon_of, worst_ratio
from sfumato.dp.local.local_hashing import Hashing, cells_of
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.piecewise_mechanism import Piecewise
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.random_words import PARTS, largest_probability_within, words_each
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import HALF, Unary
from sfumato.dp.refusal import Bug, Refused
from support.local_randomiser_laws import draws, law_by_words

EPSILONS = [Fraction(1, 3), Fraction(1), Fraction(7, 2)]
MAKERS: dict[str, Any] = {  # each has its own `within`
    "hadamard": Hadamard, "hashing": Hashing, "k-ary": KAry, "projective": Projective,
    "subset": Subset, "unary": Unary,
}  # fmt: skip
NUMBERS: dict[str, Any] = {"duchi": Duchi, "hybrid": Hybrid, "piecewise": Piecewise}
SMALL = {"subset": 5, "unary": 4}


def cuts_of(one: Any) -> list[set[int]]:
    """At which words of a report something may change, for the kinds whose words are few."""
    truth: set[int] = {getattr(one, "truth", 0)}
    kinds: dict[str, Callable[[], list[set[int]]]] = {
        "binary": lambda: [{one.yes, one.other}],
        "k-ary": lambda: [truth, draws(one.size)],
        "hadamard": lambda: [truth, draws(one.rows)],
        "piecewise": lambda: [truth, draws(one.window, one.places)],
        "waves": lambda: [{one.momentary.truth}, draws(one.size)],
    }
    return kinds[one.parameters["kind"]]()


EXACT = [
    Binary(3 << 30, 1 << 30), Binary(5, 2), Binary.within(Fraction(1)),
    KAry.within(3, Fraction(1)), KAry(7, 12345), KAry(2, PARTS - 1),
    Hadamard.within(5, Fraction(2)), Piecewise.within(7, Fraction(1)), Piecewise(4, 3, 99),
]  # fmt: skip


@pytest.mark.parametrize("one", EXACT, ids=repr)
def test_the_law_is_that_of_the_words(one: Any) -> None:
    truths = list(one.law)
    counted = {truth: law_by_words(one, truth, cuts_of(one)) for truth in truths}
    for truth in truths:
        written = {as_bytes(one, said): p for said, p in one.law[truth].items() if p}
        assert counted[truth] == written
    assert worst_ratio(counted) == one.ratio


def as_bytes(one: Randomiser, said: int) -> bytes:
    return said.to_bytes(one.width, "little")


@pytest.mark.parametrize("value", [0, 2, 5, 6])
def test_the_law_of_ends_is_that_of_the_words(value: int) -> None:
    one = Duchi.within(5, Fraction(1))  # the second word of the rounding hardly ever matters
    counted = law_by_words(one, value, [draws(5), 0, {one.truth}, draws(3)])
    found = {said[0]: chance for said, chance in counted.items()}
    for said, chance in one.law[value].items():
        assert abs(found[said] - chance) < Fraction(1, PARTS)


@pytest.mark.parametrize("value", range(4))
def test_each_bit_of_a_unary_report_has_its_exact_chance(value: int) -> None:
    one = Unary(4, 1155094610)
    for bit in range(4):
        limit = HALF if bit == value else one.other
        for word, is_set in ((0, True), (limit - 1, True), (limit, False), (PARTS - 1, False)):
            planes = [(~word >> plane & 1) << bit for plane in range(32)]
            words = np.array(planes, dtype=np.uint32).reshape(-1, 1)
            said = one.randomise(np.array([value]), words)
            assert bool(said[0, 0] >> bit & 1) == is_set


@pytest.mark.parametrize("value", range(5))
def test_the_places_of_a_subset_are_those_of_the_words(value: int) -> None:
    one = Subset.within(5, Fraction(1))
    places = [Fraction(0)] * one.field
    counted = law_by_words(
        one, value, [draws(one.field - 1), set(), {one.truth}, draws(one.chosen, one.field)]
    )
    for report, chance in counted.items():
        times, shift = (int.from_bytes(report[i : i + 2], "little") for i in (0, 2))
        places[(times * value + shift) % one.field] += chance
    assert tuple(places) == one.places


@pytest.mark.parametrize("value", [0, 3, 8])
@pytest.mark.parametrize("cells", [3, 4])
def test_a_hash_leads_to_a_k_ary_response_of_its_cell(value: int, cells: int) -> None:
    one = Hashing(9, cells, 1290591209)
    for times, shift in ((0, 0), (2**31, 5), (0x9E3779B9, 0x7F4A7C15)):
        a, b, v = (np.array([n], dtype=np.uint32) for n in (times, shift, value))
        cell = int(cells_of(a, b, v, cells)[0])
        counted = law_by_words(one, value, [times, shift, {one.truth}, draws(cells)])
        assert {report[8]: chance for report, chance in counted.items()} == one.law[cell]


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_ratio_is_the_largest_of_the_law(kind: str, epsilon: Fraction) -> None:
    for size in (2, 3, SMALL.get(kind, 9)):
        one = MAKERS[kind].within(size, epsilon)
        assert worst_ratio(one.law) == one.ratio
        assert 0 < one.epsilon <= epsilon


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("kind", NUMBERS)
def test_the_ratio_of_numbers_is_the_largest_of_the_law(kind: str, epsilon: Fraction) -> None:
    for steps in (1, 2, 13):
        one = NUMBERS[kind].within(steps, epsilon)
        assert worst_ratio(one.law) == one.ratio
        assert 0 < one.epsilon <= epsilon


def test_the_ratio_of_a_wave_is_the_largest_of_its_law() -> None:
    waves = PermanentResponse.within(5, ever=Fraction(3), wave=Fraction(1))
    assert worst_ratio(waves.law) == waves.ratio
    assert waves.epsilon <= 1
    assert waves.epsilon_ever <= 3


@pytest.mark.parametrize("kind", MAKERS)
@settings(deadline=None, max_examples=40)
@given(epsilon=st.fractions(Fraction(1, 100), 12, max_denominator=1000), size=st.integers(2, 300))
def test_a_price_is_met_and_hardly_missed(kind: str, epsilon: Fraction, size: int) -> None:
    one = MAKERS[kind].within(size, epsilon)
    assert one.epsilon <= epsilon
    assert float(one.epsilon) > float(epsilon) * 0.999 - 1e-6


@pytest.mark.parametrize("kind", [*MAKERS, *NUMBERS])
def test_an_epsilon_of_nothing_or_next_to_it_is_refused(kind: str) -> None:
    within = {**MAKERS, **NUMBERS}[kind].within
    for epsilon in (Fraction(0), Fraction(-1), Fraction(1, 10**11)):
        with pytest.raises(Refused, match="epsilon"):
            within(4, epsilon)


@pytest.mark.parametrize("kind", [*MAKERS, *NUMBERS])
def test_an_epsilon_without_end_is_met_all_the_same(kind: str) -> None:
    one = {**MAKERS, **NUMBERS}[kind].within(4, Fraction(10**9))
    assert one.epsilon > 20


def test_a_split_ballot_costs_the_sum_and_a_sampled_one_the_largest() -> None:
    parts = (KAry.within(3, Fraction(1)), Duchi.within(9, Fraction(1, 2)))
    assert Split(parts).ratio == parts[0].ratio * parts[1].ratio
    assert Sampled(parts).ratio == parts[0].ratio
    assert float(Split(parts).epsilon) == pytest.approx(1.5, abs=1e-8)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 1 << 21))
def test_no_word_is_lost_or_counted_twice(outcomes: int) -> None:
    each = words_each(outcomes)
    assert int(each.sum()) == PARTS
    assert int(each.max() - each.min()) <= 1


def test_draws_are_counted_as_they_fall() -> None:
    for outcomes in (3, 7, 1000):
        starts = sorted(draws(outcomes))
        lengths = np.diff([*starts, PARTS])
        assert lengths.tolist() == words_each(outcomes).tolist()


def test_the_boldest_part_is_the_last_that_fits() -> None:
    def ratio(part: int) -> Fraction:
        return Fraction(PARTS + part, PARTS - part)

    part = largest_probability_within(ratio, Fraction(1))
    assert epsilon_of(ratio(part)) <= 1 < epsilon_of(ratio(part + 1)) + Fraction(1, 10**9)


BAD: list[tuple[Any, tuple[int, ...]]] = [
    (Binary, (1, 1)), (Binary, (1, 2)), (Binary, (PARTS, 1)), (Binary, (5, 0)),
    (KAry, (1, 5)), (KAry, (3, 0)), (KAry, (3, PARTS)), (KAry, (1 << 22, 5)),
    (Unary, (3, HALF)), (Unary, (3, 0)), (Unary, (1, 5)),
    (Hadamard, (4, 4, 5)), (Hadamard, (4, 9, 5)), (Hadamard, (4, 8, 0)),
    (Hashing, (1 << 18, 3, 5)), (Hashing, (5, 1, 5)), (Hashing, (5, 300, 5)),
    (Subset, (5, 6, 2, 5)), (Subset, (8, 7, 2, 5)), (Subset, (5, 7, 7, 5)), (Subset, (5, 7, 0, 5)),
    (Projective, (9, 2, 3, 5)), (Projective, (9, 4, 3, 5)), (Projective, (9, 10**30, 3, 5)),
    (Duchi, (0, 5)), (Duchi, (5, 0)), (Piecewise, (5, 6, 5)), (Piecewise, (5, 0, 5)),
    (Hybrid, (5, 0, 3, 5, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "numbers"), BAD, ids=str)
def test_numbers_that_make_no_randomiser_are_a_bug(kind: Any, numbers: tuple[int, ...]) -> None:
    with pytest.raises(Bug):
        kind(*numbers)


def test_all_pairs_fall_into_all_pairs_of_cells_equally_often() -> None:
    """The family of hashes with 8 bits for 32, looked through whole; and it is the one used."""
    width, out = 8, 4
    times, shifts = np.meshgrid(np.arange(256), np.arange(256))
    for one in range(32):  # 5 bits: 5 + 4 - 1 = 8
        for other in range(one):
            cells = [model(times, shifts, answer, width, out) for answer in (one, other)]
            pairs = np.bincount((cells[0] * 16 + cells[1]).ravel(), minlength=256)
            assert set(pairs.tolist()) == {256}
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, 2**32, (2, 1000), dtype=np.uint32)
    v = generator.integers(0, 1 << 17, 1000, dtype=np.uint32)
    ours = cells_of(a, b, v, 1 << 16)
    assert ours.tolist() == model(a.astype(object), b.astype(object), v, 32, 16).tolist()


def model(a: Any, b: Any, value: Any, width: int, out: int) -> Any:
    return (a * value + b) % 2**width >> (width - out)
