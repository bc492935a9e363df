"""Estimates: right on average, with the error that the formula says, in intervals that hold."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sfumato.dp.local.binary_response import Binary
from sfumato.dp.local.frequency_estimation import estimate, observed, variances
from sfumato.dp.local.frequency_oracle import (
    Oracle,
    Tally,
    nothing,
    randomise,
    randomise_one,
    simulate,
    tally,
)
from sfumato.dp.local.hadamard_response import Hadamard
from sfumato.dp.local.k_ary_response import KAry
from sfumato.dp.local.local_hashing import Hashing
from sfumato.dp.local.permanent_response import PermanentResponse
from sfumato.dp.local.projective_geometry_response import Projective
from sfumato.dp.local.proportion_intervals import OFTEN, exact, intervals
from sfumato.dp.local.randomiser_registry import oracle_of, randomiser_of
from sfumato.dp.local.subset_selection import Subset
from sfumato.dp.local.unary_encoding import Unary, set_bits
from sfumato.dp.refusal import Bug, Refused
from support.seeded_dice import CountingDice, SeededDice

Integers = NDArray[np.int64]
ONE = Fraction(1)
SIZE, PEOPLE, REPEATS = 41, 1500, 500  # 20,500 squared errors for each oracle
KINDS: tuple[Any, ...] = (KAry, Unary, Hadamard, Hashing, Subset, Projective)
WAVES = PermanentResponse.within(SIZE, ever=Fraction(4), wave=Fraction(3, 2))
ORACLES: tuple[Oracle, ...] = (
    *(kind.within(SIZE, ONE) for kind in KINDS),
    *(kind.within(SIZE, Fraction(3)) for kind in KINDS),
    Binary.within(ONE), Binary(3 << 30, 1 << 28), WAVES,
)  # fmt: skip


def named(oracle: Any) -> str:
    return str(oracle.parameters).replace("'", "")


def shares_of(size: int) -> NDArray[np.float64]:
    weights = 1 / np.arange(1, size + 1) ** 1.3
    return np.asarray(weights / weights.sum())


def people_of(shares: NDArray[np.float64], count: int, seed: int) -> Integers:
    return np.random.default_rng(seed).choice(len(shares), count, p=shares)


def said_of(oracle: Oracle, values: Integers, dice: SeededDice) -> Tally:
    if isinstance(oracle, PermanentResponse):  # everybody's permanent answer is drawn first
        kept = randomise(oracle.permanent, values, dice)
        values = kept[:, 0].astype(np.int64)
    return simulate(oracle, values, dice)


def estimates(oracle: Oracle, shares: NDArray[np.float64], repeats: int) -> list[Any]:
    values, dice = people_of(shares, PEOPLE * repeats, 7), SeededDice(8)
    some = np.split(values, repeats)
    return [estimate(said_of(oracle, one, dice)) for one in some]


@pytest.mark.parametrize("oracle", ORACLES, ids=named)
def test_the_mean_squared_error_is_that_of_the_formula(oracle: Oracle) -> None:
    repeats = REPEATS if oracle.size > 2 else 11_000
    shares = shares_of(oracle.size)
    found = np.array([one.shares for one in estimates(oracle, shares, repeats)])
    squared = (found - shares) ** 2
    expected = variances(oracle, shares, PEOPLE)
    assert squared.size >= 20_000
    assert squared.mean() / expected.mean() == pytest.approx(1, abs=0.05)
    bias = (found.mean(axis=0) - shares) / np.sqrt(expected / repeats)
    assert np.abs(bias).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_squared_error_of_a_thousand_answers_is_that_of_the_formula(kind: Any) -> None:
    oracle, shares = kind.within(1024, ONE), shares_of(1024)
    found = np.array([one.shares for one in estimates(oracle, shares, 24)])
    squared = (found - shares) ** 2
    assert squared.size >= 24_000
    expected = variances(oracle, shares, PEOPLE).mean()
    assert squared.mean() / expected == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("oracle", ORACLES, ids=named)
def test_the_variance_that_is_shown_is_right_on_average(oracle: Oracle) -> None:
    shares = shares_of(oracle.size)
    shown = np.mean([one.variances for one in estimates(oracle, shares, 200)], axis=0)
    assert shown == pytest.approx(variances(oracle, shares, PEOPLE), rel=0.1)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_chances_that_are_off_by_a_tenth_would_be_seen(factor: float) -> None:
    honest = KAry.within(SIZE, ONE)
    other = KAry(SIZE, int(honest.truth * factor))
    shares = shares_of(SIZE)
    made = simulate(other, people_of(shares, 500_000, 1), SeededDice(2))
    read = estimate(Tally(honest, made.people, made.counts))
    assert abs(read.shares[0] - shares[0]) > 4.5 * read.stds[0]


@pytest.mark.parametrize("oracle", ORACLES, ids=named)
def test_every_report_is_one_that_a_client_makes(oracle: Oracle) -> None:
    reports = randomise(oracle, np.arange(500) % oracle.size, SeededDice(3))
    assert reports.shape == (500, oracle.width)
    assert oracle.are_valid(reports).all()


@pytest.mark.parametrize("oracle", ORACLES, ids=named)
def test_the_same_words_are_drawn_whatever_the_answers(oracle: Oracle) -> None:
    dice = [CountingDice(1), CountingDice(1)]
    randomise(oracle, np.zeros(99, dtype=np.int64), dice[0])
    randomise(oracle, np.full(99, oracle.size - 1), dice[1])
    assert dice[0].given == dice[1].given == 99 * 4 * oracle.words_per_report


@pytest.mark.parametrize("oracle", ORACLES, ids=named)
def test_tallies_add_up_in_any_parts(oracle: Oracle) -> None:
    reports = randomise(oracle, np.arange(3000) % oracle.size, SeededDice(4))
    parts = [nothing(oracle), *(tally(oracle, part) for part in np.array_split(reports, 7))]
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    assert whole.people == 3000
    assert whole.counts.tolist() == tally(oracle, reports).counts.tolist()
    assert whole.counts.size < 2500  # however many people


@pytest.mark.parametrize("kind", [Hashing, Subset])
def test_counting_by_blocks_is_counting_one_by_one(kind: Any) -> None:
    oracle = kind.within(41, ONE)
    reports = randomise(oracle, np.arange(5000) % 41, SeededDice(5))
    one_by_one = sum(oracle.counts(report[np.newaxis]) for report in reports)
    assert oracle.counts(reports).tolist() == one_by_one.tolist()


@pytest.mark.parametrize("kind", [KAry, Unary, Hadamard, Hashing])
def test_memory_does_not_grow_with_the_people(kind: Any) -> None:
    oracle = kind.within(64, ONE)
    peaks = [peak_of(oracle, people) for people in (2_000_000, 6_000_000)]
    assert peaks[1] < 1.2 * peaks[0]


def peak_of(oracle: Oracle, people: int) -> int:
    values = np.zeros(people, dtype=np.int64)
    tracemalloc.start()
    simulate(oracle, values, SeededDice(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_set_bits_are_counted_as_they_are() -> None:
    generator = np.random.default_rng(1)
    for rows in (1, 2, 3, 7, 100, 1000):
        packed = generator.integers(0, 2**32, (rows, 3), dtype=np.uint32)
        bits = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little")
        assert set_bits(packed).tolist() == bits.sum(axis=0).tolist()


def test_a_report_of_one_answer_is_the_one_among_many() -> None:
    oracle = Subset.within(9, ONE)
    words = np.random.default_rng(1).integers(
        0, 2**32, (oracle.words_per_report, 9), dtype=np.uint32
    )
    many = oracle.randomise(np.arange(9), words)
    for value in range(9):
        assert randomise_one(oracle, value, words[:, value].tolist()) == many[value].tobytes()


BROKEN = [
    (Binary.within(ONE), b"\2"), (KAry.within(5, ONE), b"\5"), (Hadamard.within(5, ONE), b"\x08"),
    (Unary.within(5, ONE), b"\x20\0\0\0"), (Hashing.within(9, ONE), bytes(8) + b"\4"),
    (Subset.within(6, ONE), b"\0\0\1\0"), (Subset.within(6, ONE), b"\1\0\7\0"),
    (Subset.within(6, ONE), b"\7\0\1\0"), (Projective.within(9, ONE), b"\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("oracle", "report"), BROKEN, ids=lambda one: str(one)[:30])
def test_a_report_that_nobody_makes_is_refused(oracle: Oracle, report: bytes) -> None:
    row = np.frombuffer(report, dtype=np.uint8)[np.newaxis]
    with pytest.raises(Refused, match="this randomiser never gives"):
        tally(oracle, row)
    with pytest.raises(Refused, match="length"):
        tally(oracle, np.zeros((1, oracle.width + 1), dtype=np.uint8))


@pytest.mark.parametrize("value", [-1, SIZE])
def test_an_answer_that_there_is_not_is_refused(value: int) -> None:
    with pytest.raises(Refused, match="outside the range of this randomiser"):
        randomise(ORACLES[0], np.array([value]), SeededDice(1))


def test_tallies_of_other_parameters_are_not_added() -> None:
    one, other = (nothing(KAry(5, truth)) for truth in (99, 100))
    with pytest.raises(Bug):
        one + other


def test_nothing_is_estimated_from_one_person() -> None:
    oracle = KAry.within(3, ONE)
    with pytest.raises(Refused, match="few"):
        estimate(simulate(oracle, np.array([1]), SeededDice(1)))


@pytest.mark.parametrize(
    "parameters",
    [
        {}, {"kind": "none"}, {"kind": "k-ary"}, {"kind": "k-ary", "size": 3},
        {"kind": "k-ary", "size": 3, "truth": 5, "m": 1}, {"kind": "k-ary", "size": 3, "truth": 0},
        {"kind": "k-ary", "size": "3", "truth": 5}, {"kind": "k-ary", "size": True, "truth": 5},
        {"kind": ["k-ary"], "size": 3, "truth": 5}, {"kind": "k-ary", "size": 3.0, "truth": 5},
        {"kind": "projective", "size": 3, "prime": 10**40, "dimension": 3, "truth": 5},
        {"kind": "split", "questions": []}, {"kind": "split", "questions": [1]},
        {"kind": "split"}, {"kind": "split", "questions": {"kind": "k-ary"}},
        {"kind": "split", "questions": [{"kind": "k-ary", "size": 0, "truth": 5}]},
    ],
    ids=str,
)  # fmt: skip
def test_parameters_of_nothing_are_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(Refused, match="do not describe a randomiser"):
        randomiser_of(parameters)
    with pytest.raises(Refused, match="do not describe a randomiser"):
        oracle_of(parameters)


def test_ballots_in_ballots_without_end_are_refused() -> None:
    deep: dict[str, object] = {"kind": "k-ary", "size": 3, "truth": 5}
    for _ in range(2000):
        deep = {"kind": "split", "questions": [deep]}
    with pytest.raises(Refused, match="do not describe a randomiser"):
        randomiser_of(deep)


SURVEYS = 20_000
COVERED: tuple[Oracle, ...] = (
    Binary.within(ONE), KAry.within(3, ONE), KAry.within(4, Fraction(3)), Hadamard.within(4, ONE),
    Subset.within(5, ONE), Hashing.within(4, ONE), Projective.within(6, ONE), Unary.within(3, ONE),
    PermanentResponse.within(3, ever=Fraction(3), wave=ONE),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("people", [60, 2400])
@pytest.mark.parametrize("oracle", COVERED, ids=named)
def test_intervals_hold_in_twenty_thousand_surveys(oracle: Oracle, people: int) -> None:
    """Between 94.2 and 95.8 % where all is seen often; nowhere below 94.2 %."""
    shares = shares_of(oracle.size)
    seen = supports_of(oracle, shares, people)
    back = float(oracle.p_minus_q)
    for answer, share in enumerate(shares):
        low, high = intervals(seen[:, answer], people)
        ends = ((end - oracle.q[answer]) / back for end in (low, high))
        least, most = ends
        held = float(((least <= share) & (share <= most)).mean())
        assert held >= 0.942, (answer, held)
        expected = people * observed(oracle, shares)[answer]
        if min(expected, people - expected) > 1.25 * OFTEN:
            assert held <= 0.958, (answer, held)


def supports_of(oracle: Oracle, shares: NDArray[np.float64], people: int) -> Integers:
    """The supports of every answer in twenty thousand surveys, a row for each survey."""
    dice, rows = SeededDice(9), []
    each = max(1, 1_000_000 // people)
    for start in range(0, SURVEYS, each):
        count = min(each, SURVEYS - start)
        values = people_of(shares, people * count, 100 + start)
        if isinstance(oracle, PermanentResponse):
            values = randomise(oracle.permanent, values, dice)[:, 0].astype(np.int64)
        reports = randomise(oracle, values, dice)
        for some in reports.reshape(count, people, oracle.width):
            rows.append(oracle.supports(oracle.counts(some)))
    return np.array(rows)


@pytest.mark.parametrize("people", [30, 300, 2000, 10_000])
def test_intervals_hold_by_the_chances_of_every_count(people: int) -> None:
    """Adds up exact chances; where both sides are seen often enough, to both ends of the band."""
    seen = np.arange(people + 1)
    low, high = intervals(seen, people)
    for chance in np.linspace(0.001, 0.999, 400):
        masses = stats.binom.pmf(seen, people, chance)
        held = float(masses[(low <= chance) & (chance <= high)].sum())
        assert held >= 0.942, (chance, held)
        if people * min(chance, 1 - chance) > 1.25 * OFTEN:
            assert held <= 0.958, (chance, held)


def test_wilson_alone_would_fall_short_where_few_are_seen() -> None:
    from sfumato.dp.local.proportion_intervals import wilson

    people, chance = 300, 0.0005
    seen = np.arange(people + 1)
    low, high = wilson(seen / people, people, 0.95)
    masses = stats.binom.pmf(seen, people, chance)
    assert float(masses[(low <= chance) & (chance <= high)].sum()) < 0.942


@pytest.mark.parametrize(("seen", "people"), [(0, 5), (5, 5), (1, 40), (399, 5000), (37, 50)])
def test_the_exact_interval_is_that_of_scipy(seen: int, people: int) -> None:
    theirs = stats.binomtest(seen, people).proportion_ci(0.95, method="exact")
    assert exact(seen, people, 0.95) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_no_interval_is_without_a_width() -> None:
    """Counts that chance has taken beyond what any shares would make."""
    coin = KAry.within(2, Fraction(1))
    for people in (50, 5_000):
        found = estimate(Tally(coin, people, np.array([people, 0])), 0.95)
        assert found.shares[0] > 1
        assert (found.low < found.high).all()
        assert found.high[0] == 1.0
        assert found.low[1] == 0.0
