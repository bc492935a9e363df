"""Tensors at workers: sent, computed with, trained on and brought back.

Everything here holds for workers in this process and for real sites alike
(features/federated/conftest.py).
"""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import nn, tensor  # noqa: E402
from sfumato.features.federated.tensors.remote_modules import get, send  # noqa: E402
from support.tensor_workers import Make  # noqa: E402

F = torch.nn.functional


def test_what_is_sent_is_computed_with_there_and_comes_back(worker: Make) -> None:
    bob = worker("bob")
    x, y = tensor([1, 2, 3, 4, 5]).send(bob), tensor([1, 1, 1, 1, 1]).send(bob)
    z = x + y
    assert z.location is bob
    assert z.shape == (5,)
    assert bob.objects_count() == 3
    assert z.get().tolist() == [2, 3, 4, 5, 6]
    assert bob.objects_count() == 2


def test_a_tensor_comes_back_once(worker: Make) -> None:
    x = tensor([1.0]).send(worker("bob"))
    x.get()
    with pytest.raises(Refused, match="remote-unknown"):
        x.get()
    with pytest.raises(Refused, match="remote-unknown"):
        x + 1


def test_what_was_sent_is_a_copy(worker: Make) -> None:
    here = tensor([1.0, 2.0])
    there = here.send(worker("bob"))
    here.fill_(9)
    there.add_(1)
    assert there.get().tolist() == [2, 3]
    assert here.tolist() == [9, 9]


A = [[1.0, -2.0], [0.5, 4.0]]
SAME: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "radd": lambda x: 1 + x,
    "rsub": lambda x: 1 - x,
    "rdiv": lambda x: 1 / x,
    "rpow": lambda x: 2**x,
    "power": lambda x: x**2,
    "negative": lambda x: -x,
    "product": lambda x: x @ x,
    "mm": lambda x: x.mm(x),
    "transposed": lambda x: x.T,
    "row": lambda x: x[0],
    "column": lambda x: x[:, 1:],
    "ellipsis": lambda x: x[..., None, -1],
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(dim=1, keepdim=True),
    "mean": lambda x: x.mean(0),
    "largest": lambda x: x.max(),
    "largest of rows": lambda x: x.max(dim=1)[0],
    "norm": lambda x: x.norm(),
    "std": lambda x: x.std(),
    "exp": torch.exp,
    "relu": F.relu,
    "softmax": lambda x: F.softmax(x, dim=1),
    "compared": lambda x: (x > 0).float(),
    "where": lambda x: torch.where(x > 0, x, x * 0),
    "stacked": lambda x: torch.stack([x, 2 * x]),
    "reshaped": lambda x: x.reshape(4).unsqueeze(1),
    "as doubles": lambda x: x.to(torch.float64).sum(),
    "convolved": lambda x: F.conv2d(x[None, None], x[None, None, :1, :1] + 1),
    "pooled": lambda x: F.max_pool2d(x[None, None], 2),
    "linear": lambda x: F.linear(x, x, x[0]),
    "loss": lambda x: F.mse_loss(x, x * 2),
    "classes": lambda x: F.cross_entropy(x, (x[:, 0] * 0).long()),
}


@pytest.mark.parametrize("name", SAME)
def test_a_worker_computes_what_pytorch_computes(worker: Make, name: str) -> None:
    here = torch.tensor(A)
    there = SAME[name](tensor(A).send(worker("bob")))
    expected = SAME[name](here)
    assert there.shape == expected.shape
    assert there.dtype == expected.dtype
    torch.testing.assert_close(there.get().as_subclass(torch.Tensor), expected)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_values_of_every_kind_travel_unchanged(
    worker: Make, dtype: str, shape: tuple[int, ...]
) -> None:
    value = (torch.rand(shape) * 10).to(getattr(torch, dtype))
    back = tensor(value.tolist(), dtype=value.dtype).reshape(shape).send(worker("b")).get()
    assert back.dtype == value.dtype
    assert back.shape == value.shape
    assert (back == value).all()


def test_tensors_of_two_workers_are_not_computed_with(worker: Make) -> None:
    bob, alice = worker("bob"), worker("alice")
    x, y = tensor([1.0]).send(bob), tensor([1.0]).send(alice)
    with pytest.raises(Refused, match=r"remote-elsewhere.*'bob' and 'alice'.*move"):
        x + y
    with pytest.raises(Refused, match="remote-elsewhere"):
        torch.cat([x, y])
    assert (x + y.move(bob)).get().tolist() == [2]


def test_workers_of_the_same_name_are_two_workers(worker: Make) -> None:
    x, y = (tensor([1.0]).send(worker("bob")) for _ in range(2))
    with pytest.raises(Refused, match="remote-elsewhere"):
        x + y


def test_a_tensor_that_is_here_is_sent_first(worker: Make) -> None:
    x = tensor([1.0]).send(worker("bob"))
    for act in (lambda: x + tensor([1.0]), lambda: torch.ones(1) * x):
        with pytest.raises(Refused, match=r"remote-elsewhere.*Send the local tensor"):
            act()


def test_moving_takes_it_from_the_first_worker(worker: Make) -> None:
    bob, alice = worker("bob"), worker("alice")
    x = tensor([1, 2]).send(bob)
    y = x.move(alice)
    assert (bob.objects_count(), alice.objects_count()) == (0, 1)
    assert y.move(alice) is y
    assert y.get().tolist() == [1, 2]


def test_a_cleared_worker_holds_nothing(worker: Make) -> None:
    with worker("bob") as bob:
        x = tensor([1.0]).send(bob)
        assert bob.clear_objects() is bob
        assert bob.objects() == tuple(f"table:{name}" for name in bob.tables)
        with pytest.raises(Refused, match="remote-unknown"):
            x.get()
        tensor([1.0]).send(bob)
    assert bob.objects_count() == 0


def test_what_nobody_speaks_of_any_more_is_dropped(worker: Make) -> None:
    bob = worker("bob")
    x = tensor([1.0]).send(bob)
    for _ in range(50):
        x = x + 1
    gc.collect()
    assert bob.objects_count() == 1
    assert x.get().item() == 51


def test_gradients_are_computed_there(worker: Make) -> None:
    bob = worker("bob")
    x = tensor([1.0, 2.0], requires_grad=True).send(bob)
    assert x.requires_grad
    assert x.grad is None
    (x**3).sum().backward()
    assert x.grad.get().tolist() == [3, 12]
    x.grad = None
    assert x.grad is None
    back = x.get()
    assert back.requires_grad


def trained(model: Any, data: Any, target: Any, optimiser: Any, steps: int = 15) -> Any:
    for _ in range(steps):
        optimiser.zero_grad()
        loss = ((model(data) - target) ** 2).mean()
        loss.backward()
        optimiser.step()
    return loss


def net(module: Any) -> Any:
    torch.manual_seed(1)
    return module.Sequential(module.Linear(3, 5), module.ReLU(), module.Linear(5, 1))


@pytest.mark.parametrize(
    "optimiser",
    [
        lambda p: torch.optim.SGD(p, lr=0.05),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, lr=0.05),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_training_there_is_training_here(worker: Make, optimiser: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    data, target = torch.rand(8, 3), torch.rand(8, 1)
    here, there, bob = net(torch.nn), net(nn), worker("bob")
    trained(here, data, target, optimiser(here.parameters()))
    steps = optimiser(there.parameters())  # made before the model is sent
    there.send(bob)
    assert there.location is bob
    x, y = (tensor(part.tolist()).send(bob) for part in (data, target))
    loss = trained(there, x, y, steps)
    there.get()
    assert there.location is None
    assert loss.get().item() > 0
    for ours, theirs in zip(there.parameters(), here.parameters(), strict=True):
        assert type(ours) is torch.nn.Parameter
        torch.testing.assert_close(ours, theirs)


def test_any_module_of_pytorch_can_be_sent(worker: Make) -> None:
    model, bob = torch.nn.Linear(2, 1), worker("bob")
    before = model.weight.detach().clone()
    send(model, bob)
    assert isinstance(model.weight, torch.nn.Parameter)
    assert (get(model).weight == before).all()
    assert bob.objects_count() == 0


def test_a_model_of_ones_own_and_one_with_tied_parameters_can_be_sent(worker: Make) -> None:
    class Tied(nn.Module):  # type: ignore[name-defined]  # made on demand
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
            self.two.weight = self.one.weight

        def forward(self, x: Any) -> Any:
            return self.two(torch.relu(self.one(x)))

    model, bob = Tied(), worker("bob")
    model.send(bob)
    assert bob.objects_count() == 3
    model(tensor([[1.0, 1.0]]).send(bob)).sum().backward()
    model.get()
    assert model.two.weight is model.one.weight


def test_a_copy_stays_here(worker: Make) -> None:
    model = nn.Linear(2, 1)
    other = model.copy().send(worker("bob"))
    assert model.location is None
    assert other.location is not None
    assert model(torch.ones(1, 2)).shape == (1, 1)


def test_a_model_moves_from_worker_to_worker(worker: Make) -> None:
    bob, alice = worker("bob"), worker("alice")
    model = nn.Linear(2, 1).send(bob).move(alice)
    assert model.location is alice
    assert bob.objects_count() == 0


def test_a_model_is_sent_whole_or_not_at_all(worker: Make) -> None:
    bob = worker("bob")
    with pytest.raises(Refused, match="buffers"):
        nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).send(bob)
    model = nn.Linear(2, 1).send(bob)
    with pytest.raises(Refused, match="already"):
        model.send(worker("alice"))
    with pytest.raises(Refused, match="remote-elsewhere"):
        model(torch.ones(1, 2))
    assert bob.objects_count() == 2


FORBIDDEN: dict[str, Callable[[Any], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool(x.sum() > 1),
    "branch": lambda x: 1 if x.sum() else 0,
    "list": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "loop": lambda x: list(x),
    "format": lambda x: f"{x.sum():.2f}",
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "pickle": pickle.dumps,
    "data": lambda x: setattr(x, "data", torch.ones(2, 2)),
    "elsewhere": lambda x: x.cuda(),
    "out": lambda x: torch.maximum(x, x, out=x),
    "inplace": lambda x: F.relu(x, inplace=True),
    "apply": lambda x: x.apply_(lambda v: v),
    "objects": lambda x: x + object(),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_nothing_turns_a_remote_tensor_into_values_here(worker: Make, name: str) -> None:
    x = tensor(A).send(worker("bob"))
    with pytest.raises((Refused, TypeError)):
        FORBIDDEN[name](x)
    assert (x.get() == torch.tensor(A)).all()


def test_it_is_printed_by_where_it_is(worker: Make) -> None:
    x = tensor([1.0, 2.0]).send(worker("bob"))
    assert repr(x) == f"[remote tensor (2,) | bob:{x.id_at_location}]"
    assert str(x.location) == f"<{type(x.location).__name__} id='bob'>"
    assert repr(tensor([1.5])) == "tensor([1.5000])"
    assert copy.deepcopy(x).get().tolist() == [1, 2]


def test_what_goes_wrong_with_your_own_tensors_is_told(worker: Make) -> None:
    bob = worker("bob")
    with pytest.raises(Refused, match=r"remote-refused.*size"):
        tensor([1.0, 2.0]).send(bob) @ tensor([1.0, 2.0, 3.0]).send(bob)


def test_what_is_tagged_is_found_where_it_is_by_all_of_its_tags(worker: Make) -> None:
    bob = worker("bob")
    x = tensor([1, 2]).tag("#toy", "#x").describe("what goes in").send(bob)
    y = (x + 1).tag("#toy")
    assert [found.id_at_location for found in bob.search("#toy")] == [
        x.id_at_location,
        y.id_at_location,
    ]
    (found,) = bob.search(["#toy", "#x"])
    assert (found.tags, found.description) == ({"#toy", "#x"}, "what goes in")
    assert (y.tags, y.description) == ({"#toy"}, None)
    assert bob.search("#toy", "#y") == []
    assert (found + 1).get().tolist() == [2, 3]


def test_what_was_found_keeps_nothing_there(worker: Make) -> None:
    bob = worker("bob")
    x = tensor([1]).tag("#x").send(bob)
    found = bob.search("#x")[0]
    assert (found.garbage_collect_data, x.garbage_collect_data) == (False, True)
    del found
    assert x.clone().get().tolist() == [1]
    x.get()
    assert bob.search("#x") == []
    y = tensor([1]).tag("#x").send(bob)
    assert len(bob.search("#x")) == 1
    bob.clear_objects()
    assert bob.search("#x") == []
    del y


@pytest.mark.parametrize(
    "tags", [("a" * 1001,), tuple(f"{n}" for n in range(33)), (1,)], ids=("long", "many", "number")
)
def test_a_tag_is_a_short_text_and_few_are_enough(worker: Make, tags: Any) -> None:
    bob = worker("bob")
    x = tensor([1]).send(bob)
    with pytest.raises(Refused, match="remote-refused"):
        x.tag(*tags)
    assert bob.search() == []
    with pytest.raises(Refused, match="remote-refused"):
        bob.ask(do="search", tags=[["#x"]])
    assert x.get().tolist() == [1]


OLD_WORDS = ("send_", "get_", "move_", "fix_precision", "share", "float_prec")


@pytest.mark.parametrize("name", OLD_WORDS)
def test_an_old_word_that_is_not_here_says_what_to_write(worker: Make, name: str) -> None:
    x = tensor([1.0]).send(worker("bob"))
    with pytest.raises(Refused, match=r"remote-refused.*write x"):
        getattr(x, name)
    assert not hasattr(x, "no_such_word")
    assert x.child is x


def test_nobody_asks_in_anothers_name(worker: Make) -> None:
    x = tensor([1.0]).send(worker("bob"))
    with pytest.raises(Refused, match="remote-refused"):
        x.get(user="eve", reason="I need it")
    assert x.get(reason="it is mine").tolist() == [1]
