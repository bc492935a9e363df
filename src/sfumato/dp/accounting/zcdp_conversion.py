"""Convert rho-zCDP to (epsilon, delta)-DP and back, for the accountant's composition.

Every conversion rounds to the safe side. All use one bound (proof: zcdp_conversion.proof.md).
rho-zCDP implies (epsilon, delta)-DP with ln delta = t(1+t) rho - t epsilon - kappa(t). Here
kappa(t) = (1+t) ln(1+t) - t ln t. The bound holds for EVERY t = alpha - 1 > 0, so float arithmetic
may choose t. The code then evaluates the bound at that t with 80 digits. A poor t costs utility,
never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
from typing import Final, TypeVar

from sfumato.dp.budget import (
    RHO_UNITS,
    units_down,
)
from sfumato.dp.refusal import Bug

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
    _check(rho >= 0 and 0 < delta < 1, "rho cannot be negative, delta is inside (0, 1)")
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
    """Convert (epsilon, delta) to zCDP: return a rho, rounded down, that implies this guarantee.

    The result is a multiple of 1e-12. It is below the largest such rho by at most 1e-6 (relative)
    plus one step of 1e-12. It is 0 if delta is 0, or if both are tiny (epsilon 1e-6 with delta
    1e-9). Then no Gaussian release fits.
    """
    _check(epsilon >= 0 and 0 <= delta < 1, "epsilon cannot be negative, delta is in [0, 1)")
    if delta == 0:
        return Fraction(0)
    with localcontext(_EXACT):
        log_delta = _decimal(delta).ln()
        e, d = float(epsilon), float(log_delta)
        t = _best(lambda t: _slope(t, _rho(t, e, d, _float_kappa(t)), e))
        rho = _rho(t, _decimal(epsilon), log_delta, _kappa(t)) * (1 - _MARGIN)
    return max(Fraction(units_down(Fraction(rho), RHO_UNITS), RHO_UNITS), Fraction(0))


def _best(slope: Callable[[float], float]) -> Decimal:
    """Return the t at which the zCDP conversion gives the best (tightest) bound, by bisection.

    The bound holds for every t > 0 (t + 1 is a Rényi order), so a poor t costs utility, never
    privacy. `slope` gives the bound's slope in t, which is 0 at the best t.
    """
    low, high = _LOG_T
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if slope(math.exp(middle)) < 0:
            low = middle
        else:
            high = middle
    return Decimal(math.exp(low))


def _slope(t: float, rho: float, epsilon: float) -> float:
    """Return the slope in t of the bound of ln delta; the tightest bound is where it is zero.

    It increases with t. `t` + 1 is the Rényi order of the bound.
    """
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
