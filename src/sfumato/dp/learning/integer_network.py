"""A small network in exact arithmetic: whole numbers that doubles hold, in whatever order.

A clipped sum is private only if nobody's row moves what *other* rows add to it. In floats it would:
sums depend on their order, and a rounding at the edge of a ReLU flips a whole gradient. So what is
multiplied is cut to a grid first, so coarse that every product and every partial sum is a whole
number below 2**53. What a row adds is then a function of the row alone, to the last bit
(exact_arithmetic.proof.md; tests/dp/learning/test_integer_network.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.learning.input_layers import MOST_ADDED, Backs, Front, Passed, passed
from sfumato.dp.learning.input_layers import entered as entered_in
from sfumato.dp.learning.input_layers import packed as packed_in
from sfumato.dp.learning.integer_grid import (
    BACK_BITS,
    EDGE,
    FARTHEST,
    INPUT_BITS,
    SUM_BITS,
    WEIGHT_BITS,
    Inputs,
    Numbers,
    Weights,
    activate,
    cut,
    inputs_of,
    leave,
    norms_of,
    on_back_grid,
    slope_of,
    squared,
)
from sfumato.dp.learning.training_task import SQUARES
from sfumato.dp.refusal import Refused

AT_ONCE: Final = 4096  # rows: 2**12 products of 2**37 stay below 2**53
_CACHED: Final = 1 << 16  # numbers of the widest layer at once: they stay in the cache
_CUT: Final = 1 << 18  # numbers at once that go through a front
_THROUGH: Final = 1 << 20  # numbers at once that go through people's own layers
_SHORTER: Final = 1 - 2.0**-40  # more than what a norm in floats can be off by
_EXP_BITS: Final = 30
_MOST: Final = 2.0**20  # of a number that moved, before the whole is clipped

__all__ = [
    "AT_ONCE", "SUM_BITS", "Inputs", "Network", "Numbers", "People", "Walk", "Weights",
    "bad_weights", "inputs_of", "unpacked",
]  # fmt: skip


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
class Gradients:
    """What went into each linear layer and what comes back to it, and to a front, on their grids.

    Of rows, or of people x rows.
    """

    ins: Sequence[Numbers]
    backs: Sequence[Numbers]
    front: Backs | None = None

    def kept(self, kept: Numbers) -> Gradients:
        """Return the same with nothing coming back where `kept` (people x rows x 1) is 0."""
        front = None if self.front is None else self.front.kept(kept)
        return Gradients(self.ins, [back * kept for back in self.backs], front)

    def sums(self) -> Numbers:
        """Return the gradients, added up over the rows: flat, and of each person if there are."""
        parts = [] if self.front is None else [self.front.sums()]
        for into, back in zip(self.ins, self.backs, strict=True):
            whole = np.swapaxes(back, -1, -2) @ into
            flat = whole.reshape(*whole.shape[:-2], -1)
            parts += [flat, back.sum(axis=-2) * 2.0**INPUT_BITS]
        return np.concatenate(parts, axis=-1)

    def clipped_sums(self, clip: float) -> Numbers:
        """Return the sum of the rows' gradients, each so much shorter that it is at most `clip`.

        A gradient of a linear layer is an outer product, so its norm is a product of norms; cutting
        towards zero makes none longer.
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
        """Return the linear layers' part, each row so much shorter."""
        return Gradients(self.ins, [np.trunc(back * scale[:, None]) for back in self.backs])


@dataclass(frozen=True)
class Network:
    """Layers of these widths, from the features, or a front's numbers, to what is said of them."""

    widths: tuple[int, ...]
    activation: str
    loss: str
    front: Front | None = None

    @property
    def sides(self) -> tuple[tuple[int, int, int], ...]:
        """Return rows, columns and biases of each layer's numbers, in their order."""
        linear = tuple((outs, ins, outs) for ins, outs in pairwise(self.widths))
        return linear if self.front is None else (*self.front.sides, *linear)

    @property
    def size(self) -> int:
        """Return how many numbers the model is."""
        return sum(rows * columns + biases for rows, columns, biases in self.sides)

    @property
    def through(self) -> int:
        """Return how many numbers of a row there are at once."""
        return sum(self.widths) + (0 if self.front is None else self.front.through)

    def weights(self, flat: Numbers) -> Weights:
        """Return the layers of a flat model, or of several, cut to the grid of weights."""
        made: Weights = []
        start = 0
        for rows, columns, biases in self.sides:
            matrix = flat[..., start : start + rows * columns]
            matrix = matrix.reshape(*flat.shape[:-1], rows, columns)
            start += rows * columns
            bias = flat[..., start : start + biases]
            made.append((cut(matrix, WEIGHT_BITS), cut(bias, WEIGHT_BITS)))
            start += biases
        return made

    def entered(self, rows: Numbers) -> Numbers:
        """Return features from 0 to 1 as they go into the network, in whole numbers."""
        return entered_in(rows, self.front)

    def packed(self, rows: Numbers) -> Inputs:
        """Return the same as it is kept."""
        return packed_in(rows, self.front)

    def says(self, weights: Weights, rows: Numbers) -> Numbers:
        """Return what the network says of rows whose features lie from 0 to 1."""
        found = [self._forward(weights, some)[1] for some in self._few(self.entered(rows))]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def clipped_sum(
        self, weights: Weights, rows: Numbers, target: Numbers, clip: float
    ) -> NDArray[np.int64]:
        """Return the sum of the rows' clipped gradients, in units of 2**-30; exact."""
        return self.clipped_sum_of(weights, self.packed(rows), target, clip)

    def clipped_sum_of(
        self, weights: Weights, inputs: Inputs, target: Numbers, clip: float
    ) -> NDArray[np.int64]:
        """Return the same of rows that are on the grid of inputs already."""
        total = np.zeros(self.size, dtype=np.int64)
        at_once = min(self._at_once(_CUT), max(1, _CACHED // max(self.widths)))
        for start in range(0, len(inputs), at_once):
            part = slice(start, start + at_once)
            found = self._gradients(weights, inputs[part].astype(np.float64), target[part])
            total += found.clipped_sums(clip).astype(np.int64)
        return total

    def whole_sum(self, weights: Weights, inputs: Inputs, target: Numbers) -> Numbers:
        """Return the sum of the rows' gradients, none of them clipped, in units of 2**-30."""
        total = np.zeros(self.size)
        at_once = self._at_once(_THROUGH)
        for start in range(0, len(inputs), at_once):
            part = slice(start, start + at_once)
            found = self._gradients(weights, inputs[part].astype(np.float64), target[part])
            total += found.sums().astype(np.int64)
        return total

    def _at_once(self, room: int) -> int:
        """Return how many rows are added up at once: their sums stay exact, and fit the room."""
        if self.front is None:
            return AT_ONCE
        places = MOST_ADDED // self.front.most_places
        return max(1, min(AT_ONCE, places, room // self.front.through))

    def _few(self, entered: Numbers) -> Iterator[Numbers]:
        """Yield the rows, as many at a time as there is room for; all where there is no front."""
        at_once = max(1, len(entered)) if self.front is None else self._at_once(_THROUGH)
        for start in range(0, max(1, len(entered)), at_once):
            yield entered[start : start + at_once]

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
        at_once = max(1, _THROUGH // (max(1, len(total)) * self.through))
        for start in range(0, people.rows.shape[1], at_once):
            part = slice(start, start + at_once)
            found = self._gradients(weights, people.rows[:, part], people.target[:, part])
            total += found.kept(kept[:, part]).sums()
        return total

    def _forward(
        self, weights: Weights, entered: Numbers
    ) -> tuple[list[Numbers], Numbers, Passed | None]:
        """Return what goes into each linear layer, in 2**-12, and what comes out of the last.

        And what went through the front, if there is one.
        """
        through, linear = None, weights
        if self.front is not None:
            through = passed(self.front, weights, entered, self.activation)
            linear = weights[len(self.front.sides) :]
        ins, value = [], entered if through is None else through.out
        for place, (matrix, bias) in enumerate(linear):
            ins.append(value)
            value = leave(value, matrix, bias)
            if place < len(linear) - 1:
                activate(self.activation, value)
        return ins, np.clip(value, -FARTHEST, FARTHEST, out=value), through

    def _gradients(self, weights: Weights, entered: Numbers, target: Numbers) -> Gradients:
        """Return what went into each layer and what comes back to it, both on their grids."""
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
        """Return the loss's derivative by what was said, in 2**-18."""
        if self.loss == SQUARES:
            off = 2 * (said - inputs_of(target[..., None]) * 2.0**-INPUT_BITS)
            return np.trunc(np.clip(off * 2.0**BACK_BITS, -EDGE, EDGE))
        grown = np.floor(np.exp(said - said.max(axis=-1, keepdims=True)) * 2.0**_EXP_BITS)
        share = grown / grown.sum(axis=-1, keepdims=True)  # the sum is of whole numbers
        wanted = np.arange(said.shape[-1]) == target[..., None]
        return np.asarray(np.trunc((share - wanted) * 2.0**BACK_BITS))


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


def _scale(squares: Numbers, clip: float) -> Numbers:
    """Return by how much each row is shortened, by its squared norm in 2**-60."""
    norms = np.sqrt(squares) * 2.0**-SUM_BITS
    return np.asarray(np.minimum(1.0, clip * _SHORTER / np.maximum(norms, 2.0**-SUM_BITS)))


def _shortened(moved: Numbers, clip: float) -> NDArray[np.int64]:
    """Return each person's numbers in 2**-30, so much shorter that all are at most `clip` long."""
    scale = np.minimum(1.0, clip * _SHORTER / np.maximum(norms_of(moved), 2.0**-SUM_BITS))
    return np.asarray(np.trunc(moved * scale * 2.0**SUM_BITS), dtype=np.int64)
