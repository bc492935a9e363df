"""Convolutions and tables in whole numbers: a row's gradient is what Python's own integers give.

The reference goes place by place, in integers without end: had a double rounded anywhere, or a norm
been too short by one unit, it would differ.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from sfumato.dp.learning import integer_network as network_module
from sfumato.dp.learning.input_layers import (
    MAX_ADDED,
    MAX_PATCH,
    MAX_PLACES,
    Backs,
    Conv,
    InputLayers,
    InputLayersSpec,
    Table,
    passed,
    read_input_layers,
)
from sfumato.dp.learning.integer_network import SUM_BITS, Network, Numbers, People, Walk
from sfumato.dp.refusal import Refused

Whole = list[int]
FRONTS = {
    "padded": InputLayers(36, (1, 6, 6), (Conv(3, 3, 1, 1),)),
    "strided": InputLayers(51, (1, 7, 7), (Conv(4, 3, 2, 1),), (Table(50, 5, 2),)),
    "pooled": InputLayers(
        66, (1, 8, 8), (Conv(3, 3, 1, 1, 2), Conv(2, 3, 1, 0)), (Table(64, 9, 3),)
    ),
    "strided twice": InputLayers(81, (1, 9, 9), (Conv(2, 2, 1, 0), Conv(2, 3, 2, 1))),
    "odd": InputLayers(70, (2, 5, 7), (Conv(2, 2, 1, 0, 3), Conv(3, 1)), ()),
    "tables": InputLayers(4, (), (), (Table(1, 3, 2), Table(3, 300, 4))),
}
HIDDEN = {
    "padded": (5,),
    "strided": (),
    "pooled": (4, 3),
    "strided twice": (),
    "odd": (),
    "tables": (3,),
}
OUTS = 3


@cache
def network(name: str, activation: str = "relu", loss: str = "classes") -> Network:
    front = FRONTS[name]
    outs = OUTS if loss == "classes" else 1
    return Network((front.outs, *HIDDEN[name], outs), activation, loss, front)


NAMES = pytest.mark.parametrize("name", list(FRONTS))


def flats(made: Network, kind: str, seed: int = 1) -> Numbers:
    """Weights of every kind that somebody might send."""
    drawn = np.random.default_rng(seed)
    if kind == "usual":
        return drawn.normal(size=made.size) * 0.3
    if kind == "huge":
        return drawn.choice([-1e30, 1e30, 31.9, -31.9], made.size)
    if kind == "zeros":
        return np.zeros(made.size)
    # what comes back to one place is nearly the opposite of what comes back to another
    flat = np.abs(drawn.normal(size=made.size)) * 0.3
    start = sum(r * c + b for r, c, b in made.sides[: len(made.sides) - len(made.widths) + 1])
    first = flat[start : start + made.widths[0] * made.widths[1]]
    first *= np.where(np.arange(len(first)) % 2, -1.0, 1.0) * 30
    first[1::2] = -first[: len(first[1::2]) * 2 : 2] * (1 + 2.0**-14)
    return flat


KINDS = pytest.mark.parametrize("kind", ["usual", "huge", "zeros", "cancelling"])


def some_rows(made: Network, count: int, seed: int = 2) -> tuple[Numbers, Numbers]:
    drawn = np.random.default_rng(seed)
    front = made.front
    assert front is not None
    rows = drawn.random((count, front.features))
    rows[::3] = 1.0
    rows[1::7] = drawn.choice([-5.0, 0.0, 7.0], rows[1::7].shape)
    outs = made.widths[-1]
    target = drawn.integers(0, outs, count) if outs > 1 else drawn.random(count)
    return rows, target.astype(np.float64)


def integers(numbers: Any) -> Any:
    """The same numbers as Python's integers."""
    return np.vectorize(int, otypes=[object])(numbers)


def cut_back(number: float) -> int:
    return math.trunc(min(max(number, -(2.0**20)), 2.0**20))


class Reference:
    """One row through a network with ReLU, place by place, in integers without end."""

    def __init__(self, made: Network, flat: Numbers) -> None:
        assert made.front is not None
        self.made, self.front = made, made.front
        weights = made.weights(flat)
        kernels, tables = len(made.front.stages), len(made.front.tables)
        self.kernels = [(integers(m), integers(b)) for m, b in weights[:kernels]]
        self.tables = [integers(m) for m, _ in weights[kernels : kernels + tables]]
        self.linear = [(integers(m), integers(b)) for m, b in weights[kernels + tables :]]

    def gradient(self, row: Numbers, target: float) -> Whole:
        self.patches: list[dict[tuple[int, int], Any]] = []
        self.after: list[Any] = []
        ins, value = list[Any](), list[Any](self.opened(row))
        for place, (matrix, bias) in enumerate(self.linear):
            ins.append(value)
            value = [self.left(m, value, b) for m, b in zip(matrix, bias, strict=True)]
            if place < len(self.linear) - 1:
                value = [self.awake(one) for one in value]
        said = np.clip(np.array(value, dtype=np.float64)[None, :], -32.0, 32.0)
        back = [int(one) for one in self.made._back(said, np.array([target]))[0]]
        parts: Whole = []
        for place in range(len(ins) - 1, -1, -1):
            parts = [*(b * i for b in back for i in ins[place]), *(b << 12 for b in back), *parts]
            matrix = self.linear[place][0]
            sums = [sum(b * w for b, w in zip(back, matrix[:, n], strict=True))
                    for n in range(matrix.shape[1])]  # fmt: skip
            if place:
                back = [
                    cut_back(s / 2**16 * (i > 0)) for s, i in zip(sums, ins[place], strict=True)
                ]
        return [*self.opening_gradient([s / 2**16 for s in sums]), *parts]

    @staticmethod
    def left(matrix: Any, value: Any, bias: int) -> float:
        whole = sum(int(m) * int(v) for m, v in zip(matrix, value, strict=True))
        return (whole + (int(bias) << 12)) / 2**28

    @staticmethod
    def awake(number: float) -> int:
        return math.floor(min(max(number, 0.0), 32.0) * 2**12)

    def opened(self, row: Numbers) -> Whole:
        front = self.front
        grid = [math.floor(min(max(one, 0.0), 1.0) * 2**12) for one in row]
        parts: Whole = []
        if front.image:
            value = np.array(grid[: math.prod(front.image)], dtype=object).reshape(front.image)
            for stage, (matrix, bias) in zip(front.stages, self.kernels, strict=True):
                value = self.convolved(stage.conv, value, matrix, bias)
            parts = list(value.ravel())
        taken = {table.place for table in front.tables}
        pixels = math.prod(front.image) if front.image else 0
        parts += [grid[n] for n in range(pixels, front.features) if n not in taken]
        self.chosen = []
        for table, matrix in zip(front.tables, self.tables, strict=True):
            steps = table.entries - 1
            self.chosen.append(math.floor(min(max(row[table.place], 0.0), 1.0) * steps + 0.5))
            parts += [one // 16 for one in matrix[self.chosen[-1]]]
        return parts

    def convolved(self, conv: Conv, value: Any, matrix: Any, bias: Any) -> Any:
        edge = conv.padding
        wide = np.pad(value, ((0, 0), (edge, edge), (edge, edge)), constant_values=0)
        tall, broad = ((side - conv.kernel) // conv.stride + 1 for side in wide.shape[1:])
        patches, after = {}, np.zeros((conv.channels, tall, broad), dtype=object)
        for y, x in product(range(tall), range(broad)):
            top, left = y * conv.stride, x * conv.stride
            patch = wide[:, top : top + conv.kernel, left : left + conv.kernel].ravel()
            patches[y, x] = patch
            for n in range(conv.channels):
                after[n, y, x] = self.awake(self.left(matrix[n], patch, bias[n]))
        self.patches.append(patches)
        self.after.append(after)
        pool = conv.pool
        small = np.zeros((conv.channels, tall // pool, broad // pool), dtype=object)
        for n, y, x in product(*map(range, small.shape)):
            square = after[n, y * pool : (y + 1) * pool, x * pool : (x + 1) * pool]
            small[n, y, x] = sum(square.ravel()) // pool**2
        return small

    def opening_gradient(self, back: list[float]) -> Whole:
        front, parts = self.front, list[Whole]()
        came = np.array(back[: front.drawn], dtype=object)
        for number in range(len(front.stages) - 1, -1, -1):
            conv, after = front.convs[number], self.after[number]
            matrix, patches = self.kernels[number][0], self.patches[number]
            came = came.reshape(conv.channels, *(side // conv.pool for side in after.shape[1:]))
            at = np.zeros(after.shape, dtype=object)
            for n, y, x in product(*map(range, at.shape)):
                high, wide = y // conv.pool, x // conv.pool
                if high < came.shape[1] and wide < came.shape[2] and after[n, y, x] > 0:
                    at[n, y, x] = cut_back(came[n, high, wide] * (1 / conv.pool**2))
            weights = [sum(at[n, y, x] * patch[k] for (y, x), patch in patches.items())
                       for n in range(conv.channels) for k in range(matrix.shape[1])]  # fmt: skip
            parts = [[*weights, *(sum(at[n].ravel()) << 12 for n in range(conv.channels))], *parts]
            if number:
                came = self.before(number, at, matrix)
        start = front.outs - sum(table.width for table in front.tables)
        for table, chosen in zip(front.tables, self.chosen, strict=True):
            entries = [[0] * table.width for _ in range(table.entries)]
            entries[chosen] = [cut_back(b) << 12 for b in back[start : start + table.width]]
            parts.append([one for entry in entries for one in entry])
            start += table.width
        return [one for part in parts for one in part]

    def before(self, number: int, at: Any, matrix: Any) -> Any:
        """What comes back to the picture that a kernel was laid on."""
        stage = self.front.stages[number]
        conv, edge = stage.conv, stage.conv.padding
        channels, height, width = stage.enters
        came = np.zeros((channels, height + 2 * edge, width + 2 * edge), dtype=object)
        kernel = matrix.reshape(conv.channels, channels, conv.kernel, conv.kernel)
        for n, y, x in product(*map(range, at.shape)):
            top, left = y * conv.stride, x * conv.stride
            window = came[:, top : top + conv.kernel, left : left + conv.kernel]
            window += at[n, y, x] * kernel[n]
        inside = came[:, edge : edge + height, edge : edge + width]
        return np.vectorize(lambda one: one / 2**16, otypes=[object])(inside)


def norm_of(numbers: Any) -> int:
    """The squared norm, in integers without end."""
    return sum(int(one) ** 2 for one in numbers)


@NAMES
@KINDS
@pytest.mark.parametrize("loss", ["classes", "squares"])
def test_a_rows_gradient_is_what_integers_without_end_give(name: str, kind: str, loss: str) -> None:
    made = network(name, loss=loss)
    flat = flats(made, kind)
    rows, target = some_rows(made, 6)
    found = made.whole_sum(made.weights(flat), made.packed(rows), target)
    reference = Reference(made, flat)
    pairs = zip(rows, target, strict=True)
    wanted = [sum(one) for one in zip(*(reference.gradient(*pair) for pair in pairs), strict=True)]
    assert [int(one) for one in found] == wanted
    assert any(wanted) or kind == "zeros"


@NAMES
@KINDS
@pytest.mark.parametrize("clip", [2.0**-8, 0.1, 4.0])
def test_a_row_adds_its_gradient_made_shorter_and_never_more_than_the_clip(
    name: str, kind: str, clip: float
) -> None:
    """Nor farther from zero in any number: what is cut was the whole row's, not a place's."""
    made = network(name)
    flat = flats(made, kind)
    rows, target = some_rows(made, 6)
    reference, weights = Reference(made, flat), made.weights(flat)
    for row, one in zip(rows, target, strict=True):
        own = made.clipped_sum(weights, row[None, :], np.array([one]), clip)
        whole = reference.gradient(row, one)
        norm = math.sqrt(norm_of(whole))
        scale = min(1.0, clip * 2**SUM_BITS / max(norm, 1.0))
        assert norm_of(own) <= int(clip * 2**SUM_BITS) ** 2
        moved = np.array([w * scale - int(o) for w, o in zip(whole, own, strict=True)])
        # what is lost: the norm's rounding up, and what a back's cutting to its grid takes
        assert np.linalg.norm(moved) <= 0.003 * norm * scale + 2**18 * math.sqrt(made.size)


@NAMES
@KINDS
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_neither_order_nor_batch_nor_who_is_beside_moves_a_sum_by_one_bit(
    name: str, kind: str, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = network(name, activation)
    weights = made.weights(flats(made, kind))
    rows, target = some_rows(made, 120)
    whole = made.clipped_sum(weights, rows, target, 0.5)
    shuffled = np.random.default_rng(3).permutation(len(rows))
    assert (made.clipped_sum(weights, rows[shuffled], target[shuffled], 0.5) == whole).all()
    for gone in (0, 1, 60, 119):
        rest = np.delete(np.arange(len(rows)), gone)
        own = made.clipped_sum(weights, rows[[gone]], target[[gone]], 0.5)
        assert (made.clipped_sum(weights, rows[rest], target[rest], 0.5) + own == whole).all()
        assert norm_of(own) <= 2 ** (2 * SUM_BITS - 2)
    for room in (1, 1000, 1 << 40):
        monkeypatch.setattr(network_module, "_CUT", room)
        monkeypatch.setattr(network_module, "_THROUGH", room)
        assert (made.clipped_sum(weights, rows, target, 0.5) == whole).all()
        alone = [made.says(weights, rows[[n]]) for n in range(20)]
        assert (made.says(weights, rows)[:20] == np.concatenate(alone)).all()


def test_what_cancels_over_the_places_of_a_row_adds_nothing_however_short_it_is_made() -> None:
    """Cut at each place it would: 1024 times 1, where the whole is 3 - 1 - 1 - 1."""
    front = InputLayers(4096, (1, 64, 64), (Conv(1, 1),))
    made = Network((front.outs, 2), "relu", "classes", front)
    through = passed(front, made.weights(np.ones(made.size)), np.full((1, 4096), 4096.0), "relu")
    kernels = [np.tile([3.0, -1.0, -1.0, -1.0], 1024).reshape(1, 4096, 1)]
    backs = Backs(through, kernels, [])
    each = backs.each()
    assert each.shape == (1, 2)
    assert not each.any()
    assert not backs.squares(each).any()
    assert not backs.shortened(each, np.array([0.5])).any()
    nearly = Backs(through, [kernels[0] + (np.arange(4096) == 0)[None, :, None]], [])
    each = nearly.each()
    assert each.tolist() == [[4096.0, 4096.0]]
    assert nearly.shortened(each, np.array([0.3])).tolist() == [1228.0, 1228.0]


def test_random_shapes_add_up_to_their_rows() -> None:
    """Less one, it is that row's own part, at most the clip; a row's is what integers give."""
    drawn = np.random.default_rng(11)
    tried = 0
    while tried < 60:
        sides = [int(one) for one in drawn.integers(1, 7, 2)]
        image = (int(drawn.integers(1, 3)), *sides)
        convs = tuple(
            Conv(*map(int, drawn.integers((1, 1, 1, 0, 1), (4, 4, 4, 2, 3))))
            for _ in range(int(drawn.integers(1, 3)))
        )
        count = math.prod(image) + 2
        try:
            front = InputLayersSpec(image, convs, (("x", 3),)).front(
                ["x" if n == count - 1 else f"p{n}" for n in range(count)], [7] * count
            )
        except Refused:
            continue
        assert front is not None
        tried += 1
        made = Network((front.outs, 2), ["relu", "tanh"][tried % 2], "classes", front)
        kind = ["usual", "huge", "cancelling"][tried % 3]
        flat = flats(made, kind, tried)
        weights = made.weights(flat)
        rows, target = some_rows(made, 9, tried)
        if made.activation == "relu":
            alone = made.whole_sum(weights, made.packed(rows[:1]), target[:1])
            assert [int(one) for one in alone] == Reference(made, flat).gradient(rows[0], target[0])
        whole = made.clipped_sum(weights, rows, target, 0.25)
        for gone in range(9):
            rest = np.delete(np.arange(9), gone)
            own = made.clipped_sum(weights, rows[[gone]], target[[gone]], 0.25)
            left = made.clipped_sum(weights, rows[rest], target[rest], 0.25)
            assert (left + own == whole).all()
            assert norm_of(own) <= 2 ** (2 * SUM_BITS - 4)


def people_of(made: Network, count: int) -> People:
    rows, target = some_rows(made, 4 * count)
    counts = (1 + np.arange(count) % 4).astype(np.float64)
    entered = made.entered(rows).reshape(count, 4, -1)
    return People(entered, target.reshape(count, 4), counts)


def some(people: People, which: Any) -> People:
    return People(people.rows[which], people.target[which], people.counts[which])


@NAMES
@pytest.mark.parametrize("kind", ["usual", "huge"])
@pytest.mark.parametrize("rate", [0.5, 100.0])
def test_no_person_moves_what_others_own_steps_come_to(
    name: str, kind: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = network(name, "tanh")
    begin, people = flats(made, kind), people_of(made, 40)
    walk = Walk(3, rate, 0.1, 0.5)
    whole = made.people_sum(begin, people, walk)
    assert whole.any()
    for gone in (0, 3, 39):
        rest = np.delete(np.arange(40), gone)
        own = made.people_sum(begin, some(people, [gone]), walk)
        assert (made.people_sum(begin, some(people, rest), walk) + own == whole).all()
        assert norm_of(own) <= 2 ** (2 * SUM_BITS - 2)
    monkeypatch.setattr(network_module, "_THROUGH", 1)
    assert (made.people_sum(begin, people, walk) == whole).all()


@NAMES
def test_a_persons_own_step_is_the_mean_of_their_rows_gradients(name: str) -> None:
    made = network(name)
    begin, people = flats(made, "usual"), people_of(made, 4)
    weights = made.weights(begin)
    for n in range(4):
        own = made.people_sum(begin, some(people, [n]), Walk(1, 1.0, 0.0, 4.0))
        count = int(people.counts[n])
        inputs = people.rows[n, :count].astype(np.uint16)
        mean = made.whole_sum(weights, inputs, people.target[n, :count]) / count
        length = max(4.0 * 2**SUM_BITS, float(np.linalg.norm(mean)))
        # what went down the slope is what it is; in doubles of a model, so not to the last bit
        assert np.abs(own - mean * (4.0 * 2**SUM_BITS / length)).max() <= 4e-3 * length


def test_which_entry_is_chosen_is_exact_for_every_value_of_every_table() -> None:
    """By the bounds that a card may have, and outside of them the edge."""
    for entries in (*range(2, 200), 1000, 2049, 4095, 4096):
        steps = entries - 1
        scaled = np.arange(entries) / steps
        table = Table(0, entries, 1)
        assert (table.chosen(scaled) == np.arange(entries)).all()
        assert table.chosen(np.array([-1e300, -0.5, 1.5, 1e300])).tolist() == [0, 0, steps, steps]


def test_a_table_has_the_row_that_was_chosen_and_no_other_learns() -> None:
    made = network("tables")
    weights = made.weights(flats(made, "usual"))
    row = np.array([[0.5, 7.0, 0.5, 123 / 299]])
    found = made.clipped_sum(weights, row, np.array([1.0]), 0.5)
    assert np.flatnonzero(found[:6].reshape(3, 2).any(axis=1)).tolist() == [2]
    assert np.flatnonzero(found[6:1206].reshape(300, 4).any(axis=1)).tolist() == [123]


def test_no_partial_sum_of_a_front_can_pass_what_a_double_counts() -> None:
    """The limits at their largest numbers, as exact_arithmetic.proof.md adds them up."""
    largest = InputLayers(4096, (1, 64, 64), (Conv(1, 1),))
    assert largest.most_places == MAX_PLACES
    for front in FRONTS.values():
        made = Network((front.outs, 2), "relu", "classes", front)
        assert made._at_once(1 << 60) * front.most_places <= MAX_ADDED
    assert Network((4096, 2), "relu", "classes", largest)._at_once(1 << 60) == 16
    assert MAX_PATCH * 2**17 * 2**21 + 2**33 < 2**53  # what a kernel gives
    assert MAX_PATCH * 2**20 * 2**21 < 2**53  # what comes back to the picture
    assert MAX_PLACES * 2**17 * 2**20 < 2**53  # a row's gradient
    assert MAX_ADDED * 2**17 * 2**20 <= 2**53  # that of several rows
    assert 4096 * 2**17 * 2**21 + 2**33 < 2**53  # what the first linear layer gives


@pytest.mark.parametrize("over", ["places", "patch", "back"])
def test_the_largest_shapes_are_exact_at_their_largest_numbers(over: str) -> None:
    """All inks and weights as large as they can be: the sums reach what the proof allows."""
    convs = {
        "places": ((1, 64, 64), (Conv(1, 1, 1, 0), Conv(1, 3, 1, 0, 2))),
        "patch": ((32, 8, 8), (Conv(41, 7, 1, 0), Conv(32, 2, 1, 1))),
        "back": ((1, 12, 12), (Conv(41, 7, 1, 3), Conv(41, 7, 1, 0))),
    }
    image, layers = convs[over]
    front = InputLayersSpec(image, layers).front([""] * math.prod(image), [2] * math.prod(image))
    assert front is not None
    made = Network((front.outs, 2), "relu", "classes", front)
    flat = np.full(made.size, 31.99)
    flat[1::3] = -17.7
    weights = made.weights(flat)
    rows, target = np.ones((3, front.features)), np.zeros(3)
    rows[1] = np.random.default_rng(1).random(front.features)
    whole = made.clipped_sum(weights, rows, target, 1.0)
    parts = [made.clipped_sum(weights, rows[[n]], target[[n]], 1.0) for n in range(3)]
    assert (np.sum(parts, axis=0) == whole).all()
    assert all(norm_of(part) <= 2 ** (2 * SUM_BITS) for part in parts)


WRONG: list[tuple[str, tuple[Any, ...]]] = [
    ("image", ((1, 8, 8), ())),
    ("image", ((), (Conv(1, 1),))),
    ("be the first features", ((1, 9, 9), (Conv(1, 1),))),
    ("none of them may have a table", ((1, 8, 8), (Conv(1, 1),), (("p3", 2),))),
    ("one of the features", ((), (), (("nobody", 2),))),
    ("larger than its image", ((1, 8, 8), (Conv(1, 3, 1, 0, 7),))),
    ("larger than its image", ((1, 4, 4), (Conv(1, 3), Conv(1, 3)))),
    ("times the kernel's square", ((1, 8, 8), (Conv(64, 7),))),
    ("first linear layer", ((1, 8, 8), (Conv(64, 1, 1, 1), Conv(64, 1)))),
]


@pytest.mark.parametrize(("why", "terms"), WRONG)
def test_what_exact_sums_have_no_room_for_is_refused(why: str, terms: tuple[Any, ...]) -> None:
    with pytest.raises(Refused, match=rf"bad-request.*{why}"):
        InputLayersSpec(*terms).places([f"p{n}" for n in range(66)])


def test_a_table_of_too_many_values_or_of_one_is_refused() -> None:
    for count in (1, 4097):
        with pytest.raises(Refused, match=r"bad-request.*must have 2 to 4,096 values"):
            InputLayersSpec((), (), (("a", 2),)).front(["a"], [count])


@NAMES
def test_a_front_is_read_as_it_was_written(name: str) -> None:
    assert read_input_layers(FRONTS[name].as_json()) == FRONTS[name]
    for key, value in {"tables": [[1, 2]], "image": [1], "features": 0, "conv": [{}]}.items():
        with pytest.raises(Refused, match="bad-request"):
            read_input_layers({**FRONTS[name].as_json(), key: value})
