"""How far one row can move a query, exactly, in whole steps; add-or-remove and replace-one.

The house relation is add or remove (rules 1). A person with several rows in several cells moves an
answer by that many times as much; plan.py multiplies. Held by brute force in
tests/core/test_sensitivity.py.
"""

from __future__ import annotations

from fractions import Fraction

from sfumato.core.refusal import Bug


def of_count() -> int:
    """Return how far adding or removing a row moves a count, with any filter."""
    return 1


def of_threshold() -> int:
    """Return how far adding, removing or replacing a row moves "how many are at least t"."""
    return 1


def of_sum(lower: int, upper: int) -> int:
    """Return how far adding or removing a row moves a sum of values clamped to the bounds."""
    _check(lower, upper)
    return max(abs(lower), abs(upper))


def of_sum_replacing(lower: int, upper: int) -> int:
    """Return how far replacing a row moves a sum of values clamped to the bounds."""
    _check(lower, upper)
    return upper - lower


def of_centred_sum(lower: int, upper: int) -> int:
    """Return how far adding or removing a row moves the sum of 2v - (lower + upper)."""
    _check(lower, upper)
    return upper - lower


def of_mean_of_known_size(lower: int, upper: int, size: int) -> Fraction:
    """Return how far replacing a row moves the mean of a data set whose size is public."""
    _check(lower, upper)
    if size < 1:
        raise Bug("a mean of nobody")
    return Fraction(upper - lower, size)


def _check(lower: int, upper: int) -> None:
    if lower >= upper:
        raise Bug("a lower bound that is not below the upper")
