"""The privacy filter: decide whether one more release fits under a cap, for adaptive queries.

The filter has two tests. The first compares the sums of epsilon and delta with the cap, the second
the sums of rho and rho_delta. A release is charged if the new sums pass at least one of the two
tests (soundness rule 3; privacy_filter.proof.md).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.dp.budget import DELTA_UNITS, EPSILON_UNITS, RHO_UNITS, Budget, units_down


@dataclass(frozen=True)
class Cap:
    """The privacy budget of an account: a limit for each of the privacy filter's four sums.

    The first test of the filter limits the sums of epsilon and delta. The second limits the sums of
    rho and rho_delta. A release must pass one of the tests. The limits are in whole units, and the
    signed data card fixes them.
    """

    epsilon: int
    delta: int
    rho: int
    rho_delta: int


@dataclass(frozen=True)
class DeltaSplit:
    """How the delta of a data card is divided over the two tests of the privacy filter.

    One share limits the sum of deltas in the first test (epsilon, delta). The second test (rho,
    rho_delta) gets two shares. One converts rho to epsilon, and the other limits the sum of
    rho_delta.
    """

    name: str
    first_test: Fraction  # delta_A
    conversion: Fraction  # delta_B
    events: Fraction  # delta_C


# The ledger stores the name, so other shares need another name. The first test gets half, because
# every release with a delta pays there. The conversion needs only a quarter, because rho depends
# on delta only through ln(1/delta).
SPLIT: Final = DeltaSplit("half-quarter-quarter/1", Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))


@dataclass(frozen=True)
class RemainingBudget:
    """The privacy budget left in each sum of the privacy filter, in whole units.

    `next_epsilon` is the largest epsilon of a pure release (without delta) that still fits.
    """

    epsilon: int
    delta: int
    rho: int
    rho_delta: int
    next_epsilon: Fraction


def fits_under_cap(cap: Cap, spent: PrivacyCost, debt: PrivacyCost) -> bool:
    """Return whether one more release fits under the cap: this is the privacy filter.

    `debt` is the privacy cost of the release, and `spent` that of all earlier ones. Their sum must
    pass at least one of two tests: (epsilon, delta) within the cap, or (rho, rho_delta) within the
    cap.
    """
    after = spent + debt
    pure = after.epsilon <= cap.epsilon and after.delta <= cap.delta
    concentrated = after.rho <= cap.rho and after.rho_delta <= cap.rho_delta
    return pure or concentrated


@lru_cache(maxsize=1024)
def cap_from_budget(budget: Budget) -> Cap:
    """Return the limits of both privacy filter tests that together guarantee the privacy budget.

    The first test limits the sums of epsilon and delta, the second those of rho and rho_delta.
    SPLIT (a `DeltaSplit`) divides the budget's delta over the tests, and each share is rounded
    down. The proof is in privacy_filter.proof.md.

    So a Gaussian query at the card's whole delta fails the first test, which has half of the delta.
    The query passes the second test if its rho fits. A query at the card's whole epsilon and delta
    fails both tests: the rho limit of the second test corresponds to a quarter of the delta. Such a
    query fits with slightly less epsilon or delta.

    If the budget has no delta, the rho limit is 0 and the second test never passes.
    """
    conversion = budget.delta * SPLIT.conversion
    return Cap(
        units_down(budget.epsilon, EPSILON_UNITS),
        units_down(budget.delta * SPLIT.first_test, DELTA_UNITS),
        units_down(rho_within(budget.epsilon, conversion), RHO_UNITS),
        units_down(budget.delta * SPLIT.events, DELTA_UNITS),
    )


def is_raised(before: Cap, after: Cap) -> bool:
    """Return whether the cap `after` has a higher limit than `before`, in any of the four sums.

    The four sums are those of epsilon, delta, rho and rho_delta.
    """
    pairs = zip(astuple(before), astuple(after), strict=True)
    return any(new > old for old, new in pairs)


def largest_next_epsilon(cap: Cap, spent: PrivacyCost) -> Fraction:
    """Return the largest epsilon of a pure release that `fits_under_cap` allows next; 0 if none."""
    return Fraction(largest_next_units(cap, spent), EPSILON_UNITS)


@lru_cache(maxsize=1024)  # several accounts in one charge often have the same cap and the same sums
def largest_next_units(cap: Cap, spent: PrivacyCost) -> int:
    """Return the largest epsilon, in whole units, of a pure release that fits under the cap next.

    A pure release has no delta. The result is 0 if no release fits.
    """
    by_sum = cap.epsilon - spent.epsilon
    # the largest epsilon with epsilon^2 / 2 <= the rho left, converted between the two units
    by_rho = math.isqrt(2 * max(cap.rho - spent.rho, 0) * EPSILON_UNITS**2 // RHO_UNITS)
    fitting = (units for units in (by_sum, by_rho) if _takes_pure(cap, spent, units))
    return max(fitting, default=0)


def remaining_budget(cap: Cap, spent: PrivacyCost) -> RemainingBudget:
    """Return the budget left under the cap: epsilon, delta, rho, rho_delta, each at least 0.

    It also has the largest epsilon of a pure release (without delta) that fits next.
    """
    return RemainingBudget(
        max(cap.epsilon - spent.epsilon, 0),
        max(cap.delta - spent.delta, 0),
        max(cap.rho - spent.rho, 0),
        max(cap.rho_delta - spent.rho_delta, 0),
        largest_next_epsilon(cap, spent),
    )


def _takes_pure(cap: Cap, spent: PrivacyCost, units: int) -> bool:
    if units <= 0:
        return False
    return fits_under_cap(cap, spent, _pure_debt(units))


def _pure_debt(units: int) -> PrivacyCost:
    """Return the privacy cost of a pure release (without delta), given its epsilon in whole units.

    Its rho is epsilon**2 / 2, computed with integers and rounded up.
    """
    rho = -(-(units**2) * RHO_UNITS // (2 * EPSILON_UNITS**2))
    return PrivacyCost(units, 0, rho, 0)
