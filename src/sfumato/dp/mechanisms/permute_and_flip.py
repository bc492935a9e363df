"""The permute-and-flip mechanism over integer utilities (McKenna, Sheldon 2020), sampled exactly.

Permute-and-flip visits the candidates in random order. It accepts each with probability exp(-rate *
gap), where the gap is the difference to the best utility. This code flips the coins of all
candidates, and picks one of the heads uniformly. The distribution is the same
(permute_and_flip.proof.md), and every candidate consumes eight random bytes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Uniform, exp_minus, is_uniform_below
from sfumato.dp.sampling.exponential_powers import (
    MAX_ERROR,
    UintArray,
    gaps_to_best,
    lower_powers,
)
from sfumato.dp.sampling.threshold_table import Integers

PICK_BITS: Final = 256  # random bits to pick one of the heads
_COIN_BITS: Final = 64


def rho_of(epsilon: Fraction) -> Fraction:
    """Return the zCDP cost of one permute-and-flip choice: rho = epsilon**2 / 2.

    It is not epsilon**2 / 8: the bounded range of the exponential mechanism does not hold here.
    """
    return Fraction(epsilon) ** 2 / 2


def permute_and_flip(utilities: Integers, rate: Fraction, dice: RandomSource) -> int:
    """Choose one candidate by permute-and-flip; return its index.

    `exponential.rate_for` computes the rate.
    """
    if utilities.ndim != 1 or utilities.size == 0:
        raise Bug("permute-and-flip needs at least one candidate")
    heads = np.flatnonzero(_coins(rate, gaps_to_best(utilities), dice))
    return int(heads[pick_below(heads.size, dice)])


def _coins(rate: Fraction, gaps: UintArray, dice: RandomSource) -> NDArray[np.bool_]:
    """Return a mask of the candidates whose coin shows heads, with probability exp(-rate * gap).

    The gap of a candidate is how far its utility is below the best.
    """
    uniforms = np.frombuffer(dice.draw(8 * gaps.size), dtype="<u8")
    heads = uniforms >> np.uint64(1)
    lows = lower_powers(rate, gaps)
    kept = np.asarray(heads < lows)
    is_open = ~kept & (heads < lows + np.uint64(MAX_ERROR))
    for place in np.flatnonzero(is_open):
        kept[place] = _exact_coin(rate, int(gaps[place]), int(uniforms[place]), dice)
    return kept


def _exact_coin(rate: Fraction, gap: int, head: int, dice: RandomSource) -> bool:
    uniform = Uniform(head, _COIN_BITS)
    return is_uniform_below(uniform, lambda bits: exp_minus(rate * gap, bits), dice)


def pick_below(count: int, dice: RandomSource) -> int:
    """Pick a uniform random integer from 0 to count - 1, exactly.

    The code computes floor(u * count) for a uniform u, with as many bits as that needs.
    """
    uniform = Uniform(int.from_bytes(dice.draw(PICK_BITS // 8), "little"), PICK_BITS)
    while (first := _floor_of(uniform.prefix * count, uniform)) != _floor_of(
        (uniform.prefix + 1) * count - 1, uniform
    ):
        uniform = uniform.longer(dice)
    return first


def _floor_of(scaled: int, uniform: Uniform) -> int:
    return scaled >> uniform.bits
