"""Fixed-point arithmetic for exact training: values are integers on grids, stored as doubles.

The grids are so coarse that products and their sums stay exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Inputs = NDArray[np.uint16]  # rows on the input grid, in a quarter of the memory that doubles need
Weights = list[tuple[Numbers, Numbers]]  # per layer: matrix (outs x ins) and biases (outs)
INPUT_BITS: Final = 12  # layer inputs are multiples of 2**-12, up to 2**5
WEIGHT_BITS: Final = 16  # weights are multiples of 2**-16, up to 2**5
BACK_BITS: Final = 18  # backpropagated values are multiples of 2**-18, up to 2**2
SUM_BITS: Final = INPUT_BITS + BACK_BITS  # so gradients are multiples of 2**-30
MAX_MAGNITUDE: Final = 32.0  # weights and outputs are clamped to this magnitude
MAX_BACK: Final = 4.0 * 2.0**BACK_BITS  # backpropagated values are clamped to this many units
_NORM_BITS: Final = 17  # bits of the largest number in a norm: 2**16 squares of 2**34 are < 2**53


def inputs_of(rows: Numbers) -> Numbers:
    """Convert feature values (0 to 1) to integers on the input grid, in units of 2**-12."""
    return np.floor(np.clip(rows, 0.0, 1.0) * 2.0**INPUT_BITS)


def to_grid(numbers: Numbers, bits: int) -> Numbers:
    """Clamp numbers to -32..32 and round them to integers in units of 2**-bits."""
    return np.asarray(np.rint(np.clip(numbers, -MAX_MAGNITUDE, MAX_MAGNITUDE) * 2.0**bits))


def apply_linear(value: Numbers, matrix: Numbers, bias: Numbers) -> Numbers:
    """Apply a linear layer to inputs on the integer grid; the outputs are real numbers."""
    found = np.asarray(value @ np.swapaxes(matrix, -1, -2))  # changed in place below
    found += bias[..., None, :] * 2.0**INPUT_BITS
    found *= 2.0 ** -(INPUT_BITS + WEIGHT_BITS)
    return found


def activate(activation: str, value: Numbers) -> None:
    """Apply the activation function to a layer's outputs and round them to the grid, in place."""
    if activation == "tanh":
        np.tanh(value, out=value)
    else:
        np.clip(value, 0.0, MAX_MAGNITUDE, out=value)
    value *= 2.0**INPUT_BITS
    np.floor(value, out=value)


def slope_of(activation: str, after: Numbers) -> Numbers | NDArray[np.bool_]:
    """Return the derivative of the activation function at each neuron, from the neuron's output."""
    if activation == "tanh":
        return np.asarray(1.0 - np.square(after * 2.0**-INPUT_BITS))
    return np.asarray(after > 0)


def on_back_grid(back: Numbers) -> None:
    """Clamp backpropagated values to -4..4 and truncate them towards zero, in place.

    They are integers of up to `MAX_BACK` afterwards, in units of 2**-18.
    """
    np.clip(back, -MAX_BACK, MAX_BACK, out=back)
    np.trunc(back, out=back)


def squared(numbers: Numbers) -> Numbers:
    """Return the sum of squares of each row of numbers: its squared L2 norm.

    The values are integers, and each sum is below 2**53, so it is exact in any order of addition.
    """
    return np.asarray(np.einsum("ij,ij->i", numbers, numbers))


def norms_of(numbers: Numbers) -> Numbers:
    """Return an upper bound of each row's L2 norm, as one column, exact in any order of addition.

    The code first rounds the numbers away from zero to integers. Their unit depends on the largest
    number of the row.
    """
    _, bits = np.frexp(np.abs(numbers).max(axis=1, keepdims=True))
    units = np.ceil(np.ldexp(np.abs(numbers), _NORM_BITS - bits))
    lengths = np.sqrt(np.square(units).sum(axis=1, keepdims=True))
    return np.asarray(np.ldexp(lengths, bits - _NORM_BITS))
