"""Totals of releases that were charged, as the ledger adds them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from sfumato.dp.accounting.privacy_events import Event, PrivacyCost, privacy_cost
from sfumato.dp.accounting.zcdp_conversion import epsilon_at
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, RHO_UNITS, Budget


def total_privacy_cost(events: Iterable[Event]) -> PrivacyCost:
    """Return the sum of the privacy costs of all events."""
    return sum(map(privacy_cost, events), PrivacyCost())


def plain_total(events: Iterable[Event]) -> Budget:
    """Return total epsilon and total delta by basic composition."""
    debt = total_privacy_cost(events)
    return Budget(Fraction(debt.epsilon, EPSILON_UNITS), Fraction(debt.delta, DELTA_UNITS))


def zcdp_epsilon(events: Iterable[Event], delta: Fraction) -> Fraction:
    """Return the total epsilon at delta by zCDP composition: the privacy filter's second test."""
    debt = total_privacy_cost(events)
    rest = delta - Fraction(debt.rho_delta, DELTA_UNITS)
    return epsilon_at(Fraction(debt.rho, RHO_UNITS), rest)
