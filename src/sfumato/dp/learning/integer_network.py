"""A small neural network in exact integer arithmetic, for DP-SGD and DP-FedAvg.

A sum of clipped gradients is private only if one row does not change what *other* rows add to it.
Float arithmetic violates this: sums depend on their order, and a rounding at the edge of a ReLU
changes a whole gradient. So the code rounds values to a grid before it multiplies them. The grid is
so coarse that every product and partial sum is an integer below 2**53. The contribution of a row
then depends on that row only, to the last bit (exact_arithmetic.proof.md;
tests/dp/learning/test_integer_network.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.learning.input_layers import MAX_ADDED, Backs, InputLayers, Passed, passed
from sfumato.dp.learning.input_layers import entered as entered_in
from sfumato.dp.learning.input_layers import packed as packed_in
from sfumato.dp.learning.integer_grid import (
    BACK_BITS,
    INPUT_BITS,
    MAX_BACK,
    MAX_MAGNITUDE,
    SUM_BITS,
    WEIGHT_BITS,
    Inputs,
    Numbers,
    Weights,
    activate,
    apply_linear,
    inputs_of,
    norms_of,
    on_back_grid,
    slope_of,
    squared,
    to_grid,
)
from sfumato.dp.learning.training_task import SQUARES
from sfumato.dp.refusal import Refused

AT_ONCE: Final = 4096  # rows per batch: 2**12 products of 2**37 stay below 2**53
_CACHED: Final = 1 << 16  # numbers of the widest layer per batch, so that they fit in the cache
_CUT: Final = 1 << 18  # numbers per batch in the input layers
_THROUGH: Final = 1 << 20  # numbers per batch if each person has their own weights
_SHORTER: Final = 1 - 2.0**-40  # margin for the float error of a norm
_EXP_BITS: Final = 30
_MOST: Final = 2.0**20  # limit of each number of an update before clipping

__all__ = [
    "AT_ONCE", "SUM_BITS", "Inputs", "Network", "Numbers", "People", "Walk", "Weights",
    "bad_weights", "inputs_of", "unpacked",
]  # fmt: skip


@dataclass(frozen=True)
class People:
    """Training rows grouped by person, as an array people x rows x features on the input grid.

    Each person has the same number of rows after padding. `counts` says how many are real.
    """

    rows: Numbers
    target: Numbers  # people x rows
    counts: Numbers  # rows of each person, at least one; the others are padding

    @property
    def kept(self) -> Numbers:
        """Return the mask of real rows: 1 for a data row, 0 for padding."""
        places = np.arange(self.rows.shape[1])
        return (places < self.counts[:, None]).astype(np.float64)[..., None]


@dataclass(frozen=True)
class Walk:
    """How each person's update is computed: local training steps, learning rate, and clipping norm.

    `proximal` is the strength of the pull towards the common model (FedProx).
    """

    steps: int
    rate: float
    proximal: float
    clip: float


@dataclass(frozen=True)
class Gradients:
    """The inputs and backpropagated values of each layer, from which gradients are computed.

    The leading axes are rows, or people x rows. All values are on their integer grids.
    """

    ins: Sequence[Numbers]
    backs: Sequence[Numbers]
    front: Backs | None = None

    def kept(self, kept: Numbers) -> Gradients:
        """Return a copy in which padding rows, where the mask is 0, have the gradient zero."""
        front = None if self.front is None else self.front.kept(kept)
        return Gradients(self.ins, [back * kept for back in self.backs], front)

    def sums(self) -> Numbers:
        """Sum the gradients over the rows; return the sum as one flat array of all parameters.

        If rows are grouped by person, there is one sum for each person.
        """
        parts = [] if self.front is None else [self.front.sums()]
        for into, back in zip(self.ins, self.backs, strict=True):
            whole = np.swapaxes(back, -1, -2) @ into
            flat = whole.reshape(*whole.shape[:-2], -1)
            parts += [flat, back.sum(axis=-2) * 2.0**INPUT_BITS]
        return np.concatenate(parts, axis=-1)

    def clipped_sums(self, clip: float) -> Numbers:
        """Sum the gradients of the rows, each clipped to the L2 norm `clip`, as a flat array.

        The gradient of a linear layer is an outer product, so its norm is a product of norms.
        Truncation towards zero never increases a norm.
        """
        squares = np.zeros(len(self.ins[0]))
        for into, back in zip(self.ins, self.backs, strict=True):
            squares += squared(back) * (squared(into) + 4.0**INPUT_BITS)
        if self.front is None:
            return self._shorter(_scale(squares, clip)).sums()
        each = self.front.each()
        scale = _scale(squares + self.front.squares(each), clip)
        linear = self._shorter(scale).sums()
        return np.concatenate([self.front.shortened(each, scale), linear])

    def _shorter(self, scale: Numbers) -> Gradients:
        """Clip the rows' gradients of the linear layers: scale each row by its clipping factor."""
        return Gradients(self.ins, [np.trunc(back * scale[:, None]) for back in self.backs])


@dataclass(frozen=True)
class Network:
    """A neural network of linear layers with these widths, in exact integer arithmetic.

    Optional input layers (`front`) come before the linear layers.
    """

    widths: tuple[int, ...]
    activation: str
    loss: str
    front: InputLayers | None = None

    @property
    def sides(self) -> tuple[tuple[int, int, int], ...]:
        """Return (rows, columns, biases) of the weights of each layer, in order."""
        linear = tuple((outs, ins, outs) for ins, outs in pairwise(self.widths))
        return linear if self.front is None else (*self.front.sides, *linear)

    @property
    def size(self) -> int:
        """Return the number of parameters of the model."""
        return sum(rows * columns + biases for rows, columns, biases in self.sides)

    @property
    def through(self) -> int:
        """Return how many numbers a forward pass keeps in memory for one data row."""
        return sum(self.widths) + (0 if self.front is None else self.front.through)

    def weights(self, flat: Numbers) -> Weights:
        """Split flat model parameters into layers, and round them to the weight grid.

        `flat` may have several models along its leading axes.
        """
        made: Weights = []
        start = 0
        for rows, columns, biases in self.sides:
            matrix = flat[..., start : start + rows * columns]
            matrix = matrix.reshape(*flat.shape[:-1], rows, columns)
            start += rows * columns
            bias = flat[..., start : start + biases]
            made.append((to_grid(matrix, WEIGHT_BITS), to_grid(bias, WEIGHT_BITS)))
            start += biases
        return made

    def entered(self, rows: Numbers) -> Numbers:
        """Convert feature values (0 to 1) to the network's inputs on the integer grid."""
        return entered_in(rows, self.front)

    def packed(self, rows: Numbers) -> Inputs:
        """Convert feature values (0 to 1) to the network's integer inputs, stored as uint16."""
        return packed_in(rows, self.front)

    def says(self, weights: Weights, rows: Numbers) -> Numbers:
        """Return the network's predictions (outputs) for rows of feature values from 0 to 1."""
        found = [self._forward(weights, some)[1] for some in self._few(self.entered(rows))]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def clipped_sum(
        self, weights: Weights, rows: Numbers, target: Numbers, clip: float
    ) -> NDArray[np.int64]:
        """Return the exact sum of the rows' clipped gradients, in units of 2**-30.

        `rows` has feature values from 0 to 1.
        """
        return self.clipped_sum_of(weights, self.packed(rows), target, clip)

    def clipped_sum_of(
        self, weights: Weights, inputs: Inputs, target: Numbers, clip: float
    ) -> NDArray[np.int64]:
        """Return the exact sum of the clipped gradients of rows given on the input grid.

        The unit is 2**-30.
        """
        total = np.zeros(self.size, dtype=np.int64)
        at_once = min(self._at_once(_CUT), max(1, _CACHED // max(self.widths)))
        for start in range(0, len(inputs), at_once):
            part = slice(start, start + at_once)
            found = self._gradients(weights, inputs[part].astype(np.float64), target[part])
            total += found.clipped_sums(clip).astype(np.int64)
        return total

    def whole_sum(self, weights: Weights, inputs: Inputs, target: Numbers) -> Numbers:
        """Return the sum of the rows' gradients without clipping, in units of 2**-30.

        A site uses it for its own training steps, before its whole update is clipped. The rows are
        given on the input grid.
        """
        total = np.zeros(self.size)
        at_once = self._at_once(_THROUGH)
        for start in range(0, len(inputs), at_once):
            part = slice(start, start + at_once)
            found = self._gradients(weights, inputs[part].astype(np.float64), target[part])
            total += found.sums().astype(np.int64)
        return total

    def _at_once(self, room: int) -> int:
        """Return the batch size: how many data rows are computed at once.

        All sums stay exact, and the memory stays within `room` numbers.
        """
        if self.front is None:
            return AT_ONCE
        places = MAX_ADDED // self.front.most_places
        return max(1, min(AT_ONCE, places, room // self.front.through))

    def _few(self, entered: Numbers) -> Iterator[Numbers]:
        """Yield the input rows in batches that fit in memory, for the forward pass.

        Without input layers, there is a single batch.
        """
        at_once = max(1, len(entered)) if self.front is None else self._at_once(_THROUGH)
        for start in range(0, max(1, len(entered)), at_once):
            yield entered[start : start + at_once]

    def people_sum(self, weights: Numbers, people: People, walk: Walk) -> NDArray[np.int64]:
        """Return the exact sum of the people's clipped model updates, in units of 2**-30.

        Each person starts from the same weights and takes local steps on their own rows. An update
        is start minus end, so the caller must subtract it from the weights.
        """
        begin = np.broadcast_to(weights, (len(people.counts), self.size))
        now = begin
        rate, drawn = walk.rate, walk.proximal
        with np.errstate(over="ignore", invalid="ignore"):  # too large a rate may overflow
            for _ in range(walk.steps):
                whole = self._own_sums(self.weights(now), people)
                slope = whole * 2.0**-SUM_BITS / people.counts[:, None]
                now = now - rate * (slope + drawn * (now - begin))
            moved = np.nan_to_num(begin - now, nan=0.0, posinf=_MOST, neginf=-_MOST)
        return np.asarray(_shortened(moved, walk.clip).sum(axis=0))

    def _own_sums(self, weights: Weights, people: People) -> Numbers:
        """Return the sum of gradients over each person's own rows, computed batch by batch.

        The sums are exact, because the gradients are integers.
        """
        kept = people.kept
        total = np.zeros((len(people.counts), self.size))
        at_once = max(1, _THROUGH // (max(1, len(total)) * self.through))
        for start in range(0, people.rows.shape[1], at_once):
            part = slice(start, start + at_once)
            found = self._gradients(weights, people.rows[:, part], people.target[:, part])
            total += found.kept(kept[:, part]).sums()
        return total

    def _forward(
        self, weights: Weights, entered: Numbers
    ) -> tuple[list[Numbers], Numbers, Passed | None]:
        """Run the forward pass; return the inputs of each linear layer, and the network's outputs.

        The inputs are in units of 2**-12. The third item of the result is the state of the input
        layers, if there are any.
        """
        through, linear = None, weights
        if self.front is not None:
            through = passed(self.front, weights, entered, self.activation)
            linear = weights[len(self.front.sides) :]
        ins, value = [], entered if through is None else through.out
        for place, (matrix, bias) in enumerate(linear):
            ins.append(value)
            value = apply_linear(value, matrix, bias)
            if place < len(linear) - 1:
                activate(self.activation, value)
        return ins, np.clip(value, -MAX_MAGNITUDE, MAX_MAGNITUDE, out=value), through

    def _gradients(self, weights: Weights, entered: Numbers, target: Numbers) -> Gradients:
        """Run the forward and backward pass; return all values that determine the gradients."""
        ins, said, through = self._forward(weights, entered)
        linear = weights[len(weights) - len(ins) :]
        back = self._back(said, target)
        backs = [back]
        for place in range(len(ins) - 1, 0, -1):
            back = back @ linear[place][0]
            back *= 2.0**-WEIGHT_BITS
            back *= slope_of(self.activation, ins[place])
            on_back_grid(back)
            backs.append(back)
        front = None
        if through is not None:
            back = back @ linear[0][0]
            back *= 2.0**-WEIGHT_BITS
            front = through.backs(weights, back, self.activation)
        return Gradients(ins, backs[::-1], front)

    def _back(self, said: Numbers, target: Numbers) -> Numbers:
        """Return the derivative of the loss with respect to the network's outputs `said`.

        It is in units of 2**-18. Backpropagation starts from it.
        """
        if self.loss == SQUARES:
            off = 2 * (said - inputs_of(target[..., None]) * 2.0**-INPUT_BITS)
            return np.trunc(np.clip(off * 2.0**BACK_BITS, -MAX_BACK, MAX_BACK))
        grown = np.floor(np.exp(said - said.max(axis=-1, keepdims=True)) * 2.0**_EXP_BITS)
        share = grown / grown.sum(axis=-1, keepdims=True)  # an exact sum of integers
        wanted = np.arange(said.shape[-1]) == target[..., None]
        return np.asarray(np.trunc((share - wanted) * 2.0**BACK_BITS))


def unpacked(message: bytes, size: int) -> Numbers:
    """Decode a model message: exactly `size` finite 32-bit floats; refuse anything else."""
    if len(message) != 4 * size:
        raise bad_weights(
            f"it has {len(message):,} bytes, but the training task needs {4 * size:,}"
        )
    found = np.frombuffer(message, dtype="<f4").astype(np.float64)
    if not np.isfinite(found).all():
        raise bad_weights("it has numbers that are not finite")
    return found


def bad_weights(fault: str) -> Refused:
    """Build the refusal of a model that does not fit the training task."""
    return Refused(
        "update-refused",
        f"The model cannot be trained: {fault}.",
        "Send finite 32-bit numbers, as many as the layers of the training task have.",
    )


def _scale(squares: Numbers, clip: float) -> Numbers:
    """Return the factor, at most 1, that clips each row's gradient to the norm `clip`.

    `squares` has the squared gradient norms, in units of 2**-60.
    """
    norms = np.sqrt(squares) * 2.0**-SUM_BITS
    return np.asarray(np.minimum(1.0, clip * _SHORTER / np.maximum(norms, 2.0**-SUM_BITS)))


def _shortened(moved: Numbers, clip: float) -> NDArray[np.int64]:
    """Clip each person's update to the norm `clip`; return integers in units of 2**-30."""
    scale = np.minimum(1.0, clip * _SHORTER / np.maximum(norms_of(moved), 2.0**-SUM_BITS))
    return np.asarray(np.trunc(moved * scale * 2.0**SUM_BITS), dtype=np.int64)
