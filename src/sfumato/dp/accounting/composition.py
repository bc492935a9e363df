"""Composition for the accountant: convert rho-zCDP to (epsilon, delta)-DP and back.

Every conversion rounds to the safe side. All three use one bound (proof: composition.proof.md).
rho-zCDP implies (epsilon, delta)-DP with ln delta = t(1+t) rho - t epsilon - kappa(t). Here
kappa(t) = (1+t) ln(1+t) - t ln t. The bound holds for EVERY t = alpha - 1 > 0, so float arithmetic
may choose t. The bound is then evaluated at that t with 80 digits. A poor t costs utility, never
privacy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import (
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeVar

from sfumato.dp.accounting.privacy_events import Event, GaussianEvent, PureEvent, total_privacy_cost
from sfumato.dp.budget import (
    DELTA_UNITS,
    EPSILON_UNITS,
    RHO_UNITS,
    Budget,
    units_down,
    units_up,
)
from sfumato.dp.refusal import Bug, Refused

_EXACT: Final = Context(  # every operation, also exp and ln, is correctly rounded to 80 digits
    prec=80,
    rounding=ROUND_HALF_EVEN,
    Emin=-999_999,
    Emax=999_999,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
_DECIMAL_MARGIN: Final = Decimal("1e-20")  # 80 digits lose less than 1e-30 for t in _LOG_T
_MARGIN: Final = Decimal("1e-9")  # relative safety margin of epsilon_at and rho_within
_GRID: Final = 10**12  # epsilon_at rounds up to a multiple of 1e-12
_LOG_T: Final = (-100.0, 60.0)  # the range of ln t that _best searches
_HALVINGS: Final = 64
_MIN_LOG_DELTA: Final = Decimal(-230)  # a delta below e^-230 is rounded up to e^-230
_BUCKETS: Final = 100_000  # of a privacy-loss distribution, over the plain sum of epsilons
_MAX_EPSILON: Final = 500  # of one release; above about 700 exp() overflows a float

Number = TypeVar("Number", float, Decimal)


def delta_at(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Convert rho-zCDP to (epsilon, delta)-DP: return delta at this epsilon, rounded up."""
    _check(rho >= 0 and epsilon >= 0, "rho and epsilon cannot be negative")
    if rho == 0:
        return Fraction(0)
    r, e = float(rho), float(epsilon)
    with localcontext(_EXACT):
        t = _best(lambda t: _slope(t, r, e))
        exponent = t * (1 + t) * _decimal(rho) - t * _decimal(epsilon) - _kappa(t)
        delta = max(exponent, _MIN_LOG_DELTA).exp() * (1 + _DECIMAL_MARGIN)
    return min(Fraction(delta), Fraction(1))


def epsilon_at(rho: Fraction, delta: Fraction) -> Fraction:
    """Convert rho-zCDP to (epsilon, delta)-DP: return epsilon at this delta, rounded up."""
    _check(rho >= 0 and 0 < delta < 1, "rho cannot be negative, delta lies inside (0, 1)")
    if rho == 0:
        return Fraction(0)
    with localcontext(_EXACT):
        log_delta = _decimal(delta).ln()
        r, d = float(rho), float(log_delta)
        t = _best(lambda t: _slope(t, r, _epsilon(t, r, d, _float_kappa(t))))
        epsilon = _epsilon(t, _decimal(rho), log_delta, _kappa(t)) * (1 + _MARGIN)
    return max(Fraction(math.ceil(Fraction(epsilon) * _GRID), _GRID), Fraction(0))


@lru_cache(maxsize=4096)
def rho_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Convert (epsilon, delta) to rho: return a rho, rounded down, for which rho-zCDP implies it.

    The result is a multiple of 1e-12. It is below the largest such rho by at most 1e-6 (relative)
    plus one step of 1e-12. It is 0 if delta is 0, or if both are tiny (epsilon 1e-6 with delta
    1e-9); then no Gaussian release fits.
    """
    _check(epsilon >= 0 and 0 <= delta < 1, "epsilon cannot be negative, delta lies in [0, 1)")
    if delta == 0:
        return Fraction(0)
    with localcontext(_EXACT):
        log_delta = _decimal(delta).ln()
        e, d = float(epsilon), float(log_delta)
        t = _best(lambda t: _slope(t, _rho(t, e, d, _float_kappa(t)), e))
        rho = _rho(t, _decimal(epsilon), log_delta, _kappa(t)) * (1 - _MARGIN)
    return max(Fraction(units_down(Fraction(rho), RHO_UNITS), RHO_UNITS), Fraction(0))


def pure_total(events: Iterable[Event]) -> Fraction:
    """Return the total epsilon of pure releases, by basic composition, as the ledger adds them."""
    total = plain_total(events)
    _check(total.delta == 0, "only pure releases have a total without delta")
    return total.epsilon


def plain_total(events: Iterable[Event]) -> Budget:
    """Return total epsilon and total delta by basic composition, as the ledger adds them."""
    debt = total_privacy_cost(events)
    return Budget(Fraction(debt.epsilon, EPSILON_UNITS), Fraction(debt.delta, DELTA_UNITS))


def zcdp_epsilon(events: Iterable[Event], delta: Fraction) -> Fraction:
    """Return the total epsilon at delta by zCDP composition (the filter's second test)."""
    debt = total_privacy_cost(events)
    rest = delta - Fraction(debt.rho_delta, DELTA_UNITS)
    _check_delta(rest)
    return epsilon_at(Fraction(debt.rho, RHO_UNITS), rest)


def pld_epsilon(events: Iterable[Event], delta: Fraction) -> Fraction:
    """Return the epsilon at delta of a batch FIXED IN ADVANCE, by privacy-loss distributions.

    Never use this as a privacy filter or in one. If later releases depend on earlier answers, the
    composition can pass in every branch and still fail as a whole (soundness rule 3).

    Each release is replaced by the worst mechanism with the same guarantee: randomised response
    that reveals everything with probability delta. All Gaussian releases together are replaced by
    one such mechanism, from their total rho at delta / 2.
    """
    _check(0 < delta < 1, "delta lies inside (0, 1)")
    batch = tuple(events)
    pairs = _worst_pairs(batch, delta)
    if not pairs:
        return Fraction(0)
    if max(epsilon for epsilon, _ in pairs) > _MAX_EPSILON:
        raise _too_large_an_epsilon()
    epsilon = _composed(pairs, float(delta))
    if not math.isfinite(epsilon):
        raise _too_small_a_delta()
    units = units_up(Fraction(epsilon) * (1 + Fraction(_MARGIN)), EPSILON_UNITS)
    return Fraction(units, EPSILON_UNITS)


def _worst_pairs(events: tuple[Event, ...], delta: Fraction) -> Counter[tuple[float, float]]:
    pairs: Counter[tuple[float, float]] = Counter()
    for event in events:
        if not isinstance(event, GaussianEvent):
            own = Fraction(0) if isinstance(event, PureEvent) else event.delta
            pairs[float(event.epsilon), float(own)] += 1
    gaussian = [event for event in events if isinstance(event, GaussianEvent)]
    if gaussian:
        pairs[float(zcdp_epsilon(gaussian, delta / 2)), float(delta / 2)] += 1
    return pairs


def _composed(pairs: Counter[tuple[float, float]], delta: float) -> float:
    common, distributions = _dp_accounting()
    total = sum(epsilon * count for (epsilon, _), count in pairs.items())
    whole = None
    for (epsilon, own), count in pairs.items():
        promise = common.DifferentialPrivacyParameters(epsilon, own)
        one = distributions.from_privacy_parameters(promise, total / _BUCKETS).self_compose(count)
        whole = one if whole is None else whole.compose(one)
    return math.inf if whole is None else float(whole.get_epsilon_for_delta(delta))


def _dp_accounting() -> tuple[Any, Any]:  # Any: an optional package, not checked
    try:
        from dp_accounting.pld import common, privacy_loss_distribution
    except ImportError:
        missing = True
    else:
        missing = False
    if missing:
        raise Refused(
            "not-installed",
            "Privacy-loss distributions need the package dp-accounting.",
            "Install dp-accounting, or add up by rho instead.",
        )
    return common, privacy_loss_distribution


def _best(slope: Callable[[float], float]) -> Decimal:
    """Find by bisection the t at which the slope changes from negative to positive."""
    low, high = _LOG_T
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if slope(math.exp(middle)) < 0:
            low = middle
        else:
            high = middle
    return Decimal(math.exp(low))


def _slope(t: float, rho: float, epsilon: float) -> float:
    """Return d(ln delta)/dt, which increases with t."""
    return (1 + 2 * t) * rho - epsilon - math.log1p(1 / t)


def _rho(t: Number, epsilon: Number, log_delta: Number, kappa: Number) -> Number:
    return (log_delta + t * epsilon + kappa) / (t * (1 + t))


def _epsilon(t: Number, rho: Number, log_delta: Number, kappa: Number) -> Number:
    return (1 + t) * rho - (log_delta + kappa) / t


def _kappa(t: Decimal) -> Decimal:
    return (1 + t) * (1 + t).ln() - t * t.ln()


def _float_kappa(t: float) -> float:
    return math.log1p(t) + t * math.log1p(1 / t)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _check(holds: bool, promise: str) -> None:
    if not holds:
        raise Bug(promise)


def _check_delta(rest: Fraction) -> None:
    if not 0 < rest < 1:
        raise _too_small_a_delta()


def _too_small_a_delta() -> Refused:
    return Refused(
        "bad-budget",
        "delta must be below 1 and above what the releases spend of it themselves.",
        "Give a larger delta, below 1.",
    )


def _too_large_an_epsilon() -> Refused:
    return Refused(
        "bad-budget",
        f"A release of more than epsilon {_MAX_EPSILON} has no useful privacy-loss distribution.",
        "Add up by epsilon or by rho instead.",
    )
