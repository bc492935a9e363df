"""In one process, too, a person moves the sum of gradients by their own part alone."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from torch import nn  # noqa: E402

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.dp.secure_aggregation.stochastic_rounding import (  # noqa: E402
    PeopleGrid,
    squared_norm,
)
from sfumato.features.federated.training.clipped_gradients import clipped_steps  # noqa: E402

ROWS, HALF = 64, 129
MIXED = torch.randperm(HALF, generator=torch.Generator().manual_seed(1))


def amplified() -> Any:
    """Return a model that gives zero but for rounding, and brings what is rounded to the front."""
    model = nn.Sequential(nn.Linear(2 * HALF, 2)).double()
    half = torch.randn(2, HALF).double() * 1e20
    with torch.no_grad():
        model[0].weight.copy_(torch.cat([half, -half[:, MIXED]], 1))
        model[0].bias.zero_()
    return model


NETS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 3)), (5,)),
    "deep": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)), (5,)),
    "pictures": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)),
        (1, 4, 4),
    ),
    "chosen weights": (amplified, (2 * HALF,)),
}
NAMED = pytest.mark.parametrize("name", NETS)


def made(name: str, seed: int = 3) -> tuple[Any, Any, Any, PeopleGrid]:
    torch.manual_seed(seed)
    net, shape = NETS[name]
    model = net().double()
    size = sum(p.numel() for p in model.parameters())
    rows = torch.randn(ROWS, *shape).double()
    if name == "chosen weights":
        rows = torch.cat([rows[:, :HALF], rows[:, :HALF][:, MIXED]], 1)
    return (
        model,
        rows,
        torch.zeros_like(model(rows).detach()),
        PeopleGrid(Fraction(1), 1 << 20, size, ROWS),
    )


@NAMED
def test_a_person_adds_the_same_whoever_else_is_there(name: str) -> None:
    model, rows, target, grid = made(name)
    whole = clipped_steps(model, rows, target, "mse", grid)
    order = torch.randperm(ROWS)
    mixed = clipped_steps(model, rows[order], target[order], "mse", grid)
    assert (mixed == whole).all()
    for gone in range(0, ROWS, 7):
        kept = [row for row in range(ROWS) if row != gone]
        rest = clipped_steps(model, rows[kept], target[kept], "mse", grid)
        own = clipped_steps(model, rows[[gone]], target[[gone]], "mse", grid)
        assert (rest + own == whole).all()
        assert 0 < squared_norm(own) <= grid.most_squared


@NAMED
def test_the_sum_is_that_of_gradients_clipped_one_by_one(name: str) -> None:
    model, rows, target, grid = made(name)
    wanted = np.zeros(grid.size)
    for row, one in zip(rows, target, strict=True):
        loss = (model(row[None]) - one[None]).square().sum()
        parts = torch.autograd.grad(loss, list(model.parameters()))
        own = torch.cat([part.reshape(-1) for part in parts]).numpy()
        wanted += own / max(1.0, float(np.linalg.norm(own)))
    found = grid.numbers(clipped_steps(model, rows, target, "mse", grid))
    np.testing.assert_allclose(found, wanted, atol=ROWS / grid.steps)


def test_a_row_that_is_not_finite_adds_nothing() -> None:
    model, rows, target, grid = made("deep")
    others = clipped_steps(model, rows[1:], target[1:], "mse", grid)
    for bad in (float("nan"), float("inf"), 1e308):
        rows[0] = bad
        found = clipped_steps(model, rows, target, "mse", grid)
        assert squared_norm(found - others) <= grid.most_squared


def test_rows_that_do_not_fit_are_refused_however_many() -> None:
    model, rows, target, grid = made("linear")
    for count in (0, 1, 2):
        wide = torch.randn(count, 6)
        with pytest.raises((Refused, RuntimeError)):
            clipped_steps(model, wide, target[:count], "mse", grid)
        found = clipped_steps(model, rows[:count], target[:count], "mse", grid)
        assert np.any(found) == (count > 0)
