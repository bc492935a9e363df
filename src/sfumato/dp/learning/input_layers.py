"""The input layers of a network: convolutions over an image, and embedding tables.

An image is the first channels x height x width features, in the listed order. The value of a column
with an embedding table selects one entry (row) of the table, and training learns the entries. The
first linear layer gets the outputs of the convolutions, then the other features unchanged, then the
table entries. Each of these is in the order of the features.

Size limits keep all sums exact. The code measures the gradient of a row, and scales it to the norm
bound (clipping), only after these layers (exact_arithmetic.proof.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sfumato.dp.json_values import Json
from sfumato.dp.learning.integer_grid import (
    INPUT_BITS,
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
)
from sfumato.dp.refusal import Refused

MAX_OUTS: Final = 4096  # inputs of the first linear layer
MAX_SIDE: Final = 256
MAX_CONVS: Final = 4
MAX_CHANNELS: Final = 64
MAX_KERNEL: Final = 7
MAX_POOL: Final = 8
MAX_PLACES: Final = 4096  # positions of a kernel: 2**12 products, each at most 2**37
MAX_PATCH: Final = 2048  # numbers in a patch, or backpropagated to one number
MAX_CUT: Final = 1 << 20  # numbers in all patches of one row
MAX_ADDED: Final = 1 << 16  # positions times rows per batch: 2**16 products of 2**37 are 2**53
MAX_ENTRIES: Final = 4096  # entries of a table
MAX_TABLE: Final = 256  # numbers per entry
_CONV_KEYS: Final = ("channels", "kernel", "stride", "padding", "pool")


@dataclass(frozen=True)
class Conv:
    """The settings of one convolution layer: channels, kernel size, stride, padding, pooling.

    The activation function and `pool` x `pool` average pooling follow each convolution.
    """

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: int = 1

    def as_json(self) -> Json:
        """Return the convolution settings as JSON, for the messages of a training."""
        return {key: getattr(self, key) for key in _CONV_KEYS}


@dataclass(frozen=True)
class InputLayersSpec:
    """The input layers as a training task declares them, before the features' sizes are known.

    Most tasks declare none.
    """

    image: tuple[int, ...] = ()  # channels, height, width
    conv: tuple[Conv, ...] = ()
    embed: tuple[tuple[str, int], ...] = ()  # columns with tables, and the numbers per entry

    def as_json(self) -> Json:
        """Return the declared input layers as JSON, as a part of the training task's JSON.

        Without any, the JSON is empty, as in older tasks.
        """
        said: Json = {}
        if self.image:
            said |= {"image": list(self.image), "conv": [one.as_json() for one in self.conv]}
        if self.embed:
            said["embed"] = dict(self.embed)
        return said

    @property
    def columns(self) -> frozenset[str]:
        """Return the names of the columns that have embedding tables."""
        return frozenset(name for name, _ in self.embed)

    def front(self, features: Sequence[str], counts: Sequence[int]) -> InputLayers | None:
        """Build the input layers for these features, or return None if the task declares none.

        `counts` is the number of values of each feature, from the data card. Layers that do not fit
        the features are refused.
        """
        if not (self.image or self.conv or self.embed):
            return None
        wide = dict(self.embed)
        tables = tuple(
            Table(place, counts[place], wide[name])
            for place, name in enumerate(features)
            if name in wide
        )
        return _checked(InputLayers(len(features), self.image, self.conv, tables))

    def places(self, features: Sequence[str]) -> int:
        """Return at how many positions of an image a kernel is applied, or the most of any kernel.

        It is 1 without convolutions. Layers that do not fit the features are refused.
        """
        if self.columns - set(features):
            raise bad_input_layers("a column with a table is one of the features")
        front = self.front(features, [2] * len(features))  # 2: the table sizes do not matter here
        return 1 if front is None else front.most_places


NO_INPUT_LAYERS: Final = InputLayersSpec()


@dataclass(frozen=True)
class Stage:
    """One convolution with the size of its input image, from which all other sizes follow."""

    conv: Conv
    enters: tuple[int, ...]  # channels, height, width

    @property
    def sides(self) -> tuple[int, int]:
        """Return the number of kernel positions down and across the image."""
        over = 2 * self.conv.padding - self.conv.kernel
        down, across = ((side + over) // self.conv.stride + 1 for side in self.enters[1:])
        return down, across

    @property
    def places(self) -> int:
        """Return the total number of positions at which the kernel is applied."""
        return self.sides[0] * self.sides[1]

    @property
    def patch(self) -> int:
        """Return how many numbers a patch (the area of the image under the kernel) has."""
        return self.enters[0] * self.conv.kernel**2

    @property
    def size(self) -> int:
        """Return the number of parameters of the convolution: kernel weights and biases."""
        return self.conv.channels * (self.patch + 1)

    @property
    def leaves(self) -> tuple[int, int, int]:
        """Return channels, height and width of the convolution's output after pooling."""
        down, across = self.sides
        return self.conv.channels, down // self.conv.pool, across // self.conv.pool


@dataclass(frozen=True)
class Table:
    """The embedding table of one column: the feature at index `place` selects one entry (row)."""

    place: int
    entries: int
    width: int

    def chosen(self, scaled: Numbers) -> Numbers:
        """Convert feature values, scaled to 0..1, to the indices of the selected table entries.

        Values outside are clamped. A value k steps above the lower bound was divided by the number
        of steps, at most 4095. So the result is exactly k.
        """
        steps = self.entries - 1
        return np.floor(np.clip(scaled, 0.0, 1.0) * steps + 0.5)


@dataclass(frozen=True)
class InputLayers:
    """The input layers of a network with known sizes: convolutions and embedding tables.

    `InputLayersSpec.front` builds them.
    """

    features: int
    image: tuple[int, ...] = ()
    convs: tuple[Conv, ...] = ()
    tables: tuple[Table, ...] = ()

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Return the convolutions, each with the size of its input image."""
        made: list[Stage] = []
        enters = self.image
        for conv in self.convs:
            made.append(Stage(conv, enters))
            enters = made[-1].leaves
        return tuple(made)

    @cached_property
    def rest(self) -> NDArray[np.intp]:
        """Return the indices of the features that go to the first linear layer unchanged."""
        pixels = int(np.prod(self.image)) if self.image else 0
        taken = {table.place for table in self.tables}
        return np.array([n for n in range(pixels, self.features) if n not in taken], dtype=np.intp)

    @cached_property
    def drawn(self) -> int:
        """Return how many numbers the last convolution outputs per image, or 0 if there is none."""
        return int(np.prod(self.stages[-1].leaves)) if self.stages else 0

    @cached_property
    def outs(self) -> int:
        """Return how many numbers the input layers output: the inputs of the first linear layer."""
        return self.drawn + len(self.rest) + sum(table.width for table in self.tables)

    @cached_property
    def sides(self) -> tuple[tuple[int, int, int], ...]:
        """Return (rows, columns, biases) of each kernel's weights, then of each embedding table."""
        kernels = [(one.conv.channels, one.patch, one.conv.channels) for one in self.stages]
        return (*kernels, *((table.entries, table.width, 0) for table in self.tables))

    @cached_property
    def most_places(self) -> int:
        """Return the most positions at which any kernel is applied; 1 without convolutions.

        It limits how many rows can be summed exactly.
        """
        return max((one.places for one in self.stages), default=1)

    @cached_property
    def through(self) -> int:
        """Return roughly how many numbers the input layers need in memory for one data row."""
        cut = sum(one.places * (one.patch + 2 * one.conv.channels) for one in self.stages)
        return cut + sum(one.size for one in self.stages) + self.outs

    @cached_property
    def again(self) -> int:
        """Return the extra work of convolutions: products per data row beyond one per parameter.

        A kernel is applied at many positions, and uses each parameter again at each of them.
        """
        return sum((one.places - 1) * one.size for one in self.stages)

    def entered(self, rows: Numbers) -> Numbers:
        """Convert feature values (0 to 1) to integers on the input grid, or to table indices."""
        found = inputs_of(rows)
        for table in self.tables:
            found[..., table.place] = table.chosen(rows[..., table.place])
        return found

    def as_json(self) -> Json:
        """Return the input layers with their sizes as JSON, for model files and for engines."""
        return {
            "features": self.features,
            "image": list(self.image),
            "conv": [one.as_json() for one in self.convs],
            "tables": [[one.place, one.entries, one.width] for one in self.tables],
        }


def read_input_layers(said: object) -> InputLayers | None:
    """Read input layers from the JSON of `InputLayers.as_json`; refuse malformed layers.

    The result is None if the JSON is null.
    """
    if said is None:
        return None
    tables = said.get("tables") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(tables, list):
        raise bad_input_layers("front must be an object with features, image, conv and tables")
    if not all(_is_table(one) for one in tables):
        raise bad_input_layers("tables must be lists of place, entries and width")
    image, conv = _image(said.get("image") or None), _convs(said.get("conv") or None)
    front = InputLayers(
        _count(said.get("features"), "features", 1, MAX_OUTS),
        image, conv, tuple(Table(*one) for one in tables),
    )  # fmt: skip
    return _checked(front)


def read_input_layers_spec(shape: Mapping[str, object]) -> InputLayersSpec:
    """Read the input layers that a training task declares from the task's JSON.

    `InputLayersSpec.places` checks the sizes later.
    """
    image, conv = _image(shape.get("image")), _convs(shape.get("conv"))
    return InputLayersSpec(image, conv, _embed(shape.get("embed")))


def entered(rows: Numbers, front: InputLayers | None) -> Numbers:
    """Convert feature values (0 to 1) to network inputs on the integer grid.

    `front` has the input layers, or is None.
    """
    return inputs_of(rows) if front is None else front.entered(rows)


def packed(rows: Numbers, front: InputLayers | None) -> Inputs:
    """Convert feature values (0 to 1) to network inputs, at most 2**12, stored as uint16."""
    return entered(rows, front).astype(np.uint16)


def bad_input_layers(why: str) -> Refused:
    """Build the refusal of input layers that are malformed, or too large for exact sums."""
    return Refused(
        "bad-request",
        f"The layers of the training task are malformed: {why}.",
        "docs/how-to/sites.md describes them.",
    )


def _checked(front: InputLayers) -> InputLayers:
    """Return the input layers unchanged if all their sums stay below 2**53, or refuse."""
    if bool(front.image) != bool(front.convs):
        raise bad_input_layers("conv and image must be given together")
    pixels = int(np.prod(front.image)) if front.image else 0
    if pixels > front.features or any(one.place < pixels for one in front.tables):
        raise bad_input_layers(
            "the image must be the first features, and none of them may have a table"
        )
    cut, enters = 0, front.image
    for conv in front.convs:
        stage = Stage(conv, enters)
        _check_stage(stage)
        cut, enters = cut + stage.places * stage.patch, stage.leaves
    if cut > MAX_CUT:
        raise bad_input_layers(
            f"all kernels together may cover at most {MAX_CUT:,} numbers of a row"
        )
    for table in front.tables:
        _check_table(table, front.features)
    if front.outs > MAX_OUTS:
        raise bad_input_layers(
            f"{front.outs:,} numbers go into the first linear layer; at most {MAX_OUTS:,} are "
            "allowed"
        )
    return front


def _check_stage(stage: Stage) -> None:
    conv = stage.conv
    padded = min(stage.enters[1:]) + 2 * conv.padding
    if padded < conv.kernel or min(stage.leaves) < 1:
        raise bad_input_layers("a kernel or a pooling window is larger than its image")
    if stage.places > MAX_PLACES:
        raise bad_input_layers(f"a kernel may have at most {MAX_PLACES:,} positions")
    if max(stage.patch, conv.channels * conv.kernel**2) > MAX_PATCH:
        raise bad_input_layers(f"channels times the kernel's square may be at most {MAX_PATCH:,}")


def _check_table(table: Table, features: int) -> None:
    if not 0 <= table.place < features or not 1 <= table.width <= MAX_TABLE:
        raise bad_input_layers(f"the entries of a table must have 1 to {MAX_TABLE} numbers")
    if not 2 <= table.entries <= MAX_ENTRIES:
        raise bad_input_layers(
            f"a column with a table must have 2 to {MAX_ENTRIES:,} values by its card, not "
            f"{table.entries:,}"
        )


def _image(found: object) -> tuple[int, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) != 3:
        raise bad_input_layers("image must be channels, height and width")
    return (
        _count(found[0], "an image's channels", 1, MAX_CHANNELS),
        *(_count(side, "an image's side", 1, MAX_SIDE) for side in found[1:]),
    )


def _convs(found: object) -> tuple[Conv, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_CONVS:
        raise bad_input_layers(f"conv must be a list of 1 to {MAX_CONVS} convolutions")
    return tuple(_conv(one) for one in found)


def _conv(found: object) -> Conv:
    if not isinstance(found, Mapping) or not set(found) <= set(_CONV_KEYS):
        raise bad_input_layers(f"a convolution must be an object with {', '.join(_CONV_KEYS)}")
    kernel = _count(found.get("kernel"), "a kernel", 1, MAX_KERNEL)
    return Conv(
        channels=_count(found.get("channels"), "channels", 1, MAX_CHANNELS),
        kernel=kernel,
        stride=_count(found.get("stride", 1), "a stride", 1, MAX_KERNEL),
        padding=_count(found.get("padding", 0), "a padding", 0, kernel - 1),
        pool=_count(found.get("pool", 1), "pool", 1, MAX_POOL),
    )


def _embed(found: object) -> tuple[tuple[str, int], ...]:
    if found is None:
        return ()
    if not isinstance(found, Mapping) or not found:
        raise bad_input_layers("embed must be an object of columns and the numbers of an entry")
    return tuple(
        sorted((str(name), _count(one, "an entry", 1, MAX_TABLE)) for name, one in found.items())
    )


def _is_table(found: object) -> bool:
    return isinstance(found, list) and len(found) == 3 and all(type(one) is int for one in found)


def _count(found: object, name: str, least: int, most: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise bad_input_layers(f"{name} must be a whole number from {least} to {most:,}")
    return found


# --- Forward and backward pass of the input layers, in exact integer arithmetic
#
# A kernel is a linear layer that is used at many positions, so a row's gradient is a sum over the
# positions. Its terms may cancel, and truncating the terms could then increase the norm. So the
# gradient is computed for each row separately, measured, scaled to the norm bound (clipping), and
# only then added to those of other rows (exact_arithmetic.proof.md).


@dataclass(frozen=True)
class Passed:
    """What a forward pass through the input layers computed, as backpropagation needs it.

    The leading axis is rows, or there are two: people x rows.
    """

    front: InputLayers
    patches: list[Numbers]  # per convolution: rows x positions x patch
    after: list[Numbers]  # per convolution, output before pooling: rows x height x width x channels
    entries: list[NDArray[np.intp]]  # per table: the selected entry
    out: Numbers  # the inputs of the first linear layer

    def backs(self, weights: Weights, back: Numbers, activation: str) -> Backs:
        """Backpropagate from the first linear layer's inputs to the kernels and table entries."""
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
        """Backpropagate through the convolutions; return values at each position of each kernel."""
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
                back = col2im(under.reshape(*lead, stage.places, stage.patch), stage)
        return found[::-1]


@dataclass(frozen=True)
class Backs:
    """The backpropagated values of the input layers, from which their gradients are computed.

    The gradients are in units of 2**-30.
    """

    passed: Passed
    kernels: list[Numbers]  # rows x positions x channels
    tables: list[Numbers]  # rows x numbers of an entry

    def kept(self, kept: Numbers) -> Backs:
        """Return a copy in which padding rows, where the mask `kept` is 0, have the values zero."""
        kernels = [back * kept[..., None] for back in self.kernels]
        return Backs(self.passed, kernels, [back * kept for back in self.tables])

    def each(self) -> Numbers:
        """Return the gradient of all kernel weights and biases for each data row, as a matrix."""
        parts: list[Numbers] = []
        for patches, back in zip(self.passed.patches, self.kernels, strict=True):
            whole = np.swapaxes(back, -1, -2) @ patches
            parts += [whole.reshape(len(back), -1), back.sum(axis=1) * 2.0**INPUT_BITS]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(self.passed.out), 0))

    def squares(self, each: Numbers) -> Numbers:
        """Return an upper bound of each row's squared gradient norm, over kernels and tables.

        `each` is the result of `Backs.each`.
        """
        found = np.zeros(len(each))
        if each.shape[1]:
            found += np.square(norms_of(each)[:, 0])
        for back in self.tables:
            found += squared(back) * 4.0**INPUT_BITS
        return found

    def shortened(self, each: Numbers, scale: Numbers) -> Numbers:
        """Sum the gradients of the rows, each scaled by its clipping factor in `scale`.

        The result is a flat array. `each` is the result of `Backs.each`. The scaled numbers are
        rounded towards zero.
        """
        tables = [np.trunc(back * scale[:, None]) for back in self.tables]
        kernels = np.trunc(each * scale[:, None]).sum(axis=0)
        return np.concatenate([kernels, *self._table_sums(tables)], axis=-1)

    def sums(self) -> Numbers:
        """Sum the gradients of the input layers over the rows, as a flat array.

        If rows are grouped by person, there is one sum for each person.
        """
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


def passed(front: InputLayers, weights: Weights, entered: Numbers, activation: str) -> Passed:
    """Run the forward pass: compute the outputs of the input layers, in integer arithmetic.

    `entered` are the network inputs on the integer grid.
    """
    lead = entered.shape[:-1]
    patches, after = list[Numbers](), list[Numbers]()
    parts: list[Numbers] = []
    if front.stages:
        pixels = entered[..., : int(np.prod(front.image))].reshape(*lead, *front.image)
        value = np.moveaxis(pixels, -3, -1)
        for stage, (matrix, bias) in zip(front.stages, weights, strict=False):
            patches.append(patches_of(value, stage))
            found = apply_linear(_in_a_row(patches[-1]), matrix, bias)
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
    """Cut out the part of the image under each kernel position (im2col), for a matrix product.

    The numbers of a patch are ordered by channel, down and across.
    """
    conv, (down, across) = stage.conv, stage.sides
    around = [(0, 0)] * (value.ndim - 3) + [(conv.padding, conv.padding)] * 2 + [(0, 0)]
    windows = sliding_window_view(np.pad(value, around), (conv.kernel,) * 2, axis=(-3, -2))
    windows = windows[..., :: conv.stride, :: conv.stride, :, :, :]
    return windows[..., :down, :across, :, :, :].reshape(
        *value.shape[:-3], stage.places, stage.patch
    )


def col2im(under: Numbers, stage: Stage) -> Numbers:
    """Backpropagate from the patches to the image (col2im); overlapping patches are added."""
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
    """Apply average pooling to a convolution's output, rounded down to the integer grid.

    Incomplete squares at the edges are dropped.
    """
    pool, (channels, down, across) = stage.conv.pool, stage.leaves
    if pool == 1:
        return value
    whole = value[..., : down * pool, : across * pool, :]
    squares = whole.reshape(*value.shape[:-3], down, pool, across, pool, channels)
    return np.asarray(np.floor(squares.sum(axis=(-4, -2)) / pool**2))


def unpooled(back: Numbers, stage: Stage) -> Numbers:
    """Backpropagate through average pooling: give each kernel position its part of the value."""
    pool, (height, width) = stage.conv.pool, stage.sides
    if pool == 1:
        return back
    wide = np.repeat(np.repeat(back * (1.0 / pool**2), pool, axis=-3), pool, axis=-2)
    short = [(0, 0)] * (back.ndim - 3)
    short += [(0, height - wide.shape[-3]), (0, width - wide.shape[-2]), (0, 0)]
    return np.pad(wide, short)


def _in_a_row(numbers: Numbers) -> Numbers:
    """Flatten the axes of data rows and kernel positions to one, so that one product serves all.

    If the rows are grouped by person, each person stays separate.
    """
    lead, places = numbers.shape[:-3], numbers.shape[-3] * numbers.shape[-2]
    return numbers.reshape(*lead, places, numbers.shape[-1])


def _of_entries(matrix: Numbers, chosen: NDArray[np.intp]) -> Numbers:
    """Return the embedding table entry that each data row selects.

    `matrix` is one table for all rows, or one table for each person.
    """
    if matrix.ndim == 2:
        return np.asarray(matrix[chosen])
    return np.asarray(matrix[np.arange(len(matrix))[:, None], chosen])


def _added_by_entry(table: Table, chosen: NDArray[np.intp], back: Numbers) -> Numbers:
    """Sum the backpropagated values of the rows by the embedding table entry that each row selects.

    The result is a flat array: the gradient of the table. The sums are exact, because the values
    are integers.
    """
    lead = chosen.shape[:-1]
    whole = np.zeros((*lead, table.entries, table.width))
    where = (chosen,) if not lead else (np.arange(lead[0])[:, None], chosen)
    np.add.at(whole, where, back)
    whole *= 2.0**INPUT_BITS
    return whole.reshape(*lead, -1)
