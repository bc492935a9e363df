"""The Laplace mechanism for any query: right noise at every size, and no digit of the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.dp.budget import read_number
from sfumato.dp.refusal import Refused
from sfumato.lab import (
    empirical_laplacian_mechanism,
    empirical_sensitivity,
    laplacian_mechanism,
)
from sfumato.lab.audit import audit
from sfumato.lab.laplace_of_any_query import FINENESS, Grid
from sfumato.lab.platform_noise import private_sums, private_vectors

ALARM = 1e-4
AGES = [31.5, 44.25, 58.0, 1.65, 70.125]


def seeded(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def mean(values: Any) -> Any:  # Any: of whatever kind the values are
    return np.mean(values)


# --- whole-number noise refuses fractions --------------------------------------------------------


def test_whole_number_noise_gives_no_fraction_back_as_it_is() -> None:
    """It gave 0.123 and 0.456 back exactly, at a sensitivity of 0.01."""
    fractions: Any = np.array([0.123, 0.456])
    for sensitivity in (0.01, 1):
        with pytest.raises(Refused) as refused:
            private_sums(fractions, sensitivity=sensitivity, epsilon=1.0, dice=seeded())  # type: ignore[arg-type]  # on purpose
        assert "laplacian_mechanism" in refused.value.next_step
        with pytest.raises(Refused):
            private_vectors(
                fractions,
                sensitivity_squared=sensitivity,  # type: ignore[arg-type]  # on purpose
                epsilon=1.0,
                dice=seeded(),
            )


def test_whole_sums_with_a_sensitivity_below_one_are_refused() -> None:
    """Their noise would be none: scale 0.01 on whole numbers is 0 in all but one of 10**43."""
    for sensitivity in (0.01, 1.5, 0, -1, math.nan, math.inf):
        with pytest.raises(Refused):
            private_sums(np.array([5]), sensitivity=sensitivity, epsilon=1.0, dice=seeded())  # type: ignore[arg-type]  # on purpose


def test_no_epsilon_is_rounded_up_or_to_nothing() -> None:
    """1e-7 was rounded to 0, and ended in a division by it."""
    with pytest.raises(Refused):
        private_sums(np.array([5]), sensitivity=1, epsilon=1e-7, dice=seeded())


# --- the noise is right, far below 1 and far above -----------------------------------------------

SIZES = (1e-9, 0.01, 1.0, 3.7, 1e6, 1e12)


@pytest.mark.parametrize(
    ("sensitivity", "epsilon"), [*zip(SIZES, [0.1, 1.0, 20.0] * 2, strict=True), (1.0, 1.0)]
)
def test_the_noise_is_laplace_of_sensitivity_over_epsilon(
    sensitivity: float, epsilon: float
) -> None:
    truth, dice = 0.3 * sensitivity, seeded(int(epsilon * 10))
    noise = np.array([
        laplacian_mechanism(truth, float, sensitivity, epsilon=epsilon, dice=dice) - truth
        for _ in range(4000)
    ])  # fmt: skip
    assert len(np.unique(noise)) > 1000

    scale = sensitivity / epsilon
    assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > ALARM

    def deviations(factor: float) -> float:
        """By how many standard errors the mean size is off, were the scale so many times this."""
        return float(abs(np.abs(noise).mean() / (factor * scale) - 1) * math.sqrt(len(noise)))

    assert deviations(1.0) < 3.9
    assert min(deviations(0.9), deviations(1.1)) > 3.9


@pytest.mark.parametrize("sensitivity", [1, 3, 10**6])
def test_whole_numbers_get_whole_noise_of_the_same_width(sensitivity: int) -> None:
    found = laplacian_mechanism(
        np.full(20_000, 7), lambda db: db, sensitivity, epsilon=0.5, dice=seeded()
    )
    assert found.dtype == np.int64
    width = float(np.abs(found - 7).mean())
    a = math.exp(-0.5 / sensitivity)
    assert abs(width / (2 * a / (1 - a * a)) - 1) < 0.03


def test_the_noise_of_each_number_of_a_result_is_its_own() -> None:
    found = laplacian_mechanism(np.zeros(20_000), lambda db: db, 0.5, epsilon=1, dice=seeded())
    assert abs(float(np.abs(found).mean()) / 0.5 - 1) < 0.03
    assert abs(float(np.corrcoef(found[::2], found[1::2])[0, 1])) < 0.04


def test_two_releases_without_dice_differ() -> None:
    once, again = (laplacian_mechanism(AGES, mean, 0.1, epsilon=1) for _ in range(2))
    assert once != again


# --- no digit shows through ----------------------------------------------------------------------


@given(
    st.sampled_from(sorted(FINENESS)),
    st.floats(1e-9, 1e9),
    st.lists(st.floats(-1, 1), min_size=1, max_size=5),
    st.lists(st.floats(-1, 1), min_size=5, max_size=5),
    st.floats(-1, 1),
)
def test_one_person_moves_the_places_no_further_than_is_said(
    digits: int, distance: float, at: list[float], moves: list[float], off: float
) -> None:
    """Also where both computed results are off by all that the proof allows for."""
    numbers = len(at)
    grid = Grid.of(Fraction(distance), numbers, digits)
    share = sum(abs(one) for one in moves[:numbers]) or 1.0
    step = math.ldexp(1.0, grid.exponent)
    first = [Fraction(one * 1000 * distance) for one in at]
    second = [
        one + Fraction(distance) * Fraction(move) / Fraction(share) * Fraction(1 - 1e-12)
        for one, move in zip(first, moves, strict=False)
    ]
    wrong = Fraction(off) * Fraction(step) / 2
    one = grid.places_of(np.array([float(value + wrong) for value in first]))
    other = grid.places_of(np.array([float(value - wrong) for value in second]))
    assert int(np.abs(one - other).sum()) <= grid.sensitivity


def test_the_worst_that_rounding_can_do_is_paid() -> None:
    """Both results half a step off, and both on the edge between two places."""
    grid = Grid.of(Fraction(1), 1, 53)
    step = math.ldexp(1.0, grid.exponent)
    low, high = grid.places_of(np.array([0.5 * step, 1 + 1.5 * step])).tolist()
    assert high - low == grid.sensitivity == 2**16 + 2


def test_what_can_be_released_does_not_depend_on_the_truth() -> None:
    """Every output is a multiple of one step, which the sensitivity fixes."""
    step = math.ldexp(1.0, Grid.of(Fraction(0.01), 1, 53).exponent)
    for truth in (0.0, 0.1, 0.3, 1 / 3, 1e-12, 123.456):
        for _ in range(50):
            found = laplacian_mechanism(truth, float, 0.01, epsilon=1)
            assert found / step == round(found / step)


@pytest.mark.parametrize("pair", [(0.0, 1.0), (0.1, 0.3), (0.0, 0.01)])
def test_no_bit_of_a_float_tells_neighbours_apart(pair: tuple[float, float]) -> None:
    distance = pair[1] - pair[0]

    def ours(data: float, dice: np.random.Generator) -> float:
        found: float = laplacian_mechanism(data, float, distance, epsilon=1, dice=dice)
        return found

    def naive(data: float, dice: np.random.Generator) -> float:
        return data + float(dice.laplace(0, distance))

    terms: dict[str, Any] = {"epsilon": 1.0, "most": 8192, "alpha": 1e-3}
    assert not audit(ours, *pair, dice=seeded(2), **terms).is_violated
    if pair[0] == 0:  # from 0 all bits are the noise's own; else float noise needs a search
        assert audit(naive, *pair, dice=seeded(3), **terms).is_violated


def test_half_of_the_noise_is_accused() -> None:
    def half(data: float, dice: np.random.Generator) -> float:
        found: float = laplacian_mechanism(data, float, 0.01, epsilon=2, dice=dice)
        return found

    assert audit(half, 0.0, 0.01, epsilon=1, dice=seeded(4), most=32_768).is_violated


def test_last_digits_that_would_move_further_are_refused() -> None:
    """A sum of 10**16 in float64 moves by 2 or not at all, whatever one person adds."""
    with pytest.raises(Refused) as refused:
        laplacian_mechanism(1e16, float, 0.01, epsilon=1)
    assert refused.value.code == "numbers-too-large"
    many = np.full(200_000, 1 / 3, np.float32)
    with pytest.raises(Refused):
        laplacian_mechanism(many, lambda db: db.sum(), 1 / 3, epsilon=1)
    found = laplacian_mechanism(many.astype(float), lambda db: db.sum(), 1 / 3, epsilon=1)
    assert abs(found - 200_000 / 3) < 10


def test_frames_of_short_floats_have_no_more_digits_for_being_plain_numbers() -> None:
    """At 100,000 the sums of a float32 column move by 1.6 times what one person adds, or by 0."""
    rows = np.full(1000, 0.01, np.float32)
    for db in (pd.DataFrame({"x": rows}), pl.DataFrame({"x": rows})):
        with pytest.raises(Refused) as refused:
            laplacian_mechanism(
                db,
                lambda db: float(np.float32(100_000) + np.float32(db["x"].sum())),
                0.01,
                epsilon=1,
            )
        assert refused.value.code == "numbers-too-large"
    for db in (pd.Series(rows), pl.Series(rows)):
        with pytest.raises(Refused):
            laplacian_mechanism(db, lambda db: 100_000 + float(db.sum()), 0.01, epsilon=1)


# --- every kind of table and result --------------------------------------------------------------

QUERIES: list[tuple[object, Callable[[Any], Any], type]] = [
    (AGES, mean, float),
    ([{"age": age} for age in AGES], lambda rows: sum(row["age"] for row in rows), float),
    ([{"age": age} for age in AGES], len, int),
    (AGES, lambda db: Fraction(1, 3), float),
    (AGES, lambda db: Decimal("0.25"), float),
    (np.array(AGES), lambda db: db.mean(), float),
    (np.array(AGES, np.float32), lambda db: db.mean(), float),
    (np.array(AGES), lambda db: np.histogram(db, [0, 50, 100])[0], np.ndarray),
    (np.array(AGES), lambda db: [db.mean(), db.sum()], np.ndarray),
    (pd.DataFrame({"age": AGES}), lambda db: db["age"].mean(), float),
    (pd.DataFrame({"age": AGES, "sick": [0, 1, 0, 1, 0]}), lambda db: db.mean(), pd.Series),
    (pl.DataFrame({"age": AGES}), lambda db: db["age"].mean(), float),
]


@pytest.mark.parametrize(("db", "query", "kind"), QUERIES)
def test_a_query_gets_its_own_kind_back(db: Any, query: Callable[[Any], Any], kind: type) -> None:
    found: Any = laplacian_mechanism(db, query, 1, epsilon=10**3, dice=seeded())
    assert type(found) is kind
    truth = query(db)
    assert np.allclose(np.asarray(found, float), np.asarray(truth, float), atol=0.05)


WRONG: list[Callable[[Any], Any]] = [
    lambda _db: "text",
    lambda _db: math.nan,
    lambda _db: np.array([1.0, math.inf]),
    lambda _db: [],
    lambda _db: [[1], [2, 3]],
    lambda _db: None,
    lambda _db: {"a": 1},
    lambda _db: 1j,
    lambda _db: 10**30,
    lambda _db: np.uint64(2**63),
    lambda _db: np.float16(2),
    lambda _db: np.ma.masked_array([1.0, 2.0], [True, False]),
    lambda db: db["age"].astype(str),
    lambda db: db["age"].value_counts(),
    lambda db: db.groupby("age").size(),
    lambda db: db[db["age"] > 40],
]


@pytest.mark.parametrize("query", WRONG)
def test_what_no_noise_covers_is_refused(query: Callable[[Any], Any]) -> None:
    with pytest.raises(Refused):
        laplacian_mechanism(pd.DataFrame({"age": AGES}), query, 1, epsilon=1)


@pytest.mark.parametrize("sensitivity", [0, -1, math.nan, math.inf, "1", None, 1e300])
def test_no_such_sensitivity(sensitivity: Any) -> None:
    with pytest.raises(Refused):
        laplacian_mechanism(AGES, mean, sensitivity, epsilon=1)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, None, True, 10**4])
def test_no_such_epsilon(epsilon: Any) -> None:
    with pytest.raises(Refused):
        laplacian_mechanism(AGES, mean, 1, epsilon=epsilon)


# --- a measured sensitivity ----------------------------------------------------------------------


def test_a_measured_sensitivity_is_no_sensitivity_of_the_mechanism() -> None:
    measured: Any = empirical_sensitivity(mean, AGES)
    with pytest.raises(Refused) as refused:
        laplacian_mechanism(AGES, mean, measured, epsilon=1)
    assert "lower bound" in refused.value.cause
    with pytest.raises(Refused):
        read_number(measured, "upper")  # nor a bound of a card


def test_noise_by_a_measured_sensitivity_says_that_it_is_none() -> None:
    found = empirical_laplacian_mechanism(AGES, mean, epsilon=1, data="synthetic", dice=seeded())
    assert found.guarantee.startswith("none")
    assert found.sensitivity.largest == empirical_sensitivity(mean, AGES).largest
    for words in ("lower bound", "not differentially private", "at least"):
        assert words in found.guarantee + found.finding
    assert abs(found.value - np.mean(AGES)) < 20 * found.sensitivity.largest


def test_a_sensitivity_is_measured_on_public_or_synthetic_data_only() -> None:
    for data in ("private", "", None):
        with pytest.raises(Refused):
            empirical_laplacian_mechanism(AGES, mean, epsilon=1, data=data)  # type: ignore[arg-type]  # on purpose


def test_a_query_that_nobody_moved_gets_no_measured_noise() -> None:
    """It would be none at all, and the truth would go out."""
    with pytest.raises(Refused):
        empirical_laplacian_mechanism(AGES, lambda db: len(db) > 1, epsilon=1, data="public")
