"""The privacy budget in exact numbers: epsilon, delta and rho.

They are read strictly, kept as fractions, and charged in whole units. A debt is rounded up, a cap
down.
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
MAX_BITS: Final = 256  # of a fraction's parts; whatever has been read once can be read again


def units_up(amount: Fraction, unit: int) -> int:
    """Return the amount in whole units, rounded up: a debt is never too small."""
    return math.ceil(amount * unit)


def units_down(amount: Fraction, unit: int) -> int:
    """Return the amount in whole units, rounded down: a cap is never too large."""
    return math.floor(amount * unit)


def read_epsilon(value: object, name: str = "epsilon") -> Fraction:
    """Return the exact epsilon, or refuse what is not a plain number within reach."""
    amount = _exact(value, name)
    if not MIN_EPSILON <= amount <= MAX_EPSILON:
        raise _bad(name, f"must lie between {float(MIN_EPSILON):g} and {int(MAX_EPSILON)}")
    return amount


def read_delta(value: object, name: str = "delta") -> Fraction:
    """Return the exact delta; zero is a delta, and means pure noise."""
    amount = _exact(value, name)
    if amount != 0 and not MIN_DELTA <= amount <= MAX_DELTA:
        raise _bad(name, f"must be 0 or lie between {float(MIN_DELTA):g} and {float(MAX_DELTA):g}")
    return amount


def read_positive(value: object, name: str) -> Fraction:
    """Return an exact number above zero: an error, a size, a step."""
    amount = _exact(value, name)
    if amount <= 0:
        raise _bad(name, "must be above zero")
    return amount


def read_number(value: object, name: str) -> Fraction:
    """Return an exact number of either sign: a bound."""
    return _exact(value, name)


def decimal_of(text: str, name: str) -> Decimal:
    """Return the decimal that the text plainly spells, as a person would write it."""
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
        # the number that was typed, not its binary neighbour; numpy's own repr is no number
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
    """An (epsilon, delta) that may be spent in all: a cap, exact."""

    epsilon: Fraction
    delta: Fraction

    def as_json(self) -> dict[str, float]:
        """Return the budget as numbers for people; never used for sums."""
        return {"epsilon": float(self.epsilon), "delta": float(self.delta)}
