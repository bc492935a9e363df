"""Amplification by Poisson subsampling: everybody is in by a secret coin of their own.

Whoever is in only with a chance q, by a coin that nobody sees, moves less than somebody who is in:
divergences of whole orders of the mechanism itself give those of the sampled one, in both
directions (poisson_subsampling.proof.md). Everything is rounded up.
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

Curve = Callable[[int], Fraction]  # from a whole order, 2 at least, to a bound of the divergence
MOST_ORDER: Final = 512  # beyond it nothing is claimed from sampling
FAR: Final = 10_000  # of (order - 1) times the divergence: as good as no privacy at all
_UP: Final = Context(prec=50, rounding=ROUND_CEILING)
_MARGIN: Final = Decimal("1e-40")  # exp and ln round to the nearest


def subsampled_renyi(curve: Curve, chance: Fraction) -> Curve:
    """Return the divergences where each person is in with that chance, by secret fresh coins.

    `curve` bounds the mechanism's own, with a person beside without, in either direction.
    """
    if not 0 < chance <= 1:
        raise Bug("a chance lies in (0, 1]")
    grown = [Decimal(1), Decimal(1)]  # exp((l - 1) * curve(l)), for l = 0, 1, ...

    def bound(order: int) -> Fraction:
        whole = curve(order)
        if order > MOST_ORDER or chance == 1:
            return whole
        with localcontext(_UP):
            while len(grown) <= order:
                exponent = (len(grown) - 1) * curve(len(grown))
                if exponent > FAR:
                    return whole
                grown.append(_decimal(exponent).exp() * (1 + _MARGIN))
            mean = sum(map(mul, weights(chance, order), grown), Decimal(0))
            found = (mean.ln() + _MARGIN) / (order - 1)
        return min(whole, Fraction(found))

    return bound


@lru_cache(maxsize=256)
def weights(chance: Fraction, order: int) -> tuple[Decimal, ...]:
    """Return the chances that 0, 1, ... of so many coins say yes, rounded up."""
    with localcontext(_UP):
        yes, no = _powers(_decimal(chance), order), _powers(_decimal(1 - chance), order)
        return tuple(
            Decimal(math.comb(order, count)) * yes[count] * no[order - count]
            for count in range(order + 1)
        )


def _powers(number: Decimal, most: int) -> list[Decimal]:
    found = [Decimal(1)]
    for _ in range(most):
        found.append(found[-1] * number)
    return found


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
