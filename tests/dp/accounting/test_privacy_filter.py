"""The filter pays only while one of the two tests holds, and says truly what is left."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.accounting.privacy_events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    PrivacyCost,
    PureEvent,
    privacy_cost,
)
from sfumato.dp.accounting.privacy_filter import (
    SPLIT,
    Cap,
    RemainingBudget,
    _pure_debt,
    cap_from_budget,
    fits_under_cap,
    largest_next_epsilon,
    remaining_budget,
)
from sfumato.dp.accounting.zcdp_conversion import delta_at, rho_within
from sfumato.dp.budget import Budget
from sfumato.vault.hash_chain import cap_list
from support.ledger_totals import total_privacy_cost

SEEDED: Final = settings(derandomize=True, deadline=None, max_examples=200)
EPSILON_UNIT: Final = Fraction(1, 10**9)
DELTA_UNIT: Final = Fraction(1, 10**18)
RHO_UNIT: Final = Fraction(1, 10**12)
MILLIONTH: Final = Fraction(1, 10**6)
CARD: Final = Budget(Fraction(2), MILLIONTH)

cap_epsilons = st.floats(-6, 3).map(lambda p: Fraction(10**p).limit_denominator(10**12))
cap_deltas = st.one_of(st.just(Fraction(0)), st.floats(-15, -1).map(lambda p: Fraction(10**p)))
budgets = st.builds(Budget, cap_epsilons, cap_deltas)
losses = st.floats(-4, 0).map(lambda p: Fraction(10**p))
small_deltas = st.floats(-12, -6).map(lambda p: Fraction(10**p))
events = st.one_of(
    st.builds(PureEvent, losses),
    st.builds(GaussianEvent, losses, losses, small_deltas),
    st.builds(ApproximateEvent, losses, small_deltas),
)
sums = st.integers(0, 10**13)
debts = st.builds(PrivacyCost, sums, sums, sums, sums)
caps = st.builds(Cap, sums, sums, sums, sums)


def gaussian(epsilon: Fraction, delta: Fraction) -> GaussianEvent:
    return GaussianEvent(rho_within(epsilon, delta), epsilon, delta)


def kept(cap: Cap, asked: list[Event]) -> list[Event]:
    """Ask one after the other, and return what was accepted."""
    accepted: list[Event] = []
    spent = PrivacyCost()
    for event in asked:
        debt = privacy_cost(event)
        if fits_under_cap(cap, spent, debt):
            accepted.append(event)
            spent = spent + debt
    return accepted


@pytest.mark.parametrize(
    ("debt", "fits"),
    [
        (PrivacyCost(10, 5, 99, 99), True),
        (PrivacyCost(99, 99, 20, 3), True),
        (PrivacyCost(10, 5, 20, 3), True),
        (PrivacyCost(11, 5, 21, 3), False),
        (PrivacyCost(11, 5, 20, 4), False),
        (PrivacyCost(10, 6, 21, 3), False),
        (PrivacyCost(10, 6, 20, 4), False),
    ],
)
def test_one_whole_test_must_hold(debt: PrivacyCost, fits: bool) -> None:
    assert fits_under_cap(Cap(10, 5, 20, 3), PrivacyCost(), debt) is fits
    assert fits_under_cap(Cap(10, 5, 20, 3), debt, PrivacyCost()) is fits


@SEEDED
@given(caps, debts, debts)
def test_the_filter_looks_at_the_new_sums_alone(
    cap: Cap, spent: PrivacyCost, debt: PrivacyCost
) -> None:
    assert fits_under_cap(cap, spent, debt) == fits_under_cap(cap, debt, spent)
    assert fits_under_cap(cap, spent, debt) == fits_under_cap(cap, PrivacyCost(), spent + debt)


@SEEDED
@given(caps, debts, debts)
def test_once_over_both_caps_always_over(cap: Cap, spent: PrivacyCost, debt: PrivacyCost) -> None:
    assert fits_under_cap(cap, spent, PrivacyCost()) or not fits_under_cap(cap, spent, debt)


@SEEDED
@given(budgets, st.lists(events, max_size=30))
def test_whatever_was_accepted_in_turn_stays_within_one_test(
    budget: Budget, asked: list[Event]
) -> None:
    accepted = kept(cap_from_budget(budget), asked)
    epsilon = sum((e.epsilon for e in accepted), Fraction(0))
    delta = sum((e.delta for e in accepted if not isinstance(e, PureEvent)), Fraction(0))
    rho = sum(
        (e.rho if isinstance(e, GaussianEvent) else e.epsilon**2 / 2 for e in accepted), Fraction(0)
    )
    own = sum((e.delta for e in accepted if isinstance(e, ApproximateEvent)), Fraction(0))
    plain = epsilon <= budget.epsilon and delta <= budget.delta / 2
    conversion = delta_at(rho, budget.epsilon)
    concentrated = conversion <= budget.delta / 4 and own <= budget.delta / 4
    assert plain or concentrated


@SEEDED
@given(budgets, st.lists(events, max_size=10), st.randoms(use_true_random=False))
def test_what_fits_together_fits_in_any_order(
    budget: Budget, asked: list[Event], order: Any
) -> None:
    cap = cap_from_budget(budget)
    other = list(asked)
    order.shuffle(other)
    together = fits_under_cap(cap, PrivacyCost(), total_privacy_cost(asked))
    assert fits_under_cap(cap, PrivacyCost(), total_privacy_cost(other)) is together
    assert not together or kept(cap, other) == other


@SEEDED
@given(budgets)
def test_a_cap_never_promises_more_than_the_card(budget: Budget) -> None:
    cap = cap_from_budget(budget)
    assert cap.epsilon * EPSILON_UNIT <= budget.epsilon
    # delta_A for one test, delta_B and delta_C for the other: all three at once
    conversion = delta_at(cap.rho * RHO_UNIT, budget.epsilon)
    assert cap.delta * DELTA_UNIT + conversion + cap.rho_delta * DELTA_UNIT <= budget.delta


@SEEDED
@given(budgets)
def test_a_cap_wastes_no_more_than_rounding(budget: Budget) -> None:
    cap = cap_from_budget(budget)
    assert (cap.epsilon + 1) * EPSILON_UNIT > budget.epsilon
    assert (cap.delta + 1) * DELTA_UNIT > budget.delta / 2
    assert (cap.rho_delta + 1) * DELTA_UNIT > budget.delta / 4
    assert cap.rho * RHO_UNIT == rho_within(budget.epsilon, budget.delta / 4)


@SEEDED
@given(budgets)
def test_the_ledger_can_count_every_cap(budget: Budget) -> None:
    assert cap_list(cap_from_budget(budget))


def test_the_cap_of_a_card_stays_as_it_is() -> None:
    assert cap_from_budget(CARD) == Cap(2 * 10**9, 5 * 10**11, 79_193_343_317, 25 * 10**10)


def test_the_shares_of_delta_are_those_of_their_name() -> None:
    assert SPLIT.name == "half-quarter-quarter/1"
    assert (SPLIT.first_test, SPLIT.conversion, SPLIT.events) == (
        Fraction(1, 2),
        Fraction(1, 4),
        Fraction(1, 4),
    )


def test_a_card_without_delta_takes_pure_releases_up_to_its_epsilon() -> None:
    cap = cap_from_budget(Budget(Fraction(1), Fraction(0)))
    assert cap == Cap(10**9, 0, 0, 0)
    assert kept(cap, [PureEvent(Fraction(1, 10))] * 12) == [PureEvent(Fraction(1, 10))] * 10


@SEEDED
@given(cap_epsilons, events)
def test_a_card_without_delta_never_uses_the_second_test(epsilon: Fraction, event: Event) -> None:
    cap = cap_from_budget(Budget(epsilon, Fraction(0)))
    pure = isinstance(event, PureEvent) and privacy_cost(event).epsilon <= cap.epsilon
    assert fits_under_cap(cap, PrivacyCost(), privacy_cost(event)) is pure


def test_a_gaussian_question_at_the_card_s_whole_delta_fits_the_second_test_alone() -> None:
    cap, debt = cap_from_budget(CARD), privacy_cost(gaussian(Fraction(1), CARD.delta))
    assert debt.delta > cap.delta
    assert debt.rho <= cap.rho
    assert fits_under_cap(cap, PrivacyCost(), debt)


def test_a_gaussian_question_at_the_whole_epsilon_and_delta_fits_neither_test() -> None:
    whole = gaussian(CARD.epsilon, CARD.delta)
    assert not fits_under_cap(cap_from_budget(CARD), PrivacyCost(), privacy_cost(whole))
    a_little_less = gaussian(CARD.epsilon * Fraction(9, 10), CARD.delta)
    assert fits_under_cap(cap_from_budget(CARD), PrivacyCost(), privacy_cost(a_little_less))


def test_many_small_questions_go_further_by_rho() -> None:
    asked: list[Event] = [PureEvent(Fraction(1, 100))] * 2000
    assert len(kept(cap_from_budget(CARD), asked)) == 1583  # 200 by the sum of epsilons


@SEEDED
@given(caps, debts)
def test_the_largest_next_epsilon_is_accepted_and_one_unit_more_is_not(
    cap: Cap, spent: PrivacyCost
) -> None:
    epsilon = largest_next_epsilon(cap, spent)
    assert epsilon == 0 or fits_under_cap(cap, spent, privacy_cost(PureEvent(epsilon)))
    assert not fits_under_cap(cap, spent, privacy_cost(PureEvent(epsilon + EPSILON_UNIT)))


@SEEDED
@given(budgets, st.lists(events, max_size=10))
def test_it_is_so_in_the_course_of_an_account_too(budget: Budget, asked: list[Event]) -> None:
    cap = cap_from_budget(budget)
    spent = total_privacy_cost(kept(cap, asked))
    epsilon = largest_next_epsilon(cap, spent)
    assert epsilon == 0 or fits_under_cap(cap, spent, privacy_cost(PureEvent(epsilon)))
    assert not fits_under_cap(cap, spent, privacy_cost(PureEvent(epsilon + EPSILON_UNIT)))


@pytest.mark.parametrize(
    ("cap", "spent", "epsilon"),
    [
        (Cap(10**9, 0, 0, 0), PrivacyCost(), Fraction(1)),
        (Cap(10**9, 0, 0, 0), PrivacyCost(4 * 10**8, 0, 1, 0), Fraction(6, 10)),
        (Cap(10**9, 0, 2 * 10**12, 0), PrivacyCost(), Fraction(2)),
        (Cap(10**9, 0, 2 * 10**12, 0), PrivacyCost(0, 0, 0, 1), Fraction(1)),
        (Cap(10**9, 0, 2 * 10**12, 0), PrivacyCost(0, 1, 0, 0), Fraction(2)),
        (Cap(10**9, 0, 2 * 10**12, 0), PrivacyCost(0, 1, 0, 1), Fraction(0)),
        (Cap(10**9, 0, 1, 0), PrivacyCost(10**9, 0, 0, 0), Fraction(1414, 10**9)),
        (Cap(10**9, 0, 1, 0), PrivacyCost(10**9, 0, 1, 0), Fraction(0)),
        (Cap(5, 0, 5, 0), PrivacyCost(99, 0, 99, 0), Fraction(0)),
        (Cap(10**9, 0, 0, 0), PrivacyCost(10**9 - 1, 0, 1, 0), Fraction(1, 10**9)),  # the last unit
    ],
)
def test_the_largest_next_epsilon_is_the_better_of_the_two_tests(
    cap: Cap, spent: PrivacyCost, epsilon: Fraction
) -> None:
    assert largest_next_epsilon(cap, spent) == epsilon


def test_what_is_left_is_shown_for_both_tests() -> None:
    rest = remaining_budget(Cap(10, 8, 6, 4), PrivacyCost(1, 2, 3, 4))
    assert rest == RemainingBudget(9, 6, 3, 0, Fraction(math.isqrt(6 * 10**6), 10**9))


@SEEDED
@given(caps, debts)
def test_nothing_that_is_left_is_ever_negative(cap: Cap, spent: PrivacyCost) -> None:
    rest = remaining_budget(cap, spent)
    assert min(rest.epsilon, rest.delta, rest.rho, rest.rho_delta) >= 0
    assert rest.next_epsilon >= 0


def test_a_filter_that_compares_branches_by_their_distributions_would_be_unsafe() -> None:
    """Why PLD is no filter: RR(0.5), then RR(1) or a reveal, chosen by the answer."""
    e, target = math.exp, 1.2

    def delta(first: list[tuple[float, float]]) -> float:
        return sum(max(0.0, p - e(target) * q) for p, q in first)

    def rr(epsilon: float) -> list[tuple[float, float]]:
        yes, no = e(epsilon) / (1 + e(epsilon)), 1 / (1 + e(epsilon))
        return [(yes, no), (no, yes)]

    def after(pairs: list[tuple[float, float]], then: list[tuple[float, float]]) -> float:
        return delta([(p * a, q * b) for p, q in pairs for a, b in then])

    one = rr(0.5)
    allowed = after(one, rr(1.0))
    reveal = next(d / 1000 for d in range(1000, 0, -1) if after(one, shown(d / 1000)) <= allowed)
    whole = after(one[:1], shown(reveal)) + after(one[1:], rr(1.0))
    other = after(one[:1], rr(1.0)) + after(one[1:], shown(reveal))
    assert max(whole, other) > 1.1 * allowed


def shown(chance: float) -> list[tuple[float, float]]:
    """Reveal everything with that chance, nothing otherwise."""
    return [(chance, 0.0), (0.0, chance), (1 - chance, 1 - chance)]


@SEEDED
@given(st.integers(1, 10**13))
def test_a_debt_in_whole_numbers_is_the_debt_of_the_event(units: int) -> None:
    assert _pure_debt(units) == privacy_cost(PureEvent(units * EPSILON_UNIT))
