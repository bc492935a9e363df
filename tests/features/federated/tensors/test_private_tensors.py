"""What belongs to a site stays there, whatever way round is tried; here, and at real sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import VirtualWorker, nn, tensor  # noqa: E402
from sfumato.features.federated.tensors.worker import Worker  # noqa: E402


def test_a_site_tells_the_names_of_its_tables_and_their_declared_shape(clinic: Worker) -> None:
    assert clinic.tables == ("ages",)
    assert clinic.table("ages").shape == (2, 2)
    with pytest.raises(Refused, match="remote-unknown"):
        clinic.table("salaries")


def test_clearing_leaves_the_sites_own_tables(clinic: Worker) -> None:
    clinic.table("ages").sum()
    assert clinic.clear_objects().tables == ("ages",)
    assert clinic.objects_count() == 0


def view_before(clinic: Worker, ages: Any) -> Any:
    mine = tensor([0.0, 0.0]).send(clinic)
    view = mine[0:]
    mine.copy_(ages[0])
    return view


def original_after_its_view_was_written(clinic: Worker, ages: Any) -> Any:
    mine = tensor([0.0, 0.0]).send(clinic)
    mine[0:].copy_(ages[0])
    return mine


def detached(clinic: Worker, ages: Any) -> Any:
    mine = tensor([0.0, 0.0]).send(clinic)
    mine.data.copy_(ages[0])
    return mine


def gradient_of_a_product(clinic: Worker, ages: Any) -> Any:
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    (mine * ages).sum().backward()
    return mine.grad


def gradient_added_to_an_earlier_one(clinic: Worker, ages: Any) -> Any:
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    (mine * 0).sum().backward()
    early = mine.grad
    (mine * ages).sum().backward()
    return early


def view_of_an_earlier_gradient(clinic: Worker, ages: Any) -> Any:
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    (mine * 0).sum().backward()
    early = mine.grad[0:]
    (mine * ages).sum().backward()
    return early


def gradient_added_to_what_was_set(clinic: Worker, ages: Any) -> Any:
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    set_by_me = tensor([[0.0, 0.0], [0.0, 0.0]]).send(clinic)
    mine.grad = set_by_me
    (mine * ages).sum().backward()
    return set_by_me


def gradient_that_was_set_to_the_table(clinic: Worker, ages: Any) -> Any:
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    mine.grad = ages
    return mine.grad


def table_as_the_gradient_to_start_from(clinic: Worker, ages: Any) -> Any:
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    (mine * 1).backward(ages)
    return mine.grad


def loss_from_before_over_values_from_after(clinic: Worker, ages: Any) -> Any:
    weight = tensor([1.0, 1.0], requires_grad=True).send(clinic)
    mine = tensor([0.0, 0.0]).send(clinic)
    loss = (weight * mine).sum()
    mine.data.copy_(ages[0])
    loss.backward()
    return weight.grad


WAYS: dict[str, Callable[[Worker, Any], Any]] = {
    "the table": lambda clinic, ages: ages,
    "a sum": lambda clinic, ages: ages.sum(),
    "a product with nothing": lambda clinic, ages: ages * 0,
    "a comparison": lambda clinic, ages: ages > 50,
    "a view": lambda clinic, ages: ages[0],
    "a copy": lambda clinic, ages: ages.clone().detach(),
    "added to what was sent": lambda clinic, ages: tensor([1.0, 1.0]).send(clinic).add_(ages[0]),
    "moved": lambda clinic, ages: ages.move(VirtualWorker(id="mine")),
    "stacked": lambda clinic, ages: torch.stack([tensor([1.0, 1.0]).send(clinic), ages[0]]),
    **{
        way.__name__.replace("_", " "): way
        for way in (
            view_before,
            original_after_its_view_was_written,
            detached,
            gradient_of_a_product,
            gradient_added_to_an_earlier_one,
            view_of_an_earlier_gradient,
            gradient_added_to_what_was_set,
            gradient_that_was_set_to_the_table,
            table_as_the_gradient_to_start_from,
            loss_from_before_over_values_from_after,
        )
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_computed_from_a_sites_table_does_not_come_back(clinic: Worker, way: str) -> None:
    ages = clinic.table("ages")
    # a value that autograd kept and that was changed since is refused by autograd itself
    with pytest.raises(Refused, match=r"remote-private.*noisy release|cannot be carried out\."):
        WAYS[way](clinic, ages).get()


def test_a_model_that_was_trained_on_a_sites_table_does_not_come_back(clinic: Worker) -> None:
    model = nn.Linear(2, 1)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    model.send(clinic)
    model(clinic.table("ages")).sum().backward()
    steps.step()
    with pytest.raises(Refused, match="remote-private"):
        model.get()
    assert model.location is clinic
    with pytest.raises(Refused, match="remote-private"):
        model.move(VirtualWorker(id="mine"))


def test_the_same_training_on_what_was_sent_comes_back(clinic: Worker) -> None:
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    model.send(clinic)
    model(tensor([[1.0, 2.0]]).send(clinic)).sum().backward()
    steps.step()
    assert (model.get().weight != before).all()


def test_what_was_sent_and_not_written_to_comes_back_all_the_same(clinic: Worker) -> None:
    mine = tensor([1.0, 2.0]).send(clinic)
    (clinic.table("ages") * mine).sum()
    assert mine.get().tolist() == [1, 2]


def test_a_sites_table_is_not_written_to(clinic: Worker) -> None:
    ages = clinic.table("ages")
    column, flat = ages[:, 0], ages.view(-1)[0:1]
    for act in (
        lambda: ages.zero_(), lambda: ages.requires_grad_(), lambda: column.zero_(),
        lambda: flat.fill_(7), lambda: ages.detach().mul_(2),
    ):  # fmt: skip
        with pytest.raises(Refused, match="cannot be changed"):
            act()


def test_no_gradient_is_added_to_a_sites_table() -> None:
    clinic = VirtualWorker(id="clinic", tables={"x": torch.tensor([1.0, 2.0])})
    mine = tensor([3.0, 4.0], requires_grad=True).send(clinic)
    mine.grad = clinic.table("x")
    (mine * 5).sum().backward()
    assert clinic._store._tables["table:x"].tolist() == [1, 2]


def test_what_goes_wrong_says_nothing_of_a_sites_values(clinic: Worker) -> None:
    ages = clinic.table("ages")
    loss = torch.nn.functional.cross_entropy
    with pytest.raises(Refused) as failed:  # at a real site the classes are not looked at
        loss(ages, ages[:, 0].long()).get()
    assert "58" not in str(failed.value)
    assert failed.value.code == "remote-private"


def of_classes(clinic: Worker, held: Any) -> Any:
    """A class that is none: a cell is taken, number by number, where that fails."""
    logits = tensor([[0.5]], requires_grad=True).send(clinic)
    return torch.nn.functional.cross_entropy(logits, held[1:2, 0].long() - 3)


def of_classes_by_their_odds(clinic: Worker, held: Any) -> Any:
    logits = tensor([[0.5]], requires_grad=True).send(clinic)
    return torch.nn.functional.nll_loss(logits, held[1:2, 0].long() - 3)


def of_a_division(clinic: Worker, held: Any) -> Any:
    return tensor([5]).send(clinic).div(held[1:2, 0].long() - 4, rounding_mode="floor")


def of_odds(clinic: Worker, held: Any) -> Any:
    given = tensor([0.5], requires_grad=True).send(clinic)
    return torch.nn.functional.binary_cross_entropy(held[1:2, 0] - 3, given)


@pytest.mark.parametrize("asked", [of_classes, of_classes_by_their_odds, of_a_division, of_odds])
def test_whether_something_fails_says_nothing_of_a_sites_values(asked: Any) -> None:
    told = []
    for value in (3.0, 4.0, 5.0):
        clinic = VirtualWorker(id="clinic", tables={"t": torch.tensor([[1.0], [value]])})
        made = asked(clinic, clinic.table("t"))
        can_learn = made.requires_grad
        if can_learn:
            made.sum().backward()
        told.append((tuple(made.shape), made.dtype, can_learn, clinic.objects()))
    assert told[0] == told[1] == told[2]


def test_the_table_handed_to_a_site_is_copied() -> None:
    held = torch.tensor([1.0])
    clinic = VirtualWorker(id="clinic", tables={"x": held})
    held.fill_(5)
    assert clinic._store._tables["table:x"].item() == 1


def stolen_through(view: Callable[[Any], Any], clinic: Worker, ages: Any) -> list[Any]:
    """A gradient that is a view of the one it began with; the next is added to it in place."""
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    first = tensor([[0.0, 0.0], [0.0, 0.0]]).send(clinic)
    seen = view(mine)
    seen.backward(first.view(*seen.shape))
    loss = (mine * ages).sum()
    del mine, seen
    loss.backward()
    return list(first.get().tolist())


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(4),
    "the same view": lambda x: x.view(2, 2),
    "turned twice": lambda x: x.t().t(),
    "a side more": lambda x: x.unsqueeze(0),
    "another shape": lambda x: x.reshape(1, 4),
    "itself": lambda x: x,
    "a sum": lambda x: x + 0,
}


@pytest.mark.parametrize("view", VIEWS)
def test_no_gradient_is_added_to_one_that_was_begun_with(clinic: Worker, view: str) -> None:
    """It came back: the table itself, to the last digit."""
    found = stolen_through(VIEWS[view], clinic, clinic.table("ages"))
    assert found == [[0.0, 0.0], [0.0, 0.0]]


def test_a_gradient_that_lies_in_another_is_kept_too(clinic: Worker) -> None:
    one, two = (tensor([[1.0, 1.0]], requires_grad=True).send(clinic) for _ in range(2))
    (one.view(2) + two.view(2)).sum().backward()
    early = one.grad
    (two * clinic.table("ages")[0:1]).sum().backward()
    with pytest.raises(Refused, match="remote-private"):
        early.get()


def test_where_a_gradient_lay_that_is_gone_others_lie_and_come_back(clinic: Worker) -> None:
    """Whatever lay where a gradient had once been was taken for one, and kept."""
    for _ in range(20):
        mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
        (mine * 2).sum().backward()
        assert mine.grad.get().tolist() == [[2.0, 2.0], [2.0, 2.0]]
        mine.grad = None
    ages = clinic.table("ages")
    sent = [tensor([[float(n), 1.0], [1.0, 1.0]]).send(clinic) for n in range(40)]
    mine = tensor([[1.0, 1.0], [1.0, 1.0]], requires_grad=True).send(clinic)
    (mine * ages).sum().backward()
    assert [float(one.get()[0, 0]) for one in sent] == [*map(float, range(40))]


@pytest.mark.parametrize(
    ("name", "args"),
    [("nll_loss", ([[1.0, 2.0]], [[1, 1]])), ("group_norm", ([[1.0, 2.0]], 0))],
    ids=["a target of two sides", "no group"],
)
def test_whatever_pytorch_says_no_with_is_a_refusal(
    clinic: Worker, name: str, args: tuple[Any, Any]
) -> None:
    """A failed assertion, or a division by zero, ended the process at a site, and all it held."""
    kept = tensor([1.0]).send(clinic)
    sent = [tensor(one).send(clinic) if isinstance(one, list) else one for one in args]
    with pytest.raises(Refused, match="remote-refused"):
        getattr(torch.nn.functional, name)(*sent)
    assert kept.get().tolist() == [1.0]


SIZED: dict[str, Callable[[Any, Any], Any]] = {
    "expanded": lambda x, n: x.expand(n, 2, 3, 4),
    "expanded by a tuple": lambda x, n: x.expand((n, 2, 3, 4)),
    "viewed": lambda x, n: x.view(n, -1),
    "reshaped": lambda x, n: x.reshape((n, -1)),
    "flattened": lambda x, n: x.flatten(n),
    "squeezed": lambda x, n: x.squeeze(n),
    "a side more": lambda x, n: x.unsqueeze(n),
    "summed along": lambda x, n: x.sum(n),
    "mean along": lambda x, n: x.mean(dim=n),
    "turned": lambda x, n: x.transpose(n, 0),
    "largest along": lambda x, n: x.amax(n),
    "norm along": lambda x, n: x.norm(2, n),
    "pooled": lambda x, n: torch.nn.functional.avg_pool2d(x, n),
    "places and their values": lambda x, n: torch.nn.functional.max_pool2d(x, n),
    "widened": lambda x, n: torch.nn.functional.conv2d(x, x, None, 1, n),
}


@pytest.mark.parametrize("way", SIZED)
def test_no_number_of_a_sites_table_becomes_a_size(clinic: Worker, way: str) -> None:
    """Sizes are told to whoever asks, and PyTorch takes a tensor of one number for one."""
    number = clinic.table("ages")[0, 0].sign().long()
    mine = tensor([[[[1.0] * 4] * 3] * 2]).send(clinic)
    with pytest.raises(Refused, match=r"remote-refused.*cannot be carried out\."):
        SIZED[way](mine, number)


@pytest.mark.parametrize("named", ["retain_graph", "create_graph"])
def test_no_number_of_a_sites_table_decides_what_is_kept(clinic: Worker, named: str) -> None:
    mine = tensor([[1.0]], requires_grad=True).send(clinic)
    said = {named: clinic.table("ages")[0, 0]._ref.word()}
    with pytest.raises(Refused, match="only decide about gradients"):
        clinic.ask(do="backward", key=mine.sum()._ref.key, args=(), named=said)
