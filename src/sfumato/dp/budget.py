"""The privacy budget in exact numbers: epsilon, delta and rho.

Epsilon, delta and rho are parsed strictly, kept as fractions, and charged in whole units. Charges
are rounded up and caps are rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused

EPSILON_UNITS: Final = 10**9  # one unit is 1e-9 of epsilon
DELTA_UNITS: Final = 10**18
RHO_UNITS: Final = 10**12
MIN_EPSILON: Final = Fraction(1, 10**6)
MAX_EPSILON: Final = Fraction(1000)
MIN_DELTA: Final = Fraction(1, 10**15)
MAX_DELTA: Final = Fraction(1, 10)
MAX_DIGITS: Final = 30
# most bits of a numerator or denominator; a value once accepted stays acceptable
MAX_BITS: Final = 256


def units_up(amount: Fraction, unit: int) -> int:
    """Convert the privacy cost of a charge to whole units, rounded up, so never too small."""
    return math.ceil(amount * unit)


def units_down(amount: Fraction, unit: int) -> int:
    """Convert a budget cap to whole units, rounded down, so that it is never too large."""
    return math.floor(amount * unit)


def read_epsilon(value: object, name: str = "epsilon") -> Fraction:
    """Parse an epsilon as an exact fraction; refuse a value that is no number or out of range."""
    amount = _exact(value, name)
    if not MIN_EPSILON <= amount <= MAX_EPSILON:
        raise _bad(name, f"must lie between {float(MIN_EPSILON):g} and {int(MAX_EPSILON)}")
    return amount


def read_delta(value: object, name: str = "delta") -> Fraction:
    """Parse a delta as an exact fraction; refuse a value out of range.

    Zero is allowed and means pure epsilon-DP.
    """
    amount = _exact(value, name)
    if amount != 0 and not MIN_DELTA <= amount <= MAX_DELTA:
        raise _bad(name, f"must be 0 or lie between {float(MIN_DELTA):g} and {float(MAX_DELTA):g}")
    return amount


def read_positive(value: object, name: str) -> Fraction:
    """Parse a number above zero, such as an error, a size or a step, as an exact fraction."""
    amount = _exact(value, name)
    if amount <= 0:
        raise _bad(name, "must be above zero")
    return amount


def read_number(value: object, name: str) -> Fraction:
    """Parse a number of either sign, such as a clamping bound, as an exact fraction."""
    return _exact(value, name)


def decimal_of(text: str, name: str) -> Decimal:
    """Parse a plain decimal such as 0.5 or 1e-6; refuse anything else."""
    stripped = text.strip()
    plain = stripped and len(stripped) <= 2 * MAX_DIGITS and set(stripped) <= set("0123456789.eE+-")
    try:
        number = Decimal(stripped) if plain else None
    except ArithmeticError:
        number = None
    if number is None:
        raise _bad(name, "must be a plain number such as 0.5")
    return number


def _exact(value: object, name: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise _bad(name, "must be a number, not " + type(value).__name__)
    if isinstance(value, float):
        # 0.1 becomes the decimal 0.1, not its binary value; repr of a numpy float is not a number
        value = Decimal(float.__repr__(value))
    if isinstance(value, Decimal):
        _check_spelling(value, name)
    elif isinstance(value, int) and value.bit_length() > 128:
        raise _bad(name, "has too many digits")
    exact = Fraction(value)
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > MAX_BITS:
        raise _bad(name, "has too many digits")
    return exact


def _check_spelling(value: Decimal, name: str) -> None:
    if not value.is_finite():
        raise _bad(name, "must be finite")
    _, digits, exponent = value.as_tuple()
    if len(digits) > MAX_DIGITS or not isinstance(exponent, int) or abs(exponent) > MAX_DIGITS:
        raise _bad(name, "has too many digits")


def _bad(name: str, what: str) -> Refused:
    some = "1e-6" if name.endswith("delta") else "0.5"
    return Refused(
        "bad-budget", f"{name} {what}.", f"Give {name} as a plain number such as {some}."
    )


@dataclass(frozen=True)
class Budget:
    """A privacy budget: the most epsilon and delta that may be spent in total, as fractions."""

    epsilon: Fraction
    delta: Fraction

    def as_json(self) -> dict[str, float]:
        """Return the budget as floats, for display only; sums of costs never use them."""
        return {"epsilon": float(self.epsilon), "delta": float(self.delta)}
