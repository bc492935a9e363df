"""Budgets are read strictly, kept exactly, and rounded against ourselves."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.budget import (
    MAX_DELTA,
    MAX_EPSILON,
    MIN_DELTA,
    MIN_EPSILON,
    Budget,
    decimal_of,
    read_delta,
    read_epsilon,
    read_number,
    read_positive,
    units_down,
    units_up,
)
from sfumato.dp.refusal import Refused

SEEDED: Final = settings(derandomize=True, deadline=None, max_examples=300)
UNITS: Final = (10**9, 10**12, 10**18)


class Two(IntEnum):
    """A whole number in disguise."""

    TWO = 2


class LyingFloat(float):
    """A float that would have itself read as another."""

    def __repr__(self) -> str:
        return "0.000001"


NO_NUMBERS: Final[tuple[object, ...]] = (
    None,
    True,
    False,
    "0.3",
    "",
    "nan",
    b"0.3",
    bytearray(b"1"),
    0.3 + 0j,
    1j,
    [0.3],
    (0.3,),
    {0.3},
    {"epsilon": 0.3},
    object(),
    float,
    Ellipsis,
    NotImplemented,
    range(3),
    lambda: 0.3,
    Budget(Fraction(1), Fraction(0)),
    np.int64(1),
    np.uint8(1),
    np.bool_(True),
    np.float32(0.5),
    np.float16(0.5),
    np.complex128(0.5),
    np.array(0.5),
    np.array([0.5]),
    np.datetime64("2026-11-21"),
    np.str_("0.5"),
)
NOT_FINITE: Final[tuple[object, ...]] = (
    float("nan"),
    float("-nan"),
    float("inf"),
    float("-inf"),
    Decimal("NaN"),
    Decimal("-NaN"),
    Decimal("sNaN"),
    Decimal("NaN123"),
    Decimal("Infinity"),
    Decimal("-Infinity"),
    np.float64("nan"),
    np.float64("inf"),
    np.float64("-inf"),
)
TOO_MANY_DIGITS: Final[tuple[object, ...]] = (
    10**60,
    -(10**60),
    2**128,
    2**200_000,
    5e-324,
    1e-320,
    -1e-320,
    1e-31,
    1e300,
    1.7976931348623157e308,
    2.2250738585072014e-308,
    Decimal("1e-31"),
    Decimal("1e31"),
    Decimal("0e-31"),
    Decimal("1e-999999"),
    Decimal("1e999999"),
    Decimal("0." + "3" * 31),
    Decimal("0." + "1" * 5000),
    Decimal("1" * 31),
    Fraction(1, 10**90),
    Fraction(10**90, 3),
    Fraction(10**5000 + 1, 10**5000),
)
TOO_FAR: Final[tuple[object, ...]] = (
    -1,
    -0.3,
    -1e-6,
    9.99e-7,
    1e-7,
    1e-12,
    1e-30,
    1000.0000001,
    1001,
    10**9,
    1e22,
    Decimal("-0.3"),
    Decimal("0.0000009999"),
    Decimal("1000.00000000000000001"),
    Decimal("1e30"),
    Fraction(-1, 3),
    Fraction(1, 1_000_001),
    Fraction(1_000_000_001, 1_000_000),
    np.float64(-0.3),
    np.float64(1e6),
)
ZEROS: Final[tuple[object, ...]] = (
    0,
    0.0,
    -0.0,
    Decimal(0),
    Decimal("-0.00"),
    Decimal("0e5"),
    Fraction(0),
    np.float64(0),
)
READ_EXACTLY: Final[tuple[tuple[object, Fraction], ...]] = (
    (0.3, Fraction(3, 10)),
    (0.1 + 0.2, Fraction(30000000000000004, 10**17)),
    (1e-6, MIN_EPSILON),
    (1e-05, Fraction(1, 10**5)),
    (1000, MAX_EPSILON),
    (1000.0, MAX_EPSILON),
    (1, Fraction(1)),
    (Two.TWO, Fraction(2)),
    (0.7, Fraction(7, 10)),
    (123.456, Fraction(123456, 1000)),
    (Decimal("0.3"), Fraction(3, 10)),
    (Decimal("1E-6"), MIN_EPSILON),
    (Decimal("1e2"), Fraction(100)),
    (Decimal("0.123456789012345678901234567890"), Fraction(12345678901234567890123456789, 10**29)),
    (Fraction(1, 3), Fraction(1, 3)),
    (Fraction(2, 1), Fraction(2)),
    (np.float64(0.3), Fraction(3, 10)),
    (np.float64(1e-6), MIN_EPSILON),
    (LyingFloat(0.3), Fraction(3, 10)),
)
DELTAS_TOO_FAR: Final[tuple[object, ...]] = (
    -1e-6,
    1e-16,
    9.99e-16,
    0.1000001,
    0.5,
    1,
    2,
    -0.1,
    Decimal("1e-30"),
    Decimal("-1e-15"),
    Fraction(1, 10**15 + 1),
    Fraction(1, 9),
)
TYPED: Final[tuple[tuple[str, Decimal], ...]] = (
    ("0.3", Decimal("0.3")),
    ("1e-6", Decimal("0.000001")),
    ("1E-6", Decimal("0.000001")),
    (" 1", Decimal(1)),
    ("1 ", Decimal(1)),
    ("\t0.5\n", Decimal("0.5")),
    ("+2", Decimal(2)),
    ("-0.3", Decimal("-0.3")),
    (".5", Decimal("0.5")),
    ("5.", Decimal(5)),
    ("007", Decimal(7)),
    ("0", Decimal(0)),
    ("9" * 60, Decimal("9" * 60)),
)
NOT_TYPED: Final[tuple[str, ...]] = (
    "",
    " ",
    "\n",
    "nan",
    "NaN",
    "sNaN",
    "-nan",
    "inf",
    "-inf",
    "+inf",
    "Infinity",
    "infinity",
    "0x10",
    "0b1",
    "0o7",
    "1_000",
    "1,000",
    "1,5",
    "1'000",
    "½",
    "٣",
    "１",
    "0．3",
    "²",
    "Ⅳ",
    "−1",
    "1e",
    "e5",
    "E",
    ".",
    "+",
    "-",
    "--1",
    "+-1",
    "1.2.3",
    "1e1.5",
    "1e--5",
    "1 2",
    "1\x000",
    "0.3\u200b",
    "1/3",
    "1j",
    "0.3f",
    "10%",
    "$1",
    "one",
    "None",
    "True",
    "(1)",
    "1e9999999999999999999",
    "9" * 61,
    "0." + "0" * 5000 + "1",
)


def kind_of(value: object) -> str:
    return type(value).__name__  # a test's id; some of these numbers are too long to print


def code_of(refused: pytest.ExceptionInfo[Refused]) -> str:
    return refused.value.code


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, *NOT_FINITE, *TOO_MANY_DIGITS, *TOO_FAR, *ZEROS], ids=kind_of
)
def test_what_is_not_an_epsilon_within_reach_is_refused(value: object) -> None:
    with pytest.raises(Refused) as refused:
        read_epsilon(value)
    assert code_of(refused) == "bad-budget"


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, *NOT_FINITE, *TOO_MANY_DIGITS, *DELTAS_TOO_FAR], ids=kind_of
)
def test_what_is_not_a_delta_within_reach_is_refused(value: object) -> None:
    with pytest.raises(Refused) as refused:
        read_delta(value)
    assert code_of(refused) == "bad-budget"
    assert refused.value.next_step == "Give delta as a plain number such as 1e-6."


@pytest.mark.parametrize("value", [*NO_NUMBERS, *NOT_FINITE, *TOO_MANY_DIGITS], ids=kind_of)
def test_what_is_no_number_is_no_bound_either(value: object) -> None:
    with pytest.raises(Refused) as refused:
        read_number(value, "lower")
    assert code_of(refused) == "bad-budget"


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, *NOT_FINITE, *TOO_MANY_DIGITS, *ZEROS, -1, -1e-9], ids=kind_of
)
def test_what_is_not_above_zero_is_no_size(value: object) -> None:
    with pytest.raises(Refused) as refused:
        read_positive(value, "error")
    assert code_of(refused) == "bad-budget"


@pytest.mark.parametrize("value", NOT_FINITE, ids=kind_of)
def test_a_number_that_is_not_finite_is_refused_as_that(value: object) -> None:
    with pytest.raises(Refused, match="must be finite"):
        read_epsilon(value)


def test_at_least_a_hundred_made_up_values_are_refused() -> None:
    assert len({*map(id, (*NO_NUMBERS, *NOT_FINITE, *TOO_MANY_DIGITS, *TOO_FAR))}) + len(ZEROS) > 90
    assert len((*NO_NUMBERS, *NOT_FINITE, *TOO_MANY_DIGITS, *TOO_FAR, *ZEROS, *NOT_TYPED)) > 140


@pytest.mark.parametrize(("value", "exact"), READ_EXACTLY)
def test_a_number_is_read_as_it_was_typed(value: object, exact: Fraction) -> None:
    assert read_epsilon(value) == exact
    assert type(read_epsilon(value)) is Fraction


@pytest.mark.parametrize("value", ZEROS)
def test_zero_is_a_delta(value: object) -> None:
    assert read_delta(value) == 0


@pytest.mark.parametrize("value", [1e-15, Decimal("1e-15"), MIN_DELTA, 0.1, MAX_DELTA, 1e-6])
def test_deltas_at_the_edges_are_read(value: object) -> None:
    assert MIN_DELTA <= read_delta(value) <= MAX_DELTA


def test_a_bound_may_be_negative() -> None:
    assert read_number(-40.5, "lower") == Fraction(-81, 2)


@SEEDED
@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_float_is_read_as_another_number_than_it_prints(value: float) -> None:
    try:
        read = read_number(value, "lower")
    except Refused:
        return
    assert read == Fraction(repr(value))


@SEEDED
@given(
    st.one_of(st.floats(), st.integers(), st.fractions(), st.decimals(), st.text(), st.booleans())
)
def test_whatever_is_accepted_lies_within_the_spec_and_reads_the_same_again(value: object) -> None:
    try:
        read = read_epsilon(value)
    except Refused:
        return
    assert MIN_EPSILON <= read <= MAX_EPSILON
    assert read_epsilon(read) == read


@SEEDED
@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_whatever_was_read_once_can_be_read_again(value: Decimal) -> None:
    try:
        read = read_number(value, "upper")
    except Refused:
        return
    assert read_number(read, "upper") == read


def test_a_refusal_never_repeats_the_value() -> None:
    with pytest.raises(Refused) as refused:
        read_epsilon("secret-77")
    assert "secret" not in str(refused.value)


@SEEDED
@given(st.fractions(min_value=0, max_value=1000), st.sampled_from(UNITS))
def test_a_debt_is_never_less_than_is_owed_nor_a_unit_more(amount: Fraction, unit: int) -> None:
    units = units_up(amount, unit)
    assert Fraction(units - 1, unit) < amount <= Fraction(units, unit)


@SEEDED
@given(st.fractions(min_value=0, max_value=1000), st.sampled_from(UNITS))
def test_a_cap_is_never_more_than_was_signed_nor_a_unit_less(amount: Fraction, unit: int) -> None:
    units = units_down(amount, unit)
    assert Fraction(units, unit) <= amount < Fraction(units + 1, unit)


@pytest.mark.parametrize("unit", UNITS)
def test_a_whole_number_of_units_is_kept(unit: int) -> None:
    amount = Fraction(7, unit)
    assert units_up(amount, unit) == units_down(amount, unit) == 7


def test_the_least_debt_is_one_unit() -> None:
    assert units_up(Fraction(1, 10**30), 10**9) == 1


@pytest.mark.parametrize(("text", "number"), TYPED)
def test_a_plain_number_on_the_command_line_is_read(text: str, number: Decimal) -> None:
    assert decimal_of(text, "epsilon") == number


@pytest.mark.parametrize("text", NOT_TYPED)
def test_a_text_that_is_no_plain_number_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        decimal_of(text, "epsilon")
    assert code_of(refused) == "bad-budget"


@SEEDED
@given(st.text(alphabet="0123456789.eE+-_ n½٣x", max_size=70))
def test_every_text_is_a_finite_number_or_refused(text: str) -> None:
    try:
        number = decimal_of(text, "epsilon")
    except Refused:
        return
    assert number.is_finite()


def test_a_budget_prints_as_numbers_for_people() -> None:
    budget = Budget(Fraction(3, 10), Fraction(1, 10**6))
    assert budget.as_json() == {"epsilon": 0.3, "delta": 1e-6}
