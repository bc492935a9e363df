"""The cells of the old course, with nothing but their import lines changed."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import course, federate  # noqa: E402
from sfumato.features.federated.course import INSTEAD  # noqa: E402

COURSE = "sfumato.features.federated.course"

IMPORTS = """
import sfumato.features.federated.course as sy
from sfumato.features.federated.course import nn, optim, th
"""
WORKERS = """
hook = sy.TorchHook(th)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
secure_worker = sy.VirtualWorker(hook, id="secure_worker")
"""
ARITHMETIC = """
x = th.tensor([1, 2, 3, 4, 5])
x = x.send(bob)
y = th.tensor([1, 1, 1, 1, 1]).send(bob)
assert len(bob._objects) == 2
z = x + y
print(x.location.id, z.get())
bob.clear_objects()
print(bob._objects)
"""
DATA = """
data = th.tensor([[1., 1], [0, 1], [1, 0], [0, 0]], requires_grad=True)
target = th.tensor([[1.], [1], [0], [0]], requires_grad=True)
data_bob = data[0:2].send(bob)
target_bob = target[0:2].send(bob)
data_alice = data[2:4].send(alice)
target_alice = target[2:4].send(alice)
datasets = [(data_bob, target_bob), (data_alice, target_alice)]
"""
ROUND_ROBIN = """
def train(iterations=20):
    model = nn.Linear(2, 1)
    opt = optim.SGD(params=model.parameters(), lr=0.1)
    for iter in range(iterations):
        for _data, _target in datasets:
            # send model to the data
            model = model.send(_data.location)
            # do normal training
            opt.zero_grad()
            pred = model(_data)
            loss = ((pred - _target)**2).sum()
            loss.backward()
            opt.step()
            # get smarter model back
            model = model.get()
            loss = loss.get()
    return loss

th.manual_seed(0)
loss = train()
"""
AVERAGE = """
model = nn.Linear(2, 1)
for round_iter in range(10):
    bobs_model = model.copy().send(bob)
    alices_model = model.copy().send(alice)
    bobs_opt = optim.SGD(params=bobs_model.parameters(), lr=0.1)
    alices_opt = optim.SGD(params=alices_model.parameters(), lr=0.1)
    for i in range(5):
        bobs_opt.zero_grad()
        bobs_loss = ((bobs_model(data_bob) - target_bob)**2).sum()
        bobs_loss.backward()
        bobs_opt.step()
        bobs_loss = bobs_loss.get().data
        alices_opt.zero_grad()
        alices_loss = ((alices_model(data_alice) - target_alice)**2).sum()
        alices_loss.backward()
        alices_opt.step()
        alices_loss = alices_loss.get().data
    alices_model.move(secure_worker)
    bobs_model.move(secure_worker)
    with th.no_grad():
        model.weight.set_(((alices_model.weight.data + bobs_model.weight.data) / 2).get())
        model.bias.set_(((alices_model.bias.data + bobs_model.bias.data) / 2).get())
secure_worker.clear_objects()
loss = ((model(data) - target)**2).sum().data
"""


def run(*cells: str) -> tuple[dict[str, object], str]:
    """What the cells leave behind, and what they print."""
    names: dict[str, object] = {}
    with redirect_stdout(io.StringIO()) as printed:
        for cell in (IMPORTS, WORKERS, *cells):
            exec(cell, names)  # noqa: S102  # as a notebook does
    return names, printed.getvalue()


def test_tensors_are_sent_added_and_cleared() -> None:
    assert run(ARITHMETIC)[1] == "bob tensor([2, 3, 4, 5, 6])\n{}\n"


def test_a_model_goes_round_the_workers_and_learns() -> None:
    assert float(run(DATA, ROUND_ROBIN)[0]["loss"]) < 0.05  # type: ignore[arg-type]  # a tensor


def test_models_trained_apart_are_averaged_at_a_third_worker() -> None:
    names, _ = run("th.manual_seed(0)", DATA, AVERAGE)
    assert float(names["loss"]) < 0.1  # type: ignore[arg-type]  # a tensor
    assert names["secure_worker"]._objects == {}


def test_pytorch_is_left_as_it_was() -> None:
    before = set(vars(torch.Tensor)) | set(vars(torch.nn.Module))
    run(ARITHMETIC, DATA, ROUND_ROBIN)
    assert set(vars(torch.Tensor)) | set(vars(torch.nn.Module)) == before
    assert not hasattr(torch.tensor([1]), "send")


def test_what_makes_tensors_makes_ones_that_can_be_sent() -> None:
    names, printed = run("print(th.ones(2).send(bob).get(), th.Tensor([1, 2]).send(alice).shape)")
    assert printed == "tensor([1., 1.]) torch.Size([2])\n"
    assert names["hook"].local_worker.id == "me"


REMOTE = """
x = th.tensor([1., 2, 3, 4, 5], requires_grad=True).send(bob)
y = th.tensor([1., 1, 1, 1, 1], requires_grad=True).send(bob)
assert x.location is bob and x.owner is hook.local_worker
assert x.id_at_location in x.id
z = th.add(x, y).sum()
z.backward()
x = x.get()
print(x.tolist(), x.grad.tolist())
"""
LINE = """
input = th.tensor([[1., 1], [0, 1.], [1, 0.], [0, 0.]], requires_grad=True).send(bob)
target = th.tensor([[1.], [1], [0], [0]], requires_grad=True).send(bob)
weights = th.tensor([[0.], [0.]], requires_grad=True).send(bob)
losses = []
for i in range(10):
    pred = input.mm(weights)
    loss = ((pred - target)**2).sum()
    loss.backward()
    weights.data.sub_(weights.grad * 0.1)
    weights.grad *= 0
    losses.append(loss.get().data)
"""
SEVERAL = """
x = th.tensor([1, 2, 3, 4, 5])
x_ptr = x.send(bob, alice)
assert x_ptr.location == (bob, alice)
print([part.tolist() for part in x_ptr.get()])
print(x.send(bob, alice).get(sum_results=True).tolist())
print(bob._objects, alice._tensors)
"""
MOVED = """
bob.add_workers([alice, secure_worker])
x = th.tensor([1, 2, 3]).send(bob)
assert x.copy().get().tolist() == [1, 2, 3]
assert x.move(bob) is x
x = x.send(alice)
assert len(bob._objects) == 0 and len(alice._objects) == 1
print(x.move(hook.local_worker).tolist(), alice._objects)
x = th.tensor([1, 2, 3]).send(bob).send(alice)
x = x.get()
x = x.get()
print(x.tolist())
"""
COLLECTED = """
x = th.tensor([1, 2, 3]).send(bob)
del x
assert len(bob._objects) == 0
x = th.tensor([1, 2, 3]).send(bob)
x = "asdf"
assert len(bob._objects) == 0
for i in range(100):
    x = th.tensor([1, 2, 3, 4, 5]).send(bob)
assert len(bob._objects) == 1
bob = bob.clear_objects()
print(bob._objects)
"""


def test_what_was_sent_comes_back_with_its_gradient() -> None:
    said = "[1.0, 2.0, 3.0, 4.0, 5.0] [1.0, 1.0, 1.0, 1.0, 1.0]\n"
    assert run(REMOTE)[1] == said


def test_a_line_is_learnt_by_gradients_that_stay_there() -> None:
    losses: Any = run(LINE)[0]["losses"]
    assert losses[0] == 2
    assert losses[-1] < 0.1
    assert all(later < earlier for earlier, later in pairwise(losses))


def test_a_tensor_is_sent_to_several_workers_and_added_up() -> None:
    assert run(SEVERAL)[1] == "[[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]\n[2, 4, 6, 8, 10]\n{} {}\n"


def test_what_is_moved_lies_in_one_place_and_moved_here_it_is_here() -> None:
    assert run(MOVED)[1] == "[1, 2, 3] {}\n[1, 2, 3]\n"


def test_what_nobody_speaks_of_is_gone() -> None:
    assert run(COLLECTED)[1] == "{}\n"


SHARED = """
bob = bob.clear_objects()
alice = alice.clear_objects()
secure_worker = secure_worker.clear_objects()
x = th.tensor([1, 2, 3, 4, 5])
x = x.share(bob, alice, secure_worker)
assert len(bob._objects) == len(alice._objects) == 1
y = x + x
print(y.get())
x = th.tensor([0.1, 0.2, 0.3])
x = x.fix_prec()
print(x.child.child)
y = x + x
y = y.float_prec()
print(y)
x = th.tensor([0.1, 0.2, 0.3])
x = x.fix_prec().share(bob, alice, secure_worker)
y = x + x
print(y.get().float_prec())
x = th.tensor([25]).share(bob, alice, crypto_provider=secure_worker)
y = th.tensor([5]).share(bob, alice, crypto_provider=secure_worker)
print((x + y).get(), (x - y).get(), (x * y).get())
"""
TAGGED = """
x = th.tensor([1, 2, 3]).tag("#boston", "#data").describe("a first table").send(bob)
y = th.tensor([4, 5, 6]).tag("#boston", "#target").send(bob)
found = bob.search(["#boston", "#data"])
print(len(bob.search("#boston")), found[0].description, found[0].child.location.id)
print((found[0] + bob.search("#target")[0]).get())
z = th.tensor([7]).send(bob)
assert z.child.garbage_collect_data
print(z.copy().get(reason="to look at it"))
"""


def test_numbers_are_shared_added_and_multiplied_among_workers() -> None:
    tenths = "tensor([0.2000, 0.4000, 0.6000])"
    assert run(SHARED)[1].splitlines() == [
        "tensor([ 2,  4,  6,  8, 10])", "tensor([100, 200, 300])", tenths, tenths,
        "tensor([30]) tensor([20]) tensor([125])",
    ]  # fmt: skip


def test_tensors_are_found_by_their_tags() -> None:
    assert run(TAGGED)[1].splitlines() == [
        "2 a first table bob", "tensor([5, 7, 9])", "tensor([7])",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["FederatedDataLoader", "PrivateTensor", "WebsocketClientWorker", "WebsocketServerWorker"],
)
def test_an_old_name_that_is_not_here_says_what_to_write(name: str) -> None:
    with pytest.raises(Refused, match=r"remote-refused.*write "):
        run(f"sy.{name}")
    with pytest.raises(AttributeError):
        run("sy.NoSuchName")


@pytest.mark.parametrize("name", ["th", "torch"])
def test_plain_pytorch_is_refused_with_what_to_import(name: str) -> None:
    cells = f"import torch as {name}\nimport sfumato.features.federated.course as sy\nsy.TorchHook({name})"  # noqa: E501
    with pytest.raises(Refused, match="course import th, nn, optim"):
        exec(cells, {})  # noqa: S102  # as a notebook does
    right = cells.replace(f"import torch as {name}", f"from {COURSE} import {name}")
    exec(right, {})  # noqa: S102


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_a_name_of_the_old_library_says_what_to_write(name: str) -> None:
    with pytest.raises(Refused, match="write"):
        getattr(course, name)


def test_two_workers_average_what_they_were_sent() -> None:
    """Of a class of two: the notebook sent the data, so it may see what each has learnt."""
    two = AVERAGE.replace("alices_model.move(secure_worker)", "alices_model.move(bob)")
    two = two.replace("    bobs_model.move(secure_worker)\n", "").replace("secure_worker", "bob")
    names, _ = run("th.manual_seed(0)", DATA, two)
    assert float(names["loss"]) < 0.1  # type: ignore[arg-type]  # a tensor


def test_two_sites_are_told_why_they_cannot_hide_from_each_other() -> None:
    tables = {name: {"x": torch.rand(4, 2)} for name in ("bob", "alice")}
    with pytest.raises(Refused, match="subtract its own"):
        federate(tables, epsilon=1, delta=1e-6, people=4)
