"""Our totals agree with dp-accounting's, and where they differ, ours is the larger."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any, Final

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

from sfumato.dp.accounting.privacy_events import ApproximateEvent, Event, GaussianEvent, PureEvent
from sfumato.dp.accounting.zcdp_conversion import (
    delta_at,
    epsilon_at,
    rho_within,
)
from support.ledger_totals import plain_total, zcdp_epsilon

SEED: Final = 20261121
MIXES: Final[dict[str, tuple[str, ...]]] = {
    "pure": ("pure",),
    "gaussian": ("gaussian",),
    "mixed": ("pure", "gaussian"),
    "all": ("pure", "gaussian", "approximate"),
}
OURS_IS_LARGER: Final = 1.01  # by this factor at most
WIDE: Final = np.linspace(math.log(1e-2), math.log(1e7), 300)  # orders, as ln(alpha - 1)


def event_of(kind: str, dice: random.Random) -> Event:
    epsilon = Fraction(round(10 ** dice.uniform(-2, 0.5) * 10**9), 10**9)
    if kind == "pure":
        return PureEvent(epsilon)
    if kind == "approximate":
        return ApproximateEvent(epsilon, Fraction(1, 10**12))
    delta = Fraction(1, 10 ** dice.randint(6, 9))
    return GaussianEvent(rho_within(epsilon, delta), epsilon, delta)


def sequences(mix: str) -> list[list[Event]]:
    dice = random.Random(f"{SEED} {mix}")
    sizes = [dice.randint(1, 40) for _ in range(50)]
    return [[event_of(dice.choice(MIXES[mix]), dice) for _ in range(size)] for size in sizes]


def deltas(mix: str) -> list[Fraction]:
    dice = random.Random(f"{SEED} {mix} delta")
    return [Fraction(10 ** dice.uniform(-10, -4)) for _ in range(50)]


def theirs(event: Event) -> Any:  # Any: dp_accounting has no types
    """The same release as dp-accounting knows it: rho-zCDP, or Gaussian noise of that rho."""
    if isinstance(event, GaussianEvent):
        return dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * event.rho))
    return dp_accounting.ZCDpEvent(rho=float(event.epsilon) ** 2 / 2)


def rdp_epsilon(events: list[Event], delta: float) -> float:
    """Their least epsilon over the orders: a wide net, then twice a finer one about the best."""
    composed = dp_accounting.ComposedDpEvent([theirs(event) for event in events])
    net = WIDE
    for _ in range(3):
        accountant = rdp.RdpAccountant(list(1 + np.exp(net)))
        accountant.compose(composed)
        epsilon, order = accountant.get_epsilon_and_optimal_order(delta)
        at, width = math.log(order - 1), net[1] - net[0]
        net = np.linspace(at - width, at + width, 200)
    return float(epsilon)


@pytest.mark.parametrize("mix", MIXES)
def test_two_hundred_sequences_cost_what_dp_accounting_says_or_a_little_more(mix: str) -> None:
    for events, delta in zip(sequences(mix), deltas(mix), strict=True):
        own = sum((e.delta for e in events if isinstance(e, ApproximateEvent)), Fraction(0))
        known = rdp_epsilon(events, float(delta - own))
        ours = float(zcdp_epsilon(events, delta))
        assert known <= ours <= known * OURS_IS_LARGER
        assert ours == pytest.approx(known, rel=1e-6)


def test_pure_totals_are_the_limit_of_ever_higher_orders() -> None:
    for events in sequences("pure"):
        accountant = rdp.RdpAccountant([1e9])
        noise = [dp_accounting.LaplaceDpEvent(1 / float(event.epsilon)) for event in events]
        accountant.compose(dp_accounting.ComposedDpEvent(noise))
        known = accountant.get_epsilon(1e-12)
        total = plain_total(events)
        assert float(total.epsilon) == pytest.approx(known, rel=1e-6)
        assert total.epsilon == sum(event.epsilon for event in events)


@pytest.mark.parametrize(
    ("rho", "epsilon"),
    [
        ("1e-6", "0.01"),
        ("0.001", "0.2"),
        ("0.001", "0.5"),
        ("0.0243", "0.5"),
        ("0.0243", "1"),
        ("0.5", "3"),
        ("0.5", "5"),
        ("7", "20"),
        ("7", "60"),
    ],
)
def test_a_delta_is_the_least_that_dp_accounting_finds(rho: str, epsilon: str) -> None:
    net = WIDE
    for _ in range(3):
        orders = 1 + np.exp(net)
        known, order = rdp.rdp_privacy_accountant.compute_delta(
            orders, orders * float(rho), float(epsilon)
        )
        at, width = math.log(order - 1), net[1] - net[0]
        net = np.linspace(at - width, at + width, 200)
    ours = float(delta_at(Fraction(rho), Fraction(epsilon)))
    assert known * (1 - 1e-9) <= ours <= known * (1 + 1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-6"), ("1", "1e-6"), ("8", "1e-12")])
def test_real_gaussian_noise_of_our_rho_keeps_the_promise(epsilon: str, delta: str) -> None:
    sigma = 1 / math.sqrt(2 * rho_within(Fraction(epsilon), Fraction(delta)))
    assert dp_accounting.get_epsilon_gaussian(sigma, float(delta)) < float(epsilon)


def test_an_epsilon_by_rho_is_above_that_of_the_gaussian_s_own_distribution() -> None:
    for rho in ("0.001", "0.02", "0.5", "5"):
        sigma = 1 / math.sqrt(2 * float(rho))
        exact = dp_accounting.get_epsilon_gaussian(sigma, 1e-6)
        assert exact < float(epsilon_at(Fraction(rho), Fraction(1, 10**6))) < 1.25 * exact + 0.01
