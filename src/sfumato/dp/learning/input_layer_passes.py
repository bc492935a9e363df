"""What goes through a network's front and comes back, in whole numbers, in whatever order.

A kernel is a linear layer that is used at many places, so a row's gradient is a sum over them. It
may cancel, and cutting its parts would then make it longer: so it is made for each row by itself,
measured, shortened (clipping), and only then added to others (exact_arithmetic.proof.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sfumato.dp.learning.input_layers import Front, Stage, Table
from sfumato.dp.learning.integer_grid import (
    INPUT_BITS,
    WEIGHT_BITS,
    Numbers,
    Weights,
    activate,
    leave,
    norms_of,
    on_back_grid,
    slope_of,
    squared,
)


@dataclass(frozen=True)
class Passed:
    """What went through a front: rows, or people x rows."""

    front: Front
    patches: list[Numbers]  # of each convolution: rows x places x what lies under the kernel
    after: list[Numbers]  # what each gave, before the pool: rows x height x width x channels
    entries: list[NDArray[np.intp]]  # of each table: which entry is chosen
    out: Numbers  # what goes into the first linear layer

    def backs(self, weights: Weights, back: Numbers, activation: str) -> Backs:
        """Return what comes back to kernels and tables, by what comes back to `out`."""
        lead, tables, start = back.shape[:-1], list[Numbers](), self.front.outs
        for table in reversed(self.front.tables):
            start -= table.width
            found = back[..., start : start + table.width].copy()
            on_back_grid(found)
            tables.append(found)
        kernels: list[Numbers] = []
        if self.front.stages:
            pictures = back[..., : self.front.drawn].reshape(*lead, *self.front.stages[-1].leaves)
            kernels = self._to_kernels(weights, np.moveaxis(pictures, -3, -1), activation)
        return Backs(self, kernels, tables[::-1])

    def _to_kernels(self, weights: Weights, back: Numbers, activation: str) -> list[Numbers]:
        """Return what comes back to each kernel at each of its places."""
        found: list[Numbers] = []
        for number in range(len(self.after) - 1, -1, -1):
            stage, after = self.front.stages[number], self.after[number]
            at_places = unpooled(back, stage) * slope_of(activation, after)
            on_back_grid(at_places)
            lead = at_places.shape[:-3]
            found.append(at_places.reshape(*lead, stage.places, stage.conv.channels))
            if number:
                under = _in_a_row(found[-1]) @ weights[number][0]
                under *= 2.0**-WEIGHT_BITS
                back = laid_down(under.reshape(*lead, stage.places, stage.patch), stage)
        return found[::-1]


@dataclass(frozen=True)
class Backs:
    """What comes back to a front, and the gradients that follow, in 2**-30."""

    passed: Passed
    kernels: list[Numbers]  # rows x places x channels
    tables: list[Numbers]  # rows x an entry's numbers

    def kept(self, kept: Numbers) -> Backs:
        """Return the same with nothing coming back where `kept` (people x rows x 1) is 0."""
        kernels = [back * kept[..., None] for back in self.kernels]
        return Backs(self.passed, kernels, [back * kept for back in self.tables])

    def each(self) -> Numbers:
        """Return each row's gradient of all kernels, flat."""
        parts: list[Numbers] = []
        for patches, back in zip(self.passed.patches, self.kernels, strict=True):
            whole = np.swapaxes(back, -1, -2) @ patches
            parts += [whole.reshape(len(back), -1), back.sum(axis=1) * 2.0**INPUT_BITS]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(self.passed.out), 0))

    def squares(self, each: Numbers) -> Numbers:
        """Return each row's squared norm, of kernels and tables; never too small."""
        found = np.zeros(len(each))
        if each.shape[1]:
            found += np.square(norms_of(each)[:, 0])
        for back in self.tables:
            found += squared(back) * 4.0**INPUT_BITS
        return found

    def shortened(self, each: Numbers, scale: Numbers) -> Numbers:
        """Return the sum of the rows' gradients, each so much shorter, cut towards zero."""
        tables = [np.trunc(back * scale[:, None]) for back in self.tables]
        kernels = np.trunc(each * scale[:, None]).sum(axis=0)
        return np.concatenate([kernels, *self._table_sums(tables)], axis=-1)

    def sums(self) -> Numbers:
        """Return the gradients, added up over the rows: flat, and of each person if there are."""
        parts: list[Numbers] = []
        for patches, back in zip(self.passed.patches, self.kernels, strict=True):
            at_places = _in_a_row(back)
            whole = np.swapaxes(at_places, -1, -2) @ _in_a_row(patches)
            flat = whole.reshape(*whole.shape[:-2], -1)
            parts += [flat, at_places.sum(axis=-2) * 2.0**INPUT_BITS]
        return np.concatenate([*parts, *self._table_sums(self.tables)], axis=-1)

    def _table_sums(self, backs: Sequence[Numbers]) -> list[Numbers]:
        tables = zip(self.passed.front.tables, self.passed.entries, backs, strict=True)
        return [_added_by_entry(table, entries, back) for table, entries, back in tables]


def passed(front: Front, weights: Weights, entered: Numbers, activation: str) -> Passed:
    """Return what goes through the front, on the grid of inputs."""
    lead = entered.shape[:-1]
    patches, after = list[Numbers](), list[Numbers]()
    parts: list[Numbers] = []
    if front.stages:
        pixels = entered[..., : int(np.prod(front.image))].reshape(*lead, *front.image)
        value = np.moveaxis(pixels, -3, -1)
        for stage, (matrix, bias) in zip(front.stages, weights, strict=False):
            patches.append(patches_of(value, stage))
            found = leave(_in_a_row(patches[-1]), matrix, bias)
            activate(activation, found)
            after.append(found.reshape(*lead, *stage.sides, stage.conv.channels))
            value = pooled(after[-1], stage)
        parts.append(np.moveaxis(value, -1, -3).reshape(*lead, front.drawn))
    parts.append(entered[..., front.rest])
    entries = [entered[..., table.place].astype(np.intp) for table in front.tables]
    for chosen, (matrix, _) in zip(entries, weights[len(front.stages) :], strict=False):
        parts.append(np.floor(_of_entries(matrix, chosen) * 2.0 ** (INPUT_BITS - WEIGHT_BITS)))
    return Passed(front, patches, after, entries, np.concatenate(parts, axis=-1))


def patches_of(value: Numbers, stage: Stage) -> Numbers:
    """Return what lies under the kernel at each of its places, by channel, down and across."""
    conv, (down, across) = stage.conv, stage.sides
    around = [(0, 0)] * (value.ndim - 3) + [(conv.padding, conv.padding)] * 2 + [(0, 0)]
    windows = sliding_window_view(np.pad(value, around), (conv.kernel,) * 2, axis=(-3, -2))
    windows = windows[..., :: conv.stride, :: conv.stride, :, :, :]
    return windows[..., :down, :across, :, :, :].reshape(
        *value.shape[:-3], stage.places, stage.patch
    )


def laid_down(under: Numbers, stage: Stage) -> Numbers:
    """Return what comes back to the picture: under every place, where kernels lie over another."""
    conv, (channels, height, width) = stage.conv, stage.enters
    lead, (down, across) = under.shape[:-2], stage.sides
    edge = 2 * conv.padding
    found = np.zeros((*lead, height + edge, width + edge, channels))
    parts = under.reshape(*lead, down, across, channels, conv.kernel, conv.kernel)
    for y in range(conv.kernel):
        for x in range(conv.kernel):
            rows = slice(y, y + conv.stride * (down - 1) + 1, conv.stride)
            columns = slice(x, x + conv.stride * (across - 1) + 1, conv.stride)
            found[..., rows, columns, :] += parts[..., y, x]
    inside = slice(conv.padding, conv.padding + height), slice(conv.padding, conv.padding + width)
    return found[..., inside[0], inside[1], :]


def pooled(value: Numbers, stage: Stage) -> Numbers:
    """Return averages over squares of places, on the grid; what is left at the edge is dropped."""
    pool, (channels, down, across) = stage.conv.pool, stage.leaves
    if pool == 1:
        return value
    whole = value[..., : down * pool, : across * pool, :]
    squares = whole.reshape(*value.shape[:-3], down, pool, across, pool, channels)
    return np.asarray(np.floor(squares.sum(axis=(-4, -2)) / pool**2))


def unpooled(back: Numbers, stage: Stage) -> Numbers:
    """Return what comes back to each place of the squares that were averaged."""
    pool, (height, width) = stage.conv.pool, stage.sides
    if pool == 1:
        return back
    wide = np.repeat(np.repeat(back * (1.0 / pool**2), pool, axis=-3), pool, axis=-2)
    short = [(0, 0)] * (back.ndim - 3)
    short += [(0, height - wide.shape[-3]), (0, width - wide.shape[-2]), (0, 0)]
    return np.pad(wide, short)


def _in_a_row(numbers: Numbers) -> Numbers:
    """Return the places of all rows, of each person if there are, one after the other."""
    lead, places = numbers.shape[:-3], numbers.shape[-3] * numbers.shape[-2]
    return numbers.reshape(*lead, places, numbers.shape[-1])


def _of_entries(matrix: Numbers, chosen: NDArray[np.intp]) -> Numbers:
    """Return the chosen entries of a table, or of each person's own."""
    if matrix.ndim == 2:
        return np.asarray(matrix[chosen])
    return np.asarray(matrix[np.arange(len(matrix))[:, None], chosen])


def _added_by_entry(table: Table, chosen: NDArray[np.intp], back: Numbers) -> Numbers:
    """Return what came back to each entry, flat: whole numbers, in whatever order."""
    lead = chosen.shape[:-1]
    whole = np.zeros((*lead, table.entries, table.width))
    where = (chosen,) if not lead else (np.arange(lead[0])[:, None], chosen)
    np.add.at(whole, where, back)
    whole *= 2.0**INPUT_BITS
    return whole.reshape(*lead, -1)
