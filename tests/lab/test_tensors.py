"""The lab on PyTorch's tensors, as courses have them: parallel databases, and Laplace noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.lab import empirical_sensitivity, laplacian_mechanism, parallel_databases

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")
Query = Callable[[Any], Any]  # Any: of tensors
AGES = (31.5, 44.25, 58.0, 1.65, 70.125)

QUERIES: list[tuple[Any, Query, str]] = [
    (torch.tensor(AGES), lambda db: db.mean(), "float32"),
    (torch.tensor(AGES).double(), lambda db: db.mean(), "float64"),
    (torch.tensor(AGES) > 40, lambda db: db.sum(), "int64"),
    (torch.tensor(AGES) > 40, lambda db: db.float().mean(), "float32"),
    (torch.tensor(AGES), lambda db: db.sum() > 100, "int64"),
    (torch.tensor(AGES), lambda db: torch.stack([db.mean(), db.sum()]), "float32"),
    (torch.tensor(AGES, requires_grad=True), lambda db: db.mean(), "float32"),
    (torch.tensor([1, 2], dtype=torch.int32), lambda db: db.max(), "int64"),
]


@pytest.mark.parametrize(("db", "query", "kind"), QUERIES)
def test_a_tensor_comes_back_as_a_tensor(db: Any, query: Query, kind: str) -> None:
    found = laplacian_mechanism(db, query, 1, epsilon=1000)
    assert str(found.dtype) == f"torch.{kind}"
    assert not found.requires_grad
    truth = query(db).detach().numpy().astype(float)
    assert found.shape == truth.shape
    assert np.allclose(found.numpy().astype(float), truth, atol=0.05)


def test_a_number_of_a_tensor_has_no_more_digits_than_the_tensor() -> None:
    """`.item()` makes a float64 of a float32, whose last digits are noise of rounding."""
    ones = torch.ones(100_000)
    query: Query = lambda db: db.mean().item()  # noqa: E731  # as a course writes it
    with pytest.raises(Refused) as refused:
        laplacian_mechanism(ones, query, 1e-5, epsilon=1)
    assert "float64" in refused.value.next_step
    assert abs(laplacian_mechanism(ones.double(), query, 1e-5, epsilon=1) - 1) < 1e-3


@pytest.mark.parametrize(
    "wrong", [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2).to_sparse(), torch.zeros(0)]
)
def test_tensors_that_no_noise_is_put_on(wrong: Any) -> None:
    with pytest.raises(Refused):
        laplacian_mechanism(wrong, lambda db: db, 1, epsilon=1)


def test_the_course_measures_a_sensitivity_over_parallel_tensors() -> None:
    db = torch.rand(50, generator=torch.Generator().manual_seed(1)) > 0.5
    tables = dict(parallel_databases(db))
    assert len(tables) == 50
    for gone, table in tables.items():
        assert isinstance(gone, int)
        assert torch.equal(table, torch.cat([db[:gone], db[gone + 1 :]]))
    assert empirical_sensitivity(lambda one: one.sum(), db).largest == 1
    mean = empirical_sensitivity(lambda one: one.float().mean(), db).largest
    assert 0 < mean < 1 / 49
    wide = torch.arange(6.0).reshape(3, 2)
    assert empirical_sensitivity(lambda one: one.sum(dim=0), wide).largest == 4 + 5


def test_whole_sensitivities_and_epsilons_may_be_tensors() -> None:
    found = laplacian_mechanism(
        torch.ones(5), lambda db: db.sum(), torch.tensor(1), epsilon=torch.tensor(0.5)
    )
    assert abs(float(found) - 5) < 60
