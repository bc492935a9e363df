"""The sensitivity of a query to one row, exactly, in whole steps.

Neighbouring data sets differ in one privacy unit with all its rows: they are added or removed.

A person with several rows in several cells moves an answer by that many times as much; plan.py
multiplies. Held by brute force in tests/dp/test_sensitivity.py.
"""

from __future__ import annotations

from sfumato.dp.refusal import Bug


def of_count() -> int:
    """Return how far adding or removing a row moves a count, with any filter."""
    return 1


def of_sum(lower: int, upper: int) -> int:
    """Return how far adding or removing a row moves a sum of values clamped to the bounds."""
    _check(lower, upper)
    return max(abs(lower), abs(upper))


def of_centred_sum(lower: int, upper: int) -> int:
    """Return how far adding or removing a row moves the sum of 2v - (lower + upper)."""
    _check(lower, upper)
    return upper - lower


def _check(lower: int, upper: int) -> None:
    if lower >= upper:
        raise Bug("a lower bound that is not below the upper")
