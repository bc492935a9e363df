"""Convert Rényi DP at integer orders to (epsilon, delta)-DP, rounded to the safe side.

The bound is that of zcdp_conversion.py at a single order (its proof: zcdp_conversion.proof.md). A
divergence of at most R at order 1 + t implies (epsilon, delta)-DP with
epsilon = R - (ln delta + kappa(t)) / t.
The bound holds at every order, so the code takes the smallest epsilon over a fixed list of orders.
The divergences of several releases add up at each order, also if each release is chosen adaptively
(a privacy filter at a fixed order).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sfumato.dp.refusal import Bug

ORDERS: Final = (*range(2, 65), *range(72, 257, 8), 320, 384, 512, 768, 1024, 2048, 4096)
_CONTEXT: Final = Context(prec=60)
_MARGIN: Final = Decimal("1e-9")
_GRID: Final = 10**12


def epsilon_at(curve: Callable[[int], Fraction], delta: Fraction) -> Fraction:
    """Convert Rényi DP to (epsilon, delta)-DP: return epsilon at this delta, rounded up.

    `curve` gives a bound of the Rényi divergence at each integer order.
    """
    if not 0 < delta < 1:
        raise Bug("delta is inside (0, 1)")
    with localcontext(_CONTEXT):
        log_delta = (Decimal(delta.numerator) / Decimal(delta.denominator)).ln()
        best = min(
            _decimal(curve(order)) - (log_delta + _kappa(order)) / (order - 1) for order in ORDERS
        )
        raised = Fraction(best + abs(best) * _MARGIN)
    return max(Fraction(math.ceil(raised * _GRID), _GRID), Fraction(0))


def failure_budget(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a failure probability that adds at most `delta` to the delta of an epsilon-DP release.

    A release may fail with a small probability f, on the data and on its neighbour. That adds at
    most f(1 + e**epsilon) to its delta. The code divides by 4**ceil(epsilon), which is at least 1 +
    e**epsilon for every epsilon above zero.
    """
    return delta / (1 << 2 * math.ceil(epsilon))


def epsilon_with_failures(
    curve: Callable[[int], Fraction], delta: Fraction, failure: Fraction, parts: int = 1
) -> Fraction | None:
    """Return the epsilon at delta of a release whose guarantee fails with probability `failure`.

    The failures use up a share of delta first. The Rényi conversion to epsilon gets the rest of
    delta, divided by `parts`: one share for each order that may be chosen later. The result is None
    if delta is too small for the failures.
    """
    for whole in itertools.count(1):
        rest = delta - failure * (1 << 2 * whole)
        if rest <= 0:
            return None
        found = epsilon_at(curve, rest / parts)
        if found <= whole:
            return found
    return None


@lru_cache(maxsize=256)
def _kappa(order: int) -> Decimal:
    with localcontext(_CONTEXT):
        t = Decimal(order - 1)
        return (1 + t) * (1 + t).ln() - t * t.ln()


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
