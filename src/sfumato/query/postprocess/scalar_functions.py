"""Functions of one released number: value, range, NULL test and derivative of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.query.aggregates.aggregate import Floats
from sfumato.query.aggregates.result_ranges import Range
from sfumato.query.expression import FunctionName

Number = int | float
LARGEST: Final = 1e300
ROUNDED: Final = 1e-14  # relative; exceeds the float error of a function
STEEP: Final = 1.0  # largest half interval of an exponent for which a first-order std is shown


@dataclass(frozen=True)
class ScalarFunction:
    """A function of one number, with its range, NULL test and derivative.

    `ends` returns the range of the function over the arguments for which it has a value.
    `may_be_null` says whether other arguments are possible. `slope` is NaN if the argument may be
    on either side of a bend, because a first-order error says too little there.
    """

    value: Callable[[Number], Number | None]
    ends: Callable[[Range], Range]
    may_be_null: Callable[[Range], NDArray[np.bool_]]
    slope: Callable[[Floats, Range], Floats]


def _abs_ends(of: Range) -> Range:
    low, high = np.abs(of.low), np.abs(of.high)
    has_zero = (of.low <= 0) & (of.high >= 0)
    return Range(np.where(has_zero, 0.0, np.minimum(low, high)), np.maximum(low, high))


def _grown(of: Range, made: Callable[[Floats], Floats]) -> Range:
    """Apply an increasing function to both ends of a range, and widen it for rounding errors."""
    low, high = made(of.low), made(of.high)
    return Range(low - ROUNDED * np.abs(low), high + ROUNDED * np.abs(high))


def _ln_ends(of: Range) -> Range:
    """Return the range of LN; its upper end is infinite if the argument cannot be above zero."""
    made = _grown(Range(np.maximum(of.low, 0.0), np.maximum(of.high, 0.0)), np.log)
    return Range(made.low, np.where(of.high > 0, made.high, np.inf))


def _exp_ends(of: Range) -> Range:
    made = _grown(of, np.exp)
    return Range(np.minimum(made.low, LARGEST), made.high)


def _never(of: Range) -> NDArray[np.bool_]:
    return np.zeros(of.low.shape, dtype=np.bool_)


def _exp(of: Number) -> float | None:
    return math.exp(of) if of <= math.log(LARGEST) else None


CURVE: Final[Mapping[FunctionName, ScalarFunction]] = {
    "abs": ScalarFunction(
        abs,
        _abs_ends,
        _never,
        lambda x, held: np.where((held.low > 0) | (held.high < 0), np.sign(x), np.nan),
    ),
    "sqrt": ScalarFunction(
        lambda x: math.sqrt(x) if x >= 0 else None,
        lambda of: _grown(Range(np.maximum(of.low, 0.0), np.maximum(of.high, 0.0)), np.sqrt),
        lambda of: of.low < 0,
        lambda x, held: np.where(held.low > 0, 0.5 / np.sqrt(x), np.nan),
    ),
    "ln": ScalarFunction(
        lambda x: math.log(x) if x > 0 else None,
        _ln_ends,
        lambda of: of.low <= 0,
        lambda x, held: np.where(held.low > 0, 1 / x, np.nan),
    ),
    "exp": ScalarFunction(
        _exp,
        _exp_ends,
        lambda of: of.high > math.log(LARGEST),
        lambda x, held: np.where(held.high - held.low <= 2 * STEEP, np.exp(x), np.nan),
    ),
}
