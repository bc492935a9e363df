"""The exact sensitivity of a count or a sum to one row, as an integer.

Neighbouring data sets differ in one privacy unit, all of whose rows are added or removed. These
functions give the sensitivity to one row. For a person with several rows in several groups,
query/plan.py multiplies it by the contribution bounds. tests/dp/test_sensitivity.py checks it by
brute force.
"""

from __future__ import annotations

from sfumato.dp.refusal import Bug


def of_count() -> int:
    """Return 1, the sensitivity of a count to one row; a filter does not change it."""
    return 1


def of_sum(lower: int, upper: int) -> int:
    """Return the sensitivity of a sum to one row, if values are clamped to `lower` and `upper`."""
    _check(lower, upper)
    return max(abs(lower), abs(upper))


def of_centred_sum(lower: int, upper: int) -> int:
    """Return the sensitivity to one row of the sum of 2v - (lower + upper), for clamped values v.

    Twice the distance to the middle of the bounds is an integer.
    """
    _check(lower, upper)
    return upper - lower


def _check(lower: int, upper: int) -> None:
    if lower >= upper:
        raise Bug("a lower bound that is not below the upper")
