"""The grids on which all that is multiplied is counted: whole numbers, with room to add them up."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Inputs = NDArray[np.uint16]  # rows on the grid of inputs, a quarter of what they are as doubles
Weights = list[tuple[Numbers, Numbers]]  # of each layer: outs x ins, and outs
INPUT_BITS: Final = 12  # what goes into a layer is counted in 2**-12, up to 2**5
WEIGHT_BITS: Final = 16  # weights in 2**-16, up to 2**5
BACK_BITS: Final = 18  # what comes back to a layer in 2**-18, up to 2**2
SUM_BITS: Final = INPUT_BITS + BACK_BITS  # so gradients are counted in 2**-30
FARTHEST: Final = 32.0
EDGE: Final = 4.0 * 2.0**BACK_BITS
_NORM_BITS: Final = 17  # so many of the largest number: 2**16 squares of 2**34 stay below 2**53


def inputs_of(rows: Numbers) -> Numbers:
    """Return features from 0 to 1 on the grid of inputs, in whole numbers."""
    return np.floor(np.clip(rows, 0.0, 1.0) * 2.0**INPUT_BITS)


def cut(numbers: Numbers, bits: int) -> Numbers:
    """Return the numbers in whole units of 2**-bits, none farther than 2**5."""
    return np.asarray(np.rint(np.clip(numbers, -FARTHEST, FARTHEST) * 2.0**bits))


def leave(value: Numbers, matrix: Numbers, bias: Numbers) -> Numbers:
    """Return what a linear layer gives of what is on the grid of inputs, as numbers."""
    found = np.asarray(value @ np.swapaxes(matrix, -1, -2))  # from here on changed in place
    found += bias[..., None, :] * 2.0**INPUT_BITS
    found *= 2.0 ** -(INPUT_BITS + WEIGHT_BITS)
    return found


def activate(activation: str, value: Numbers) -> None:
    """Put what a layer gives through the activation and on the grid of inputs, in place."""
    if activation == "tanh":
        np.tanh(value, out=value)
    else:
        np.clip(value, 0.0, FARTHEST, out=value)
    value *= 2.0**INPUT_BITS
    np.floor(value, out=value)


def slope_of(activation: str, after: Numbers) -> Numbers | NDArray[np.bool_]:
    """Return the activation's derivative, from what it gave."""
    if activation == "tanh":
        return np.asarray(1.0 - np.square(after * 2.0**-INPUT_BITS))
    return np.asarray(after > 0)


def on_back_grid(back: Numbers) -> None:
    """Clamp what comes back and cut it towards zero, in place."""
    np.clip(back, -EDGE, EDGE, out=back)
    np.trunc(back, out=back)


def squared(numbers: Numbers) -> Numbers:
    """Return each row's sum of squares: whole numbers below 2**53, in whatever order."""
    return np.asarray(np.einsum("ij,ij->i", numbers, numbers))


def norms_of(numbers: Numbers) -> Numbers:
    """Return each row's norm, as one column: never too small, and no order of adding up moves it.

    It is of the numbers rounded away from zero, in whole units that follow the row's largest.
    """
    _, bits = np.frexp(np.abs(numbers).max(axis=1, keepdims=True))
    units = np.ceil(np.ldexp(np.abs(numbers), _NORM_BITS - bits))
    lengths = np.sqrt(np.square(units).sum(axis=1, keepdims=True))
    return np.asarray(np.ldexp(lengths, bits - _NORM_BITS))
