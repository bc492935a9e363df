"""Clipped sums in closed form are those of gradients made one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.core.refusal import Refused  # noqa: E402
from sfumato.federated.gradients import clipped_sum  # noqa: E402


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
