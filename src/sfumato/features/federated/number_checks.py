"""Validation of numbers in training settings."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final

from sfumato.dp.refusal import Refused

# A number with its first digit below this power of ten is refused. It is below every float, and
# its exact fraction could fill the memory.
MIN_DIGIT: Final = -400


def number(name: str, said: object, least: float, most: float) -> Fraction:
    """Parse the setting `name` as an exact number; refuse a value outside `least` to `most`."""
    try:
        found = Decimal(str(said))
    except InvalidOperation:
        found = Decimal("NaN")
    if (
        not found.is_finite()
        or found.adjusted() < MIN_DIGIT
        or not Decimal(str(least)) <= found <= Decimal(str(most))
    ):
        raise _refused(f"{name} must be a number from {least:g} to {most:g}")
    return Fraction(found)


def count(name: str, said: object, least: int, most: int) -> int:
    """Check that the setting `name` is an integer from `least` to `most`; refuse other values."""
    if isinstance(said, bool) or not isinstance(said, int) or not least <= said <= most:
        raise _refused(f"{name} must be a whole number from {least:,} to {most:,}")
    return said


def _refused(what: str) -> Refused:
    return Refused(
        "bad-federation",
        f"The training cannot start: {what}.",
        "Correct this argument. No site was asked yet.",
    )
