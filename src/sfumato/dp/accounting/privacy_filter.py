"""The privacy filter: whether one more release fits under a cap, whatever was asked before.

The accountant adds up epsilon and delta in one test, rho in the other. A release is charged if the
sums with it fit in one of the two tests (soundness rule 3; privacy_filter.proof.md).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sfumato.dp.accounting.composition import rho_within
from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, RHO_UNITS, Budget, units_down


@dataclass(frozen=True)
class Cap:
    """Both tests of an account, in whole units; fixed when the card is signed."""

    epsilon: int
    delta: int
    rho: int
    rho_delta: int


@dataclass(frozen=True)
class Split:
    """How a card's delta is shared out: to the first test, the conversion, the second's events."""

    name: str
    pure: Fraction  # delta_A
    conversion: Fraction  # delta_B
    events: Fraction  # delta_C


# A stored name is a promise: other shares get another name. Half goes to the first test, where
# every release with a delta pays; rho moves with ln(1/delta), so a quarter costs it little.
SPLIT: Final = Split("half-quarter-quarter/1", Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))


@dataclass(frozen=True)
class Left:
    """What is left of each sum, in whole units, and the largest pure epsilon that fits next."""

    epsilon: int
    delta: int
    rho: int
    rho_delta: int
    next_epsilon: Fraction


def accepts(cap: Cap, spent: PrivacyCost, debt: PrivacyCost) -> bool:
    """Say whether the account may pay: one of the two tests holds for the new sums."""
    after = spent + debt
    pure = after.epsilon <= cap.epsilon and after.delta <= cap.delta
    concentrated = after.rho <= cap.rho and after.rho_delta <= cap.rho_delta
    return pure or concentrated


@lru_cache(maxsize=1024)
def cap_of(budget: Budget) -> Cap:
    """Return the two tests that together promise the budget (proof: privacy_filter.proof.md).

    The budget's delta is shared out as SPLIT says, and each share rounded down. So a Gaussian
    question at the card's whole delta does not fit the first test, which has half of it; it fits
    the second if its rho does. At the card's whole epsilon as well it fits neither, for the
    second has the rho of a quarter of the delta: ask with a little less of either.

    Without delta no rho above zero promises anything: the second test is 0 and never holds.
    """
    conversion = budget.delta * SPLIT.conversion
    return Cap(
        units_down(budget.epsilon, EPSILON_UNITS),
        units_down(budget.delta * SPLIT.pure, DELTA_UNITS),
        units_down(rho_within(budget.epsilon, conversion), RHO_UNITS),
        units_down(budget.delta * SPLIT.events, DELTA_UNITS),
    )


def is_raised(before: Cap, after: Cap) -> bool:
    """Say whether any sum of either test may grow further than it could."""
    pairs = zip(astuple(before), astuple(after), strict=True)
    return any(new > old for old, new in pairs)


def largest_next_epsilon(cap: Cap, spent: PrivacyCost) -> Fraction:
    """Return the largest pure epsilon, in whole units, that `accepts` would take; 0 if none."""
    return Fraction(largest_next_units(cap, spent), EPSILON_UNITS)


@lru_cache(maxsize=1024)  # several accounts of one charge stand alike
def largest_next_units(cap: Cap, spent: PrivacyCost) -> int:
    """Return the same in whole units of epsilon."""
    by_sum = cap.epsilon - spent.epsilon
    # epsilon^2 / 2 within the rho that is left, in units of each
    by_rho = math.isqrt(2 * max(cap.rho - spent.rho, 0) * EPSILON_UNITS**2 // RHO_UNITS)
    fitting = (units for units in (by_sum, by_rho) if _takes_pure(cap, spent, units))
    return max(fitting, default=0)


def left(cap: Cap, spent: PrivacyCost) -> Left:
    """Return what is left under both tests; no number is ever negative."""
    return Left(
        max(cap.epsilon - spent.epsilon, 0),
        max(cap.delta - spent.delta, 0),
        max(cap.rho - spent.rho, 0),
        max(cap.rho_delta - spent.rho_delta, 0),
        largest_next_epsilon(cap, spent),
    )


def _takes_pure(cap: Cap, spent: PrivacyCost, units: int) -> bool:
    if units <= 0:
        return False
    return accepts(cap, spent, _pure_debt(units))


def _pure_debt(units: int) -> PrivacyCost:
    """Return `debt_of` a pure epsilon of so many units, in whole numbers alone."""
    rho = -(-(units**2) * RHO_UNITS // (2 * EPSILON_UNITS**2))
    return PrivacyCost(units, 0, rho, 0)
