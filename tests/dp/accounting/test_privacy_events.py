"""What releases cost under both tests, in whole units that are never too few."""

from __future__ import annotations

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
from sfumato.dp.refusal import Bug
from support.ledger_totals import total_privacy_cost

SEEDED: Final = settings(derandomize=True, deadline=None, max_examples=300)
LEAST: Final = Fraction(1, 10**20)
losses = st.fractions(min_value=LEAST, max_value=1000)
deltas = st.fractions(min_value=LEAST, max_value=Fraction(1, 10))
events = st.one_of(
    st.builds(PureEvent, losses),
    st.builds(GaussianEvent, losses, losses, deltas),
    st.builds(ApproximateEvent, losses, deltas),
)


def amounts(debt: PrivacyCost) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    return (
        Fraction(debt.epsilon, 10**9),
        Fraction(debt.delta, 10**18),
        Fraction(debt.rho, 10**12),
        Fraction(debt.rho_delta, 10**18),
    )


def test_a_pure_release_costs_epsilon_and_half_its_square() -> None:
    assert privacy_cost(PureEvent(Fraction(3, 10))) == PrivacyCost(3 * 10**8, 0, 45 * 10**9, 0)


def test_a_gaussian_release_costs_its_delta_in_the_first_test_alone() -> None:
    event = GaussianEvent(Fraction(1, 50), Fraction(1), Fraction(1, 10**6))
    assert privacy_cost(event) == PrivacyCost(10**9, 10**12, 2 * 10**10, 0)


def test_an_approximate_release_costs_its_delta_in_both_tests() -> None:
    event = ApproximateEvent(Fraction(1, 5), Fraction(1, 10**6))
    assert privacy_cost(event) == PrivacyCost(2 * 10**8, 10**12, 2 * 10**10, 10**12)


@pytest.mark.parametrize(
    ("event", "debt"),
    [
        (PureEvent(LEAST), PrivacyCost(1, 0, 1, 0)),
        (PureEvent(Fraction(1, 3)), PrivacyCost(333_333_334, 0, 55_555_555_556, 0)),
        (GaussianEvent(LEAST, LEAST, LEAST), PrivacyCost(1, 1, 1, 0)),
        (ApproximateEvent(LEAST, LEAST), PrivacyCost(1, 1, 1, 1)),
    ],
)
def test_what_is_less_than_a_unit_costs_a_unit(event: Event, debt: PrivacyCost) -> None:
    assert privacy_cost(event) == debt


@SEEDED
@given(losses)
def test_a_pure_debt_covers_the_loss_in_both_tests(epsilon: Fraction) -> None:
    owed = amounts(privacy_cost(PureEvent(epsilon)))
    assert owed[0] >= epsilon
    assert owed[2] >= epsilon * epsilon / 2


@SEEDED
@given(losses, losses, deltas)
def test_a_gaussian_debt_covers_the_loss_in_both_tests(
    rho: Fraction, epsilon: Fraction, delta: Fraction
) -> None:
    owed = amounts(privacy_cost(GaussianEvent(rho, epsilon, delta)))
    assert owed[0] >= epsilon
    assert owed[1] >= delta
    assert owed[2] >= rho


@SEEDED
@given(losses, deltas)
def test_an_approximate_debt_covers_the_loss_in_both_tests(
    epsilon: Fraction, delta: Fraction
) -> None:
    owed = amounts(privacy_cost(ApproximateEvent(epsilon, delta)))
    assert owed[0] >= epsilon
    assert min(owed[1], owed[3]) >= delta
    assert owed[2] >= epsilon * epsilon / 2


@SEEDED
@given(events)
def test_every_release_moves_both_tests(event: Event) -> None:
    debt = privacy_cost(event)
    assert debt.epsilon + debt.delta > 0
    assert debt.rho + debt.rho_delta > 0


@SEEDED
@given(st.lists(events, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_releases_does_not_change_what_is_owed(made: list[Event], order: Any) -> None:
    other = list(made)
    order.shuffle(other)
    assert total_privacy_cost(other) == total_privacy_cost(made)


@SEEDED
@given(st.lists(events, max_size=8), st.lists(events, max_size=8))
def test_debts_add_up(first: list[Event], second: list[Event]) -> None:
    assert total_privacy_cost([*first, *second]) == total_privacy_cost(first) + total_privacy_cost(
        second
    )


def test_nothing_costs_nothing() -> None:
    assert total_privacy_cost([]) == PrivacyCost()


wrong: Any = 0.3  # Any: what the types forbid is what is tried
NONE, MINUS, SOME = Fraction(0), Fraction(-1), Fraction(1, 10)


@pytest.mark.parametrize(
    ("kind", "losses"),
    [
        (PureEvent, (wrong,)),
        (PureEvent, (NONE,)),
        (PureEvent, (MINUS,)),
        (GaussianEvent, (wrong, SOME, SOME)),
        (GaussianEvent, (SOME, wrong, SOME)),
        (GaussianEvent, (SOME, SOME, wrong)),
        (GaussianEvent, (NONE, SOME, SOME)),
        (GaussianEvent, (MINUS, SOME, SOME)),
        (GaussianEvent, (SOME, MINUS, SOME)),
        (GaussianEvent, (SOME, SOME, MINUS)),
        (ApproximateEvent, (SOME, wrong)),
        (ApproximateEvent, (wrong, SOME)),
        (ApproximateEvent, (MINUS, SOME)),
        (ApproximateEvent, (SOME, MINUS)),
        (ApproximateEvent, (SOME, NONE)),
    ],
)
def test_a_release_that_would_be_free_or_a_float_cannot_be_made(
    kind: Any, losses: tuple[Fraction, ...]
) -> None:
    with pytest.raises(Bug):
        kind(*losses)


def test_the_stored_names_are_the_promised_ones() -> None:
    made = (
        PureEvent(SOME),
        GaussianEvent(SOME, SOME, SOME),
        ApproximateEvent(SOME, SOME),
    )
    assert [event.name for event in made] == ["pure/1", "gaussian/1", "approximate/1"]
