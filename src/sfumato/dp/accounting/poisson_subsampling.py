"""Privacy amplification by Poisson subsampling, in Rényi DP at integer orders.

Each person is sampled independently with probability q, and nobody learns who was sampled. The
Rényi divergences of the mechanism without sampling bound the divergences with sampling, in both
directions (poisson_subsampling.proof.md). The code rounds all results up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from operator import mul
from typing import Final

from sfumato.dp.refusal import Bug

Curve = Callable[[int], Fraction]  # maps an integer order >= 2 to a bound of the divergence
MAX_ORDER: Final = 512  # above this order no amplification is claimed
MAX_SCALED_DIVERGENCE: Final = (
    10_000  # largest (order - 1) * divergence; above it, no amplification is claimed
)
_UP: Final = Context(prec=50, rounding=ROUND_CEILING)
_MARGIN: Final = Decimal("1e-40")  # because exp and ln round to nearest, not up


def subsampled_renyi(curve: Curve, chance: Fraction) -> Curve:
    """Return the Rényi divergence bounds of a mechanism that runs on a secret sample of the people.

    `curve` bounds the divergence without sampling at each order, between the data with and without
    one person, in both directions. `chance` is the probability with which each person is sampled,
    afresh for each run.
    """
    if not 0 < chance <= 1:
        raise Bug("a chance is in (0, 1]")
    grown = [Decimal(1), Decimal(1)]  # exp((l - 1) * curve(l)), for l = 0, 1, ...

    def bound(order: int) -> Fraction:
        whole = curve(order)
        if order > MAX_ORDER or chance == 1:
            return whole
        with localcontext(_UP):
            while len(grown) <= order:
                exponent = (len(grown) - 1) * curve(len(grown))
                if exponent > MAX_SCALED_DIVERGENCE:
                    return whole
                grown.append(_decimal(exponent).exp() * (1 + _MARGIN))
            mean = sum(map(mul, weights(chance, order), grown), Decimal(0))
            found = (mean.ln() + _MARGIN) / (order - 1)
        return min(whole, Fraction(found))

    return bound


@lru_cache(maxsize=256)
def weights(chance: Fraction, order: int) -> tuple[Decimal, ...]:
    """Return the binomial probabilities that 0, 1, ..., `order` people are sampled, rounded up.

    They weigh the terms of the Rényi divergence of this order under Poisson subsampling. `chance`
    is the probability with which each person is sampled.
    """
    with localcontext(_UP):
        yes, no = _powers(_decimal(chance), order), _powers(_decimal(1 - chance), order)
        return tuple(
            Decimal(math.comb(order, count)) * yes[count] * no[order - count]
            for count in range(order + 1)
        )


def _powers(number: Decimal, max_power: int) -> list[Decimal]:
    found = [Decimal(1)]
    for _ in range(max_power):
        found.append(found[-1] * number)
    return found


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
