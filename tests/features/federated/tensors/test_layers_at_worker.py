"""Each layer of the list at a worker: sent, trained a step there, brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import nn, tensor  # noqa: E402

if TYPE_CHECKING:
    from support.tensor_workers import Make

WIDE, STEPS, PICTURES = (4,), (3, 6), (2, 6, 6)
# a layer, how it is made, and the shape of a row
LAYERS: tuple[tuple[str, tuple[Any, ...], tuple[int, ...]], ...] = (
    ("LeakyReLU", (0.2,), WIDE), ("ELU", (0.7,), WIDE), ("GELU", ("tanh",), WIDE),
    ("SiLU", (), WIDE), ("Softplus", (2.0, 10.0), WIDE), ("Identity", (), WIDE),
    ("CELU", (1.5,), WIDE), ("Hardtanh", (-0.5, 0.75), WIDE), ("Mish", (), WIDE),
    ("SELU", (), WIDE), ("Softsign", (), WIDE), ("LogSigmoid", (), WIDE), ("ReLU6", (), WIDE),
    ("Hardswish", (), WIDE), ("Hardsigmoid", (), WIDE), ("Softmax", (-1,), WIDE),
    ("LogSoftmax", (-1,), WIDE), ("ReLU", (), WIDE), ("Tanh", (), WIDE), ("Sigmoid", (), WIDE),
    ("PReLU", (), WIDE), ("LayerNorm", (4,), WIDE), ("GroupNorm", (2, 4), WIDE),
    ("Linear", (4, 3), WIDE), ("Conv1d", (3, 4, 3), STEPS), ("MaxPool1d", (2,), STEPS),
    ("AvgPool1d", (2,), STEPS), ("Conv2d", (2, 4, 3), PICTURES), ("MaxPool2d", (2,), PICTURES),
    ("AvgPool2d", (2,), PICTURES), ("AdaptiveAvgPool2d", (2,), PICTURES), ("Flatten", (), PICTURES),
    ("GroupNorm", (1, 2), PICTURES),
)  # fmt: skip


def step(layer: Any, rows: Any) -> Any:
    """Return what comes out, after one step that makes it smaller."""
    out = layer(rows)
    parameters = list(layer.parameters())
    if parameters:
        steps = torch.optim.SGD(parameters, lr=0.1)
        (out * out).mean().backward()
        steps.step()
    return out


@pytest.mark.parametrize(("name", "how", "shape"), LAYERS, ids=str)
def test_a_layer_learns_at_a_worker_as_it_does_here(
    name: str, how: tuple[Any, ...], shape: tuple[int, ...], worker: Make
) -> None:
    torch.manual_seed(2)
    here = getattr(nn, name)(*how)
    there, rows = here.copy(), torch.randn(3, *shape)
    bob = worker("bob")
    there.send(bob)
    assert all(parameter.location is bob for parameter in there.parameters())
    found = step(there, tensor(rows.tolist()).send(bob)).get()
    there.get()
    torch.testing.assert_close(found.detach().as_subclass(torch.Tensor), step(here, rows).detach())
    for theirs, ours in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(theirs.detach(), ours.detach())


@pytest.mark.parametrize("name", ["SiLU", "Mish", "SELU", "CELU", "Hardswish", "Hardtanh"])
def test_a_layer_that_writes_over_its_input_is_refused_there(name: str, worker: Make) -> None:
    layer, rows = getattr(nn, name)(inplace=True), tensor([[-1.0, 2.0]]).send(worker("bob"))
    with pytest.raises(Refused, match="remote-refused"):
        layer(rows)
    assert rows.get().tolist() == [[-1.0, 2.0]]


def test_an_input_is_not_written_over_by_place_either(worker: Make) -> None:
    bob = worker("bob")
    for name, more in {"silu": (), "celu": (1.0,), "hardtanh": (-1.0, 1.0), "mish": ()}.items():
        rows = tensor([[-3.0, 2.0]]).send(bob)
        with pytest.raises(Refused, match="first argument only"):
            bob.ask(do="call", name=name, args=(rows._ref.word(), *more, True), named={})
        assert rows.get().tolist() == [[-3.0, 2.0]]


def test_batch_norms_are_not_sent(worker: Make) -> None:
    with pytest.raises(Refused, match="buffers"):
        nn.BatchNorm1d(3).send(worker("bob"))
