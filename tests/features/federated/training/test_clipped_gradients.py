"""Clipped sums in closed form are those of gradients made one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated.training.clipped_gradients import clipped_sum  # noqa: E402


def net(*sizes: int) -> Any:
    torch.manual_seed(3)
    layers: list[Any] = []
    for ins, outs in pairwise(sizes):
        layers += [torch.nn.Linear(ins, outs), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1]).double()


def one_by_one(model: Any, data: Any, target: Any, loss: str, clip: float) -> np.ndarray:
    """The same by autograd, a row at a time."""
    total = np.zeros(sum(p.numel() for p in model.parameters()))
    for x, y in zip(data, target, strict=True):
        model.zero_grad()
        said = model(x[None].double())
        if loss == "mse":
            (said - y[None]).square().sum().backward()
        else:
            torch.nn.functional.cross_entropy(said, y[None]).backward()
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy()
        total += flat * min(1.0, clip / max(float(np.linalg.norm(flat)), 1e-300))
    return total


@pytest.mark.parametrize("clip", [0.01, 0.5, 1e6])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 4, 2)], ids=str)
def test_the_closed_form_is_the_sum_of_clipped_gradients(
    sizes: tuple[int, ...], loss: str, clip: float
) -> None:
    model, rows = net(*sizes), torch.rand(20, 3) * 4
    target = torch.rand(20, 2) if loss == "mse" else torch.arange(20) % 2
    made = clipped_sum(model, rows, target, loss, clip)
    np.testing.assert_allclose(made, one_by_one(model, rows, target, loss, clip), atol=1e-9)


def test_one_person_moves_the_sum_by_no_more_than_the_clip() -> None:
    model, rows, target = net(3, 4, 1), torch.rand(30, 3) * 100, torch.rand(30, 1) * 1e6
    whole = clipped_sum(model, rows, target, "mse", 0.7)
    for gone in range(30):
        kept = [row for row in range(30) if row != gone]
        part = clipped_sum(model, rows[kept], target[kept], "mse", 0.7)
        assert np.linalg.norm(whole - part) <= 0.7 * (1 + 1e-9)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e308])
def test_a_row_that_is_no_row_adds_nothing_and_spoils_nothing(bad: float) -> None:
    model, rows, target = net(3, 4, 1), torch.rand(5, 3, dtype=torch.float64), torch.rand(5, 1)
    others = clipped_sum(model, rows[1:], target[1:], "mse", 1.0)
    rows[0] = bad
    whole = clipped_sum(model, rows, target, "mse", 1.0)
    assert np.isfinite(whole).all()
    assert np.linalg.norm(whole - others) <= 1 + 1e-9


@pytest.mark.parametrize("bad", [-1, 7, float("nan")])
def test_a_class_that_is_none_is_taken_for_one(bad: float) -> None:
    """To fail would say that such a row is there."""
    target = torch.tensor([0.0, 1.0, bad])
    made = clipped_sum(net(3, 2), torch.rand(3, 3), target, "cross_entropy", 1.0)
    assert np.isfinite(made).all()


@pytest.mark.parametrize(
    ("target", "loss"),
    [((5,), "mse"), ((5, 2), "mse"), ((1, 1), "mse"), ((5, 1), "cross_entropy")],
    ids=str,
)
def test_a_target_that_would_mix_rows_is_refused(target: tuple[int, ...], loss: str) -> None:
    with pytest.raises(Refused, match="target"):
        clipped_sum(net(3, 1), torch.rand(5, 3), torch.rand(target), loss, 1.0)


Conv, Linear, ReLU = torch.nn.Conv2d, torch.nn.Linear, torch.nn.ReLU
Flatten, Tanh, Embedding = torch.nn.Flatten, torch.nn.Tanh, torch.nn.Embedding
PICTURES = (2, 6, 6)
# name -> layers, and the shape of a row (None: tokens)
NETS: dict[str, tuple[Any, tuple[int, ...] | None]] = {
    "many places": (lambda: [Conv(2, 3, 3, padding=1), Tanh(), Flatten(), Linear(108, 3)],
                    PICTURES),
    "few places": (lambda: [Conv(2, 8, 5), ReLU(), Flatten(), Linear(32, 3)], PICTURES),
    "one place": (lambda: [Conv(2, 4, 6), Tanh(), Flatten(), Linear(4, 3)], PICTURES),
    "strides": (lambda: [Conv(2, 3, (3, 2), (2, 1), (0, 1), dilation=(1, 2)), Flatten(),
                         Linear(36, 3)], PICTURES),
    "two of them, pools": (
        lambda: [Conv(2, 3, 3, padding=1), ReLU(), torch.nn.MaxPool2d(2), Conv(3, 2, 2), Tanh(),
                 torch.nn.AvgPool2d(2), Flatten(), Linear(2, 3)], PICTURES),
    "no biases": (lambda: [Conv(2, 3, 3, bias=False), Flatten(), Linear(48, 3, bias=False)],
                  PICTURES),
    "a sequence": (lambda: [Linear(4, 6), Tanh(), Linear(6, 3), Flatten(), Linear(15, 3)], (5, 4)),
    "a long sequence": (lambda: [Linear(2, 2), Flatten(), Linear(40, 3)], (20, 2)),
    "tokens": (lambda: [Embedding(4, 5), Flatten(), Tanh(), Linear(35, 3)], None),
    "tokens, some of them nothing": (
        lambda: [Embedding(4, 5, padding_idx=2), Flatten(), Linear(35, 3)], None),
}  # fmt: skip
NAMED = pytest.mark.parametrize("name", NETS)


def made(name: str) -> tuple[Any, Any]:
    """The model, and twelve rows for it; tokens come several times in a row."""
    torch.manual_seed(5)
    layers, shape = NETS[name]
    rows = torch.randint(0, 4, (12, 7)) if shape is None else torch.randn(12, *shape)
    return torch.nn.Sequential(*layers()).double(), rows


def gradients(model: Any, rows: Any, target: Any) -> np.ndarray:
    """Every row's own gradient, by autograd, a row at a time."""
    found = []
    for x, y in zip(rows, target, strict=True):
        model.zero_grad()
        said = model(x[None] if x.dtype == torch.int64 else x[None].double())
        torch.nn.functional.cross_entropy(said, y[None]).backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy())
    return np.array(found)


@NAMED
def test_the_clipped_sum_of_any_layers_is_that_of_gradients_made_one_by_one(name: str) -> None:
    """At clips that shorten all rows, some, and none."""
    model, rows = made(name)
    target = torch.arange(12) % 3
    alone = gradients(model, rows, target)
    norms = np.linalg.norm(alone, axis=1)
    for clip in (float(norms.min()) / 2, float(np.median(norms)), 1e6):
        wanted = (alone * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
        found = clipped_sum(model, rows, target, "cross_entropy", clip)
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@NAMED
def test_each_layers_share_of_a_norm_is_exact(name: str) -> None:
    """Of one layer at a time, so that no part hides behind a larger one."""
    from sfumato.features.federated.training.clipped_gradients import _passed, squared_norms

    model, rows = made(name)
    target = torch.arange(12) % 3
    alone = gradients(model, rows, target)
    start = 0
    for layer, into, back in _passed(model, rows.double(), target, "cross_entropy"):
        end = start + sum(p.numel() for p in layer.parameters())
        wanted = np.square(alone[:, start:end]).sum(axis=1)
        found = squared_norms(layer, into, back).detach().numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-15)
        start = end


@NAMED
def test_a_spoilt_row_adds_nothing_whatever_the_layers(name: str) -> None:
    model, rows = made(name)
    target = torch.arange(12) % 3
    rows = rows.double()
    others = clipped_sum(model, rows[1:], target[1:], "cross_entropy", 0.1)
    rows[0] = float("nan")
    whole = clipped_sum(model, rows, target, "cross_entropy", 0.1)
    assert np.isfinite(whole).all()
    assert np.linalg.norm(whole - others) <= 0.1 * (1 + 1e-9)


def test_a_token_that_is_none_is_taken_for_the_nearest() -> None:
    model, rows = made("tokens")
    far, target = rows.double(), torch.arange(12) % 3
    far[0, 0], far[1, 0], far[2, 0] = 99.0, -3.0, float("inf")
    found = clipped_sum(model, far, target, "cross_entropy", 1.0)
    rows[0, 0], rows[1, 0], rows[2, 0] = 3, 0, 3
    np.testing.assert_array_equal(found, clipped_sum(model, rows, target, "cross_entropy", 1.0))


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [Linear(3, 3), torch.nn.BatchNorm1d(3)],
        lambda: [Linear(3, 3), Embedding(2, 3)],
        lambda: [Embedding(4, 3, max_norm=1.0), Flatten(), Linear(21, 3)],
        lambda: [Linear(3, 3), ReLU(inplace=True), Linear(3, 3)],
        lambda: [Linear(3, 3), Flatten(0)],
    ],
    ids=["rows mixed", "tokens late", "rows moved", "written over", "rows joined"],
)  # fmt: skip
def test_layers_whose_norms_would_be_wrong_are_refused(layers: Any) -> None:
    with pytest.raises(Refused, match="remote-refused"):
        clipped_sum(
            torch.nn.Sequential(*layers()), torch.rand(5, 3), torch.zeros(5), "cross_entropy", 1.0
        )


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [Conv(5, 5, 2), Flatten(), Linear(9, 3)],
        lambda: [torch.nn.AvgPool2d(2), Flatten(), Linear(4, 3)],
    ],
    ids=["convolution", "pool"],
)
def test_rows_that_would_be_taken_for_colours_of_one_picture_are_refused(layers: Any) -> None:
    with pytest.raises(Refused, match="images must be rows"):
        clipped_sum(
            torch.nn.Sequential(*layers()), torch.rand(5, 4, 4), torch.zeros(5), "cross_entropy", 1
        )
