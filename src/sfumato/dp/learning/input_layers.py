"""What may stand before a network's linear layers: convolutions over a picture, and tables.

A picture is the first channels x height x width features, in the order in which they are listed. A
column with a table of its own chooses one row of it, which is learnt. What goes into the first
linear layer is what the convolutions give, then the other features as they are, then the tables'
rows, each in the order of the features. Limits keep all sums exact, and what a row adds is
measured and shortened (clipping) only after them (exact_arithmetic.proof.md).
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
    inputs_of,
    leave,
    norms_of,
    on_back_grid,
    slope_of,
    squared,
)
from sfumato.dp.refusal import Refused

MOST_OUTS: Final = 4096  # numbers that go into the first linear layer
MOST_SIDE: Final = 256
MOST_CONVS: Final = 4
MOST_CHANNELS: Final = 64
MOST_KERNEL: Final = 7
MOST_POOL: Final = 8
MOST_PLACES: Final = 4096  # at which a kernel is laid: 2**12 products of 2**37
MOST_PATCH: Final = 2048  # numbers under a kernel, or that come back to one number
MOST_CUT: Final = 1 << 20  # numbers of one row under all kernels
MOST_ADDED: Final = 1 << 16  # places times rows at once: 2**16 products of 2**37 are 2**53
MOST_ENTRIES: Final = 4096  # of a table
MOST_TABLE: Final = 256  # numbers of an entry
_CONV_KEYS: Final = ("channels", "kernel", "stride", "padding", "pool")


@dataclass(frozen=True)
class Conv:
    """A convolution as words; then the activation, and the average of `pool` x `pool` places."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    pool: int = 1

    def as_json(self) -> Json:
        """Return the convolution as it travels."""
        return {key: getattr(self, key) for key in _CONV_KEYS}


@dataclass(frozen=True)
class Opening:
    """What a lesson says of it: nothing, as a rule."""

    image: tuple[int, ...] = ()  # channels, height, width
    conv: tuple[Conv, ...] = ()
    embed: tuple[tuple[str, int], ...] = ()  # columns, and how many numbers an entry has

    def as_json(self) -> Json:
        """Return the words that are there; a lesson without them is spelled as it always was."""
        said: Json = {}
        if self.image:
            said |= {"image": list(self.image), "conv": [one.as_json() for one in self.conv]}
        if self.embed:
            said["embed"] = dict(self.embed)
        return said

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns that have tables."""
        return frozenset(name for name, _ in self.embed)

    def front(self, features: Sequence[str], counts: Sequence[int]) -> Front | None:
        """Return the front over these features, of which each has so many values; or refuse."""
        if not (self.image or self.conv or self.embed):
            return None
        wide = dict(self.embed)
        tables = tuple(
            Table(place, counts[place], wide[name])
            for place, name in enumerate(features)
            if name in wide
        )
        return _checked(Front(len(features), self.image, self.conv, tables))

    def places(self, features: Sequence[str]) -> int:
        """Return at how many places a kernel is laid at most; refuse what fits no such columns."""
        if self.columns - set(features):
            raise bad_front("a column with a table is one of the features")
        front = self.front(features, [2] * len(features))  # whatever the card says of tables
        return 1 if front is None else front.most_places


NOTHING: Final = Opening()


@dataclass(frozen=True)
class Stage:
    """A convolution over pictures of known sides."""

    conv: Conv
    enters: tuple[int, ...]  # channels, height, width

    @property
    def sides(self) -> tuple[int, int]:
        """Return at how many places the kernel is laid: down, and across."""
        over = 2 * self.conv.padding - self.conv.kernel
        down, across = ((side + over) // self.conv.stride + 1 for side in self.enters[1:])
        return down, across

    @property
    def places(self) -> int:
        """Return how many they are."""
        return self.sides[0] * self.sides[1]

    @property
    def patch(self) -> int:
        """Return how many numbers lie under the kernel."""
        return self.enters[0] * self.conv.kernel**2

    @property
    def size(self) -> int:
        """Return how many numbers are learnt."""
        return self.conv.channels * (self.patch + 1)

    @property
    def leaves(self) -> tuple[int, int, int]:
        """Return channels, height and width of what it gives."""
        down, across = self.sides
        return self.conv.channels, down // self.conv.pool, across // self.conv.pool


@dataclass(frozen=True)
class Table:
    """The entries of one column: the feature at that place chooses one of them."""

    place: int
    entries: int
    width: int

    def chosen(self, scaled: Numbers) -> Numbers:
        """Return which entries are chosen, by numbers from 0 to 1; outside is the edge.

        A value that is k steps from the lower bound was divided by all steps, 4095 at most, so k
        comes out exactly.
        """
        steps = self.entries - 1
        return np.floor(np.clip(scaled, 0.0, 1.0) * steps + 0.5)


@dataclass(frozen=True)
class Front:
    """Convolutions and tables over so many features, of known sides."""

    features: int
    image: tuple[int, ...] = ()
    convs: tuple[Conv, ...] = ()
    tables: tuple[Table, ...] = ()

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Return the convolutions, each with the sides of what it is laid on."""
        made: list[Stage] = []
        enters = self.image
        for conv in self.convs:
            made.append(Stage(conv, enters))
            enters = made[-1].leaves
        return tuple(made)

    @cached_property
    def rest(self) -> NDArray[np.intp]:
        """Return the places of the features that go on as they are."""
        pixels = int(np.prod(self.image)) if self.image else 0
        taken = {table.place for table in self.tables}
        return np.array([n for n in range(pixels, self.features) if n not in taken], dtype=np.intp)

    @cached_property
    def drawn(self) -> int:
        """Return how many numbers the convolutions give."""
        return int(np.prod(self.stages[-1].leaves)) if self.stages else 0

    @cached_property
    def outs(self) -> int:
        """Return how many numbers go into the first linear layer."""
        return self.drawn + len(self.rest) + sum(table.width for table in self.tables)

    @cached_property
    def sides(self) -> tuple[tuple[int, int, int], ...]:
        """Return rows, columns and biases of what is learnt: of kernels, and then of tables."""
        kernels = [(one.conv.channels, one.patch, one.conv.channels) for one in self.stages]
        return (*kernels, *((table.entries, table.width, 0) for table in self.tables))

    @cached_property
    def most_places(self) -> int:
        """Return at how many places a kernel is laid at most; 1 where there is none."""
        return max((one.places for one in self.stages), default=1)

    @cached_property
    def through(self) -> int:
        """Return how many numbers of a row there are at once, more or less."""
        cut = sum(one.places * (one.patch + 2 * one.conv.channels) for one in self.stages)
        return cut + sum(one.size for one in self.stages) + self.outs

    @cached_property
    def again(self) -> int:
        """Return how many products a row takes beyond one for each number of the model."""
        return sum((one.places - 1) * one.size for one in self.stages)

    def entered(self, rows: Numbers) -> Numbers:
        """Return features from 0 to 1 on the grid of inputs; for a table, which entry it is."""
        found = inputs_of(rows)
        for table in self.tables:
            found[..., table.place] = table.chosen(rows[..., table.place])
        return found

    def as_json(self) -> Json:
        """Return the front as it is kept with a model, and told to an engine."""
        return {
            "features": self.features,
            "image": list(self.image),
            "conv": [one.as_json() for one in self.convs],
            "tables": [[one.place, one.entries, one.width] for one in self.tables],
        }


def read_front(said: object) -> Front | None:
    """Return the front that `as_json` wrote, or refuse."""
    if said is None:
        return None
    tables = said.get("tables") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(tables, list):
        raise bad_front("a front is an object of features, image, conv and tables")
    if not all(_is_table(one) for one in tables):
        raise bad_front("tables are places, entries and widths")
    image, conv = _image(said.get("image") or None), _convs(said.get("conv") or None)
    front = Front(
        _count(said.get("features"), "features", 1, MOST_OUTS),
        image, conv, tuple(Table(*one) for one in tables),
    )  # fmt: skip
    return _checked(front)


def read_opening(shape: Mapping[str, object]) -> Opening:
    """Return what a lesson's JSON says of it, or refuse; sides are looked at by `places`."""
    image, conv = _image(shape.get("image")), _convs(shape.get("conv"))
    return Opening(image, conv, _embed(shape.get("embed")))


def entered(rows: Numbers, front: Front | None) -> Numbers:
    """Return features from 0 to 1 as they go into a network with that front, or with none."""
    return inputs_of(rows) if front is None else front.entered(rows)


def packed(rows: Numbers, front: Front | None) -> Inputs:
    """Return the same as it is kept: at most 2**12 each."""
    return entered(rows, front).astype(np.uint16)


def bad_front(why: str) -> Refused:
    """Return the refusal of layers that are none, or that exact sums have no room for."""
    return Refused(
        "bad-request", f"The lesson's layers are malformed: {why}.", "See docs/sites.md on them."
    )


def _checked(front: Front) -> Front:
    """Return the front if all its sums stay below 2**53, or refuse."""
    if bool(front.image) != bool(front.convs):
        raise bad_front("convolutions are over an image, and an image is for convolutions")
    pixels = int(np.prod(front.image)) if front.image else 0
    if pixels > front.features or any(one.place < pixels for one in front.tables):
        raise bad_front("an image is the first of the features, and none of it has a table")
    cut, enters = 0, front.image
    for conv in front.convs:
        stage = Stage(conv, enters)
        _check_stage(stage)
        cut, enters = cut + stage.places * stage.patch, stage.leaves
    if cut > MOST_CUT:
        raise bad_front(f"under all kernels lie at most {MOST_CUT:,} numbers of a row")
    for table in front.tables:
        _check_table(table, front.features)
    if front.outs > MOST_OUTS:
        raise bad_front(
            f"{front.outs:,} numbers go into the first linear layer, {MOST_OUTS:,} are the most"
        )
    return front


def _check_stage(stage: Stage) -> None:
    conv = stage.conv
    padded = min(stage.enters[1:]) + 2 * conv.padding
    if padded < conv.kernel or min(stage.leaves) < 1:
        raise bad_front("a kernel, and what is pooled, fit into the picture")
    if stage.places > MOST_PLACES:
        raise bad_front(f"a kernel is laid at {MOST_PLACES:,} places at most")
    if max(stage.patch, conv.channels * conv.kernel**2) > MOST_PATCH:
        raise bad_front(f"channels times the kernel's square are at most {MOST_PATCH:,}")


def _check_table(table: Table, features: int) -> None:
    if not 0 <= table.place < features or not 1 <= table.width <= MOST_TABLE:
        raise bad_front(f"a table's entries have 1 to {MOST_TABLE} numbers")
    if not 2 <= table.entries <= MOST_ENTRIES:
        raise bad_front(
            f"a column with a table has 2 to {MOST_ENTRIES:,} values by its card, and not "
            f"{table.entries:,}"
        )


def _image(found: object) -> tuple[int, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) != 3:
        raise bad_front("an image is channels, height and width")
    return (
        _count(found[0], "an image's channels", 1, MOST_CHANNELS),
        *(_count(side, "an image's side", 1, MOST_SIDE) for side in found[1:]),
    )


def _convs(found: object) -> tuple[Conv, ...]:
    if found is None:
        return ()
    if not isinstance(found, list) or not 1 <= len(found) <= MOST_CONVS:
        raise bad_front(f"conv is a list of 1 to {MOST_CONVS} convolutions")
    return tuple(_conv(one) for one in found)


def _conv(found: object) -> Conv:
    if not isinstance(found, Mapping) or not set(found) <= set(_CONV_KEYS):
        raise bad_front(f"a convolution is an object of {', '.join(_CONV_KEYS)}")
    kernel = _count(found.get("kernel"), "a kernel", 1, MOST_KERNEL)
    return Conv(
        channels=_count(found.get("channels"), "channels", 1, MOST_CHANNELS),
        kernel=kernel,
        stride=_count(found.get("stride", 1), "a stride", 1, MOST_KERNEL),
        padding=_count(found.get("padding", 0), "a padding", 0, kernel - 1),
        pool=_count(found.get("pool", 1), "pool", 1, MOST_POOL),
    )


def _embed(found: object) -> tuple[tuple[str, int], ...]:
    if found is None:
        return ()
    if not isinstance(found, Mapping) or not found:
        raise bad_front("embed is an object of columns and how many numbers an entry has")
    return tuple(
        sorted((str(name), _count(one, "an entry", 1, MOST_TABLE)) for name, one in found.items())
    )


def _is_table(found: object) -> bool:
    return isinstance(found, list) and len(found) == 3 and all(type(one) is int for one in found)


def _count(found: object, name: str, least: int, most: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise bad_front(f"{name} is a whole number from {least} to {most:,}")
    return found


# --- What goes through a network's front and comes back, in whole numbers, in whatever order
#
# A kernel is a linear layer that is used at many places, so a row's gradient is a sum over them. It
# may cancel, and cutting its parts would then make it longer: so it is made for each row by itself,
# measured, shortened (clipping), and only then added to others (exact_arithmetic.proof.md).


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
