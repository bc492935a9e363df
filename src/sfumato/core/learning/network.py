"""A small network in exact arithmetic: whole numbers that doubles hold, in whatever order.

A clipped sum is private only if nobody's row moves what *other* rows add to it. In floats it would:
sums depend on their order, and a rounding at the edge of a ReLU flips a whole gradient. So what is
multiplied is cut to a grid first, so coarse that every product and every partial sum is a whole
number below 2**53. What a row adds is then a function of the row alone, to the last bit
(exact.proof.md; tests/core/learning/test_network.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.learning.lesson import SQUARES
from sfumato.core.refusal import Refused

Numbers = NDArray[np.float64]
Inputs = NDArray[np.uint16]  # rows on the grid of inputs, a quarter of what they are as doubles
Weights = list[tuple[Numbers, Numbers]]  # of each layer: outs x ins, and outs
INPUT_BITS: Final = 12  # what goes into a layer is counted in 2**-12, up to 2**5
WEIGHT_BITS: Final = 16  # weights in 2**-16, up to 2**5
BACK_BITS: Final = 18  # what comes back to a layer in 2**-18, up to 2**2
SUM_BITS: Final = INPUT_BITS + BACK_BITS  # so gradients are counted in 2**-30
_FARTHEST: Final = 32.0
_EDGE: Final = 4.0 * 2.0**BACK_BITS
AT_ONCE: Final = 4096  # rows: 2**12 products of 2**37 stay below 2**53
_CACHED: Final = 1 << 16  # numbers of the widest layer at once: they stay in the cache
_THROUGH: Final = 1 << 20  # numbers at once that go through people's own layers
_SHORTER: Final = 1 - 2.0**-40  # more than what a norm in floats can be off by
_EXP_BITS: Final = 30
_MOST: Final = 2.0**20  # of a number that moved, before the whole is clipped
_NORM_BITS: Final = 17  # so many of the largest number: 2**16 squares of 2**34 stay below 2**53


@dataclass(frozen=True)
class People:
    """Rows by person: people x rows x features, on the grid of inputs, and how many are theirs."""

    rows: Numbers
    target: Numbers  # people x rows
    counts: Numbers  # of each person's rows, one at least; what stands after them counts nothing

    @property
    def kept(self) -> Numbers:
        """Return 1 for each row that is a person's, and 0 for what fills the place of one."""
        places = np.arange(self.rows.shape[1])
        return (places < self.counts[:, None]).astype(np.float64)[..., None]


@dataclass(frozen=True)
class Walk:
    """The steps that everybody takes on their own rows, and how far they may come in the end."""

    steps: int
    rate: float
    proximal: float
    clip: float


@dataclass(frozen=True)
class Network:
    """Layers of these widths, from the features to what is said of them."""

    widths: tuple[int, ...]
    activation: str
    loss: str

    @property
    def size(self) -> int:
        """Return how many numbers the model is."""
        return sum(ins * outs + outs for ins, outs in pairwise(self.widths))

    def weights(self, flat: Numbers) -> Weights:
        """Return the layers of a flat model, or of several, cut to the grid of weights."""
        made: Weights = []
        start = 0
        for ins, outs in pairwise(self.widths):
            matrix = flat[..., start : start + ins * outs]
            matrix = matrix.reshape(*flat.shape[:-1], outs, ins)
            start += ins * outs
            bias = flat[..., start : start + outs]
            made.append((_cut(matrix, WEIGHT_BITS), _cut(bias, WEIGHT_BITS)))
            start += outs
        return made

    def says(self, weights: Weights, rows: Numbers) -> Numbers:
        """Return what the network says of rows whose features lie from 0 to 1."""
        return self._forward(weights, inputs_of(rows))[1]

    def clipped_sum(
        self, weights: Weights, rows: Numbers, target: Numbers, clip: float
    ) -> NDArray[np.int64]:
        """Return the sum of the rows' clipped gradients, in units of 2**-30; exact."""
        return self.clipped_sum_of(weights, packed_inputs(rows), target, clip)

    def clipped_sum_of(
        self, weights: Weights, inputs: Inputs, target: Numbers, clip: float
    ) -> NDArray[np.int64]:
        """Return the same of rows that are on the grid of inputs already."""
        total = np.zeros(self.size, dtype=np.int64)
        at_once = min(AT_ONCE, max(1, _CACHED // max(self.widths)))
        for start in range(0, len(inputs), at_once):
            part = slice(start, start + at_once)
            ins, backs = self._gradients(weights, inputs[part].astype(np.float64), target[part])
            total += self._flat(ins, _clipped(ins, backs, clip))
        return total

    def whole_sum(self, weights: Weights, inputs: Inputs, target: Numbers) -> Numbers:
        """Return the sum of the rows' gradients, none of them clipped, in units of 2**-30."""
        total = np.zeros(self.size)
        for start in range(0, len(inputs), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            ins, backs = self._gradients(weights, inputs[part].astype(np.float64), target[part])
            total += self._flat(ins, backs)
        return total

    def people_sum(self, weights: Numbers, people: People, walk: Walk) -> NDArray[np.int64]:
        """Return the sum of how far people's own steps go *down*, each clipped; in 2**-30; exact.

        Every person begins with the same numbers and has layers of their own after the first step.
        """
        begin = np.broadcast_to(weights, (len(people.counts), self.size))
        now = begin
        rate, drawn = walk.rate, walk.proximal
        with np.errstate(over="ignore", invalid="ignore"):  # steps that are too long go anywhere
            for _ in range(walk.steps):
                whole = self._own_sums(self.weights(now), people)
                slope = whole * 2.0**-SUM_BITS / people.counts[:, None]
                now = now - rate * (slope + drawn * (now - begin))
            moved = np.nan_to_num(begin - now, nan=0.0, posinf=_MOST, neginf=-_MOST)
        return np.asarray(_shortened(moved, walk.clip).sum(axis=0))

    def _own_sums(self, weights: Weights, people: People) -> Numbers:
        """Return each person's gradients, added up over a few rows at a time: they are whole."""
        kept = people.kept
        total = np.zeros((len(people.counts), self.size))
        at_once = max(1, _THROUGH // (max(1, len(total)) * sum(self.widths)))
        for start in range(0, people.rows.shape[1], at_once):
            part = slice(start, start + at_once)
            ins, backs = self._gradients(weights, people.rows[:, part], people.target[:, part])
            total += self._sums(ins, [back * kept[:, part] for back in backs])
        return total

    def _forward(self, weights: Weights, entered: Numbers) -> tuple[list[Numbers], Numbers]:
        """Return what goes into each layer, in 2**-12, and what comes out of the last."""
        ins, value = [], entered
        for place, (matrix, bias) in enumerate(weights):
            ins.append(value)
            value = value @ np.swapaxes(matrix, -1, -2)  # from here on it is changed in place
            value += bias[..., None, :] * 2.0**INPUT_BITS
            value *= 2.0 ** -(INPUT_BITS + WEIGHT_BITS)
            if place < len(weights) - 1:
                self._activate(value)
        return ins, np.clip(value, -_FARTHEST, _FARTHEST, out=value)

    def _activate(self, value: Numbers) -> None:
        """Put what a layer gives through the activation and on the grid of inputs, in place."""
        if self.activation == "tanh":
            np.tanh(value, out=value)
        else:
            np.clip(value, 0.0, _FARTHEST, out=value)
        value *= 2.0**INPUT_BITS
        np.floor(value, out=value)

    def _gradients(
        self, weights: Weights, entered: Numbers, target: Numbers
    ) -> tuple[list[Numbers], list[Numbers]]:
        """Return what went into each layer and what comes back to it, both on their grids."""
        ins, said = self._forward(weights, entered)
        back = self._back(said, target)
        backs = [back]
        for place in range(len(weights) - 1, 0, -1):
            back = back @ weights[place][0]
            back *= 2.0**-WEIGHT_BITS
            back *= self._slope(ins[place])
            np.clip(back, -_EDGE, _EDGE, out=back)
            np.trunc(back, out=back)
            backs.append(back)
        return ins, backs[::-1]

    def _slope(self, after: Numbers) -> Numbers | NDArray[np.bool_]:
        """Return the activation's derivative, from what it gave."""
        if self.activation == "tanh":
            return np.asarray(1.0 - np.square(after * 2.0**-INPUT_BITS))
        return np.asarray(after > 0)

    def _back(self, said: Numbers, target: Numbers) -> Numbers:
        """Return the loss's derivative by what was said, in 2**-18."""
        if self.loss == SQUARES:
            off = 2 * (said - inputs_of(target[..., None]) * 2.0**-INPUT_BITS)
            return np.trunc(np.clip(off * 2.0**BACK_BITS, -_EDGE, _EDGE))
        grown = np.floor(np.exp(said - said.max(axis=-1, keepdims=True)) * 2.0**_EXP_BITS)
        share = grown / grown.sum(axis=-1, keepdims=True)  # the sum is of whole numbers
        wanted = np.arange(said.shape[-1]) == target[..., None]
        return np.asarray(np.trunc((share - wanted) * 2.0**BACK_BITS))

    def _flat(self, ins: Sequence[Numbers], backs: Sequence[Numbers]) -> NDArray[np.int64]:
        return self._sums(ins, backs).astype(np.int64)

    def _sums(self, ins: Sequence[Numbers], backs: Sequence[Numbers]) -> Numbers:
        """Return the gradients, added up over the rows: flat, and of each person if there are."""
        parts = []
        for into, back in zip(ins, backs, strict=True):
            whole = np.swapaxes(back, -1, -2) @ into
            flat = whole.reshape(*whole.shape[:-2], -1)
            parts += [flat, back.sum(axis=-2) * 2.0**INPUT_BITS]
        return np.concatenate(parts, axis=-1)


def inputs_of(rows: Numbers) -> Numbers:
    """Return features from 0 to 1 on the grid of inputs, in whole numbers."""
    return np.floor(np.clip(rows, 0.0, 1.0) * 2.0**INPUT_BITS)


def packed_inputs(rows: Numbers) -> Inputs:
    """Return features from 0 to 1 on the grid of inputs, as they are kept: at most 2**12 each."""
    return inputs_of(rows).astype(np.uint16)


def unpacked(message: bytes, size: int) -> Numbers:
    """Return a model as it travels: so many finite numbers of 32 bits, and nothing else."""
    if len(message) != 4 * size:
        raise bad_weights(f"it has {len(message):,} bytes, and the lesson's has {4 * size:,}")
    found = np.frombuffer(message, dtype="<f4").astype(np.float64)
    if not np.isfinite(found).all():
        raise bad_weights("it holds numbers that are not finite")
    return found


def bad_weights(fault: str) -> Refused:
    """Return the refusal of a model that is none of the lesson's."""
    return Refused(
        "update-refused",
        f"The model is not one to train: {fault}.",
        "Send finite numbers of 32 bits, as many as the lesson's layers have.",
    )


def _cut(numbers: Numbers, bits: int) -> Numbers:
    """Return the numbers in whole units of 2**-bits, none farther than 2**5."""
    return np.asarray(np.rint(np.clip(numbers, -_FARTHEST, _FARTHEST) * 2.0**bits))


def _clipped(ins: Sequence[Numbers], backs: Sequence[Numbers], clip: float) -> list[Numbers]:
    """Return what comes back, each row so much shorter that its whole gradient is at most `clip`.

    A gradient of a linear layer is an outer product, so its norm is a product of norms; cutting
    towards zero makes none longer.
    """
    squares = np.zeros(len(ins[0]))
    for into, back in zip(ins, backs, strict=True):
        squares += _squared(back) * (_squared(into) + 4.0**INPUT_BITS)
    norms = np.sqrt(squares) * 2.0**-SUM_BITS
    scale = np.minimum(1.0, clip * _SHORTER / np.maximum(norms, 2.0**-SUM_BITS))
    return [np.trunc(back * scale[:, None]) for back in backs]


def _squared(numbers: Numbers) -> Numbers:
    """Return each row's sum of squares: whole numbers below 2**53, in whatever order."""
    return np.asarray(np.einsum("ij,ij->i", numbers, numbers))


def _shortened(moved: Numbers, clip: float) -> NDArray[np.int64]:
    """Return each person's numbers in 2**-30, so much shorter that all are at most `clip` long.

    The norm is of the numbers rounded away from zero, in whole units that follow the largest: it is
    never too small, and no order of adding up moves it.
    """
    _, bits = np.frexp(np.abs(moved).max(axis=1, keepdims=True))
    units = np.ceil(np.ldexp(np.abs(moved), _NORM_BITS - bits))
    norms = np.ldexp(np.sqrt(np.square(units).sum(axis=1, keepdims=True)), bits - _NORM_BITS)
    scale = np.minimum(1.0, clip * _SHORTER / np.maximum(norms, 2.0**-SUM_BITS))
    return np.asarray(np.trunc(moved * scale * 2.0**SUM_BITS), dtype=np.int64)
