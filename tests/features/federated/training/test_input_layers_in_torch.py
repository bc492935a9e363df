"""The same convolutions and tables in PyTorch say, and learn, nearly the same: within the grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from torch import nn  # noqa: E402

from sfumato.dp.learning.input_layers import Conv, InputLayers, InputLayersSpec  # noqa: E402
from sfumato.dp.learning.integer_network import SUM_BITS, Network, Numbers  # noqa: E402
from sfumato.features.federated.training.training_rounds import first_weights  # noqa: E402

SHAPES: dict[str, tuple[tuple[int, ...], tuple[Conv, ...], tuple[tuple[str, int], ...], int]] = {
    "one kernel": ((1, 8, 8), (Conv(4, 3, 1, 1),), (), 0),
    "strides and pools": ((2, 7, 9), (Conv(3, 3, 2, 1, 2), Conv(4, 2, 1, 1)), (("e0", 3),), 2),
    "a pool that leaves an edge": ((1, 8, 8), (Conv(3, 2, 1, 0, 3),), (("e0", 2),), 0),
    "tables": ((), (), (("e0", 3), ("e1", 2)), 2),
}
WHICH = pytest.mark.parametrize("name", list(SHAPES))
VALUES = 6  # of a column with a table
ROWS = 40


class InTorch(nn.Module):
    """The network in doubles, from a flat model in the order in which files have it."""

    def __init__(self, made: Network, flat: Numbers) -> None:
        super().__init__()
        front = made.front
        assert front is not None
        self.front, self.made = front, made
        self.act = {"relu": torch.relu, "tanh": torch.tanh}[made.activation]
        self.kernels = nn.ModuleList(
            nn.Conv2d(one.enters[0], one.conv.channels, one.conv.kernel, one.conv.stride,
                      one.conv.padding)
            for one in front.stages
        )  # fmt: skip
        self.pools = [nn.AvgPool2d(conv.pool) for conv in front.convs]
        self.tables = nn.ModuleList(nn.Embedding(one.entries, one.width) for one in front.tables)
        pairs = zip(made.widths, made.widths[1:], strict=False)
        self.linear = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.double()
        nn.utils.vector_to_parameters(torch.tensor(flat), self.parameters())

    def forward(self, rows: Any) -> Any:
        front, parts = self.front, []
        pixels = math.prod(front.image) if front.image else 0
        if front.image:
            value = rows[:, :pixels].reshape(-1, *front.image)
            for kernel, pool in zip(self.kernels, self.pools, strict=True):
                value = pool(self.act(kernel(value)))
            parts.append(value.flatten(1))
        taken = [table.place for table in front.tables]
        parts.append(rows[:, [n for n in range(pixels, front.features) if n not in taken]])
        for place, table in zip(taken, self.tables, strict=True):
            parts.append(table((rows[:, place] * (VALUES - 1)).round().long()))
        value = torch.cat(parts, dim=1)
        for number, layer in enumerate(self.linear):
            value = layer(self.act(value) if number else value)
        return value

    def gradients(self, rows: Numbers, target: Numbers) -> Numbers:
        """The sum of the rows' gradients of the loss."""
        self.zero_grad()
        said, wanted = self(torch.tensor(rows)), torch.tensor(target)
        if self.made.loss == "classes":
            loss = nn.functional.cross_entropy(said, wanted.long(), reduction="sum")
        else:
            loss = nn.functional.mse_loss(said[:, 0], wanted, reduction="sum")
        loss.backward()
        found = [one.grad.reshape(-1).numpy() for one in self.parameters()]
        return np.concatenate(found)


def made_for(name: str, activation: str, loss: str) -> Network:
    image, convs, embed, rest = SHAPES[name]
    pixels = math.prod(image) if image else 0
    names = [*(f"p{n}" for n in range(pixels + rest)), *(column for column, _ in embed)]
    front = InputLayersSpec(image, convs, embed).front(names, [VALUES] * len(names))
    assert front is not None
    outs = 3 if loss == "classes" else 1
    return Network((front.outs, 6, outs), activation, loss, front)


def rows_for(front: InputLayers, loss: str) -> tuple[Numbers, Numbers]:
    drawn = np.random.default_rng(5)
    rows = drawn.integers(0, 17, (ROWS, front.features)) / 16
    for table in front.tables:
        rows[:, table.place] = drawn.integers(0, VALUES, ROWS) / (VALUES - 1)
    target = drawn.integers(0, 3, ROWS) if loss == "classes" else drawn.integers(0, 9, ROWS) / 8
    return rows, target.astype(np.float64)


def on_grid(made: Network, flat: Numbers) -> Numbers:
    return np.rint(flat * 2.0**16) * 2.0**-16


@WHICH
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("loss", ["classes", "squares"])
def test_a_front_says_and_moves_what_pytorchs_does(name: str, activation: str, loss: str) -> None:
    made = made_for(name, activation, loss)
    assert made.front is not None
    flat = on_grid(made, first_weights(made, "ab" * 32))
    rows, target = rows_for(made.front, loss)
    there, weights = InTorch(made, flat), made.weights(flat)
    with torch.no_grad():
        wanted = there(torch.tensor(rows)).numpy()
    assert np.abs(made.says(weights, rows) - wanted).max() < 4e-3
    gradients = np.array([there.gradients(rows[[n]], target[[n]]) for n in range(ROWS)])
    found = np.array([
        made.whole_sum(weights, made.packed(rows[[n]]), target[[n]]) for n in range(ROWS)
    ]) * 2.0**-SUM_BITS  # fmt: skip
    long = np.maximum(np.linalg.norm(gradients, axis=1), 1e-3)  # where all ReLUs sleep it is 0
    off = np.linalg.norm(found - gradients, axis=1) / long
    assert np.median(off) < 0.01
    assert np.sort(off)[-3] < 0.06  # now and then a ReLU sleeps on one side of the grid
    clip = float(np.median(np.linalg.norm(gradients, axis=1)))
    lengths = np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True) / clip)
    clipped = made.clipped_sum(weights, rows, target, clip) * 2.0**-SUM_BITS
    shorter = (gradients / lengths).sum(axis=0)
    assert np.linalg.norm(clipped - shorter) < 0.02 * np.linalg.norm(shorter)


@WHICH
def test_a_front_learns_what_pytorchs_does(name: str) -> None:
    """Thirty steps down the same slope: where one comes to, and how well it then knows the rows."""
    made = made_for(name, "tanh", "classes")
    assert made.front is not None
    rows, target = rows_for(made.front, "classes")
    here = there = begin = first_weights(made, "cd" * 32)
    for _ in range(30):
        slope = made.whole_sum(made.weights(here), made.packed(rows), target) * 2.0**-SUM_BITS
        here = here - 0.5 * slope / ROWS
        there = there - 0.5 * InTorch(made, there).gradients(rows, target) / ROWS
    far = float(np.linalg.norm(there - begin))
    assert far > 0.5
    assert np.linalg.norm(here - there) < 0.02 * far
    losses = []
    for flat in (begin, here, there):
        with torch.no_grad():
            said = InTorch(made, flat)(torch.tensor(rows))
        wanted = torch.tensor(target).long()
        losses.append(float(nn.functional.cross_entropy(said, wanted)))
    assert losses[1] == pytest.approx(losses[2], abs=2e-3)
    assert losses[1] < losses[0] - 0.05
