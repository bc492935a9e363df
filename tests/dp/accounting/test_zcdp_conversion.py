"""Conversions between rho, epsilon and delta never err in our own favour."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.accounting.privacy_events import ApproximateEvent, GaussianEvent, PureEvent
from sfumato.dp.accounting.zcdp_conversion import (
    delta_at,
    epsilon_at,
    rho_within,
)
from sfumato.dp.budget import Budget
from sfumato.dp.refusal import Bug
from support.ledger_totals import plain_total, zcdp_epsilon

SEEDED: Final = settings(derandomize=True, deadline=None, max_examples=150)
STEP: Final = Fraction(1, 10**12)
MILLIONTH: Final = Fraction(1, 10**6)
CLOSE: Final = Fraction(1, 10**6)  # how far from the truth a conversion may be
PURE: Final = PureEvent(Fraction(3, 10))
GAUSSIAN: Final = GaussianEvent(Fraction(1, 50), Fraction(1), MILLIONTH)
APPROXIMATE: Final = ApproximateEvent(Fraction(1, 10), Fraction(1, 10**9))

epsilons = st.floats(-6, 3).map(lambda power: Fraction(10**power).limit_denominator(10**9))
deltas = st.floats(-15, -1).map(lambda power: Fraction(10**power))
rhos = st.floats(-9, 2).map(lambda power: Fraction(10**power))


def log_delta(alpha: Decimal, rho: Fraction, epsilon: Fraction) -> Decimal:
    """The bound as the paper has it (Canonne, Kamath and Steinke 2020), not as the code does."""
    r = Decimal(rho.numerator) / Decimal(rho.denominator)
    e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
    return (alpha - 1) * (alpha * r - e) - (alpha - 1).ln() + alpha * (1 - 1 / alpha).ln()


def least_log_delta(rho: Fraction, epsilon: Fraction) -> Decimal:
    """The least over alpha, by golden section over ln(alpha - 1): it has one valley."""
    with localcontext() as context:
        context.prec = 60

        def height(u: Decimal) -> Decimal:
            return log_delta(1 + u.exp(), rho, epsilon)

        golden = (Decimal(5).sqrt() - 1) / 2
        low, high = Decimal(-40), Decimal(40)
        for _ in range(100):
            left, right = high - golden * (high - low), low + golden * (high - low)
            low, high = (low, right) if height(left) < height(right) else (left, high)
        return height((low + high) / 2)


def ln(number: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return (Decimal(number.numerator) / Decimal(number.denominator)).ln()


@pytest.mark.parametrize(
    ("rho", "epsilon", "alpha"),
    [("0.02", "1", "2"), ("0.02", "1", "24.5"), ("1", "3", "1.01"), ("0.5", "0", "4")],
)
def test_no_order_gives_a_smaller_delta_than_the_one_returned_by_more_than_rounding(
    rho: str, epsilon: str, alpha: str
) -> None:
    bound = log_delta(Decimal(alpha), Fraction(rho), Fraction(epsilon))
    assert math.log(delta_at(Fraction(rho), Fraction(epsilon))) <= float(bound) + 1e-12


@settings(SEEDED, max_examples=60)
@given(rhos, epsilons)
def test_delta_is_the_least_over_all_orders_rounded_up(rho: Fraction, epsilon: Fraction) -> None:
    least = min(max(least_log_delta(rho, epsilon), Decimal(-230)), Decimal(0))  # at most 1
    found = ln(delta_at(rho, epsilon))
    assert least <= found + Decimal("1e-18")
    assert found <= least + Decimal("1e-6")


@SEEDED
@given(epsilons, deltas)
def test_a_rho_within_a_budget_keeps_its_promise(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_within(epsilon, delta)
    assert delta_at(rho, epsilon) <= delta


@settings(SEEDED, max_examples=60)
@given(epsilons, deltas)
def test_the_promise_holds_by_the_paper_too(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_within(epsilon, delta)
    assert rho == 0 or least_log_delta(rho, epsilon) <= ln(delta)


@settings(SEEDED, max_examples=60)
@given(epsilons, deltas)
def test_a_millionth_more_rho_would_break_the_promise(epsilon: Fraction, delta: Fraction) -> None:
    more = rho_within(epsilon, delta) * (1 + CLOSE) + STEP
    assert least_log_delta(more, epsilon) > ln(delta)


@SEEDED
@given(epsilons, deltas)
def test_rho_is_a_whole_number_of_steps(epsilon: Fraction, delta: Fraction) -> None:
    rho = rho_within(epsilon, delta)
    assert rho >= 0
    assert (rho / STEP).denominator == 1


@SEEDED
@given(rhos, deltas)
def test_an_epsilon_at_a_delta_keeps_its_promise(rho: Fraction, delta: Fraction) -> None:
    assert delta_at(rho, epsilon_at(rho, delta)) <= delta


@settings(SEEDED, max_examples=60)
@given(rhos, deltas)
def test_a_millionth_less_epsilon_would_break_the_promise(rho: Fraction, delta: Fraction) -> None:
    epsilon = epsilon_at(rho, delta)
    less = epsilon * (1 - CLOSE) - STEP
    assert less < 0 or least_log_delta(rho, less) > ln(delta)


@SEEDED
@given(epsilons, epsilons, deltas)
def test_a_larger_epsilon_never_has_a_smaller_rho(
    one: Fraction, other: Fraction, delta: Fraction
) -> None:
    low, high = sorted((one, other))
    assert rho_within(low, delta) <= rho_within(high, delta) * (1 + CLOSE)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rho"),
    [
        ("1", "1e-6", "0.024355970335"),
        ("0.001", "1e-9", "2.5471e-8"),
        ("10", "1e-10", "0.993891397905"),
        ("1000", "0.1", "912.352594290965"),
        ("0", "0.1", "0.013653378011"),
    ],
)
def test_known_rhos_stay_as_they_are(epsilon: str, delta: str, rho: str) -> None:
    assert rho_within(Fraction(epsilon), Fraction(delta)) == Fraction(rho)


def test_where_nothing_fits_rho_is_zero() -> None:
    assert rho_within(Fraction(1), Fraction(0)) == 0
    assert rho_within(MILLIONTH, Fraction(1, 10**15)) == 0


def test_no_loss_is_no_loss() -> None:
    assert delta_at(Fraction(0), Fraction(0)) == 0
    assert epsilon_at(Fraction(0), MILLIONTH) == 0


def test_a_delta_is_never_above_one_nor_called_zero() -> None:
    assert delta_at(Fraction(10**6), Fraction(1)) == 1
    assert 0 < delta_at(STEP, Fraction(1000)) < Fraction(1, 10**90)


def test_an_epsilon_is_never_negative() -> None:
    assert epsilon_at(STEP, Fraction(1, 10)) == 0


def test_the_caller_s_decimal_context_does_not_matter() -> None:
    rho_within.cache_clear()
    with localcontext() as context:
        context.prec = 3
        found = rho_within(Fraction(1), MILLIONTH)
    assert found == Fraction("0.024355970335")
    assert getcontext().prec > 3


@pytest.mark.parametrize(
    ("rho", "epsilon"), [(Fraction(-1), Fraction(1)), (Fraction(1), Fraction(-1))]
)
def test_a_negative_loss_is_our_own_fault(rho: Fraction, epsilon: Fraction) -> None:
    with pytest.raises(Bug):
        delta_at(rho, epsilon)


@pytest.mark.parametrize("delta", [Fraction(-1), Fraction(0), Fraction(1), Fraction(2)])
def test_a_delta_outside_its_range_is_our_own_fault(delta: Fraction) -> None:
    with pytest.raises(Bug):
        epsilon_at(Fraction(1), delta)
    if delta != 0:
        with pytest.raises(Bug):
            rho_within(Fraction(1), delta)


def test_plain_sums_are_those_of_the_ledger() -> None:
    total = plain_total([PURE, GAUSSIAN, APPROXIMATE])
    assert total == Budget(Fraction(14, 10), MILLIONTH + Fraction(1, 10**9))


def test_many_small_releases_cost_less_by_rho_than_by_sum() -> None:
    batch = [PureEvent(Fraction(1, 10))] * 100
    assert zcdp_epsilon(batch, MILLIONTH) == epsilon_at(Fraction(1, 2), MILLIONTH) < 6


def test_the_releases_own_deltas_leave_less_for_the_conversion() -> None:
    rest = MILLIONTH - 3 * Fraction(1, 10**9)
    assert zcdp_epsilon([APPROXIMATE] * 3, MILLIONTH) == epsilon_at(Fraction(3, 200), rest)
