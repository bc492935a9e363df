"""Permute-and-flip over integer utilities (McKenna, Sheldon 2020), exact.

In a random order, each candidate is taken with probability exp(-rate * gap), its gap being the
distance to the best utility. It is the same to flip every coin and to take one of the heads, each
as likely (permute_and_flip.proof.md); so every candidate costs the same eight bytes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.dp.sampling.certified_arithmetic import Uniform, exp_minus, is_uniform_below
from sfumato.dp.sampling.exponential_powers import MOST_OFF, Words, lower_powers
from sfumato.dp.sampling.threshold_table import Integers

PICK_BITS: Final = 256  # of the uniform number that picks one of the heads
_COIN_BITS: Final = 64


def rho_of(epsilon: Fraction) -> Fraction:
    """Return what one choice costs: epsilon**2 / 2; the bounded range of exp() is not its own."""
    return Fraction(epsilon) ** 2 / 2


def permute_and_flip(utilities: Integers, rate: Fraction, dice: Dice) -> int:
    """Return one index; better ones are likelier. The rate is that of `choosing.rate_for`."""
    if utilities.ndim != 1 or utilities.size == 0:
        raise Bug("permute-and-flip needs at least one candidate")
    heads = np.flatnonzero(_coins(rate, _gaps(utilities), dice))
    return int(heads[pick_below(heads.size, dice)])


def _gaps(utilities: Integers) -> Words:
    """Return by how much each utility is below the best; no 64-bit pair overflows."""
    best: np.uint64 = utilities.max().view(np.uint64)
    return np.asarray(best - utilities.view(np.uint64), dtype=np.uint64)


def _coins(rate: Fraction, gaps: Words, dice: Dice) -> NDArray[np.bool_]:
    """Return for each gap whether a fresh uniform lies below exp(-rate * gap); exact."""
    uniforms = np.frombuffer(dice.draw(8 * gaps.size), dtype="<u8")
    heads = uniforms >> np.uint64(1)
    lows = lower_powers(rate, gaps)
    kept = np.asarray(heads < lows)
    is_open = ~kept & (heads < lows + np.uint64(MOST_OFF))
    for place in np.flatnonzero(is_open):
        kept[place] = _exact_coin(rate, int(gaps[place]), int(uniforms[place]), dice)
    return kept


def _exact_coin(rate: Fraction, gap: int, head: int, dice: Dice) -> bool:
    uniform = Uniform(head, _COIN_BITS)
    return is_uniform_below(uniform, lambda bits: exp_minus(rate * gap, bits), dice)


def pick_below(count: int, dice: Dice) -> int:
    """Return a number below the count, each as likely: floor(u * count) of a uniform u."""
    uniform = Uniform(int.from_bytes(dice.draw(PICK_BITS // 8), "little"), PICK_BITS)
    while (first := _floor_of(uniform.prefix * count, uniform)) != _floor_of(
        (uniform.prefix + 1) * count - 1, uniform
    ):
        uniform = uniform.longer(dice)
    return first


def _floor_of(scaled: int, uniform: Uniform) -> int:
    return scaled >> uniform.bits
