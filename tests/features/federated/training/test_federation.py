"""Sites that train together: the model learns, each site is charged, nothing else comes out."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import federate, nn  # noqa: E402
from sfumato.features.federated.training.federation import Federation, Round  # noqa: E402
from sfumato.features.federated.training.layers import words_of  # noqa: E402
from sfumato.features.federated.training.training_site import sum_words  # noqa: E402

WEIGHTS = torch.tensor([[1.0], [-2.0], [0.5]])


def sites(count: int = 5, rows: int = 400, epsilon: float = 8, **terms: Any) -> Federation:
    torch.manual_seed(1)
    tables = {}
    for i in range(count):
        x = torch.rand(rows, 3)
        tables[f"site{i}"] = {"x": x, "y": x @ WEIGHTS}
    return federate(tables, epsilon=epsilon, delta=1e-5, people=rows, **terms)


def error_of(model: Any) -> float:
    torch.manual_seed(2)
    x = torch.rand(500, 3)
    return float(((model(x) - x @ WEIGHTS) ** 2).mean().detach())


def model_of(*sizes: int) -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(*sizes))


def test_the_average_of_many_learns_what_no_site_shows() -> None:
    federation, model, heard = sites(), model_of(3, 1), list[Round]()
    before = error_of(model)
    federation.train(model, data="x", target="y", rounds=10, rate=0.5, clip=2.0, heard=heard.append)
    assert error_of(model) < before / 4
    assert [round_.number for round_ in heard] == list(range(1, 11))
    assert heard[0].sites == tuple(sorted(federation.workers))


def test_every_site_is_charged_close_to_what_its_owner_allows_and_then_refuses() -> None:
    federation, model = sites(), model_of(3, 1)
    federation.train(model, data="x", target="y", rounds=2)
    assert all(7.9 < spent <= 8 for spent in federation.spent().values())
    before = model[0].weight.detach().clone()
    with pytest.raises(Refused, match="budget-exceeded"):
        federation.train(model, data="x", target="y")
    assert (model[0].weight == before).all()
    assert all(spent <= 8 for spent in federation.spent().values())


def test_less_epsilon_is_more_noise() -> None:
    little, much = (sites(epsilon=epsilon).plan(4, 1, 1.0) for epsilon in (1, 8))
    assert little.variance > 20 * much.variance


def test_a_site_that_falls_silent_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    federation, model, heard = sites(floor=4), model_of(3, 1), list[Round]()
    lost = federation.workers["site2"]._store._trainee
    monkeypatch.setattr(lost, "_tables", {})  # it refuses at the stage of masks
    federation.train(model, data="x", target="y", heard=heard.append)
    assert heard[0].sites == ("site0", "site1", "site3", "site4")
    assert federation.spent()["site2"] == 0


def test_a_ring_of_workers_learns_and_bears_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    ring, model, heard = sites(6, floor=5, colluders=1, neighbours=4), model_of(3, 1), list[Round]()
    before = error_of(model)
    lost = ring.workers["site2"]._store._trainee
    monkeypatch.setattr(lost, "_tables", {})  # it refuses at the stage of masks
    ring.train(model, data="x", target="y", rounds=20, rate=1.0, heard=heard.append)
    assert heard[-1].sites == ("site0", "site1", "site3", "site4", "site5")
    assert error_of(model) < before / 2


def test_workers_join_no_ring_of_fewer_neighbours_than_they_know_of() -> None:
    ring = dataclasses.replace(sites(6, colluders=1), neighbours=4)
    with pytest.raises(Refused, match=r"^sum-not-trusted:"):
        ring.train(model_of(3, 1), data="x", target="y")
    assert set(ring.spent().values()) == {0}


@pytest.mark.parametrize("neighbours", [1, 6, "4", True])
def test_neighbours_of_workers_are_a_number_of_others(neighbours: Any) -> None:
    with pytest.raises(Refused, match=r"^bad-federation:"):
        sites(6, neighbours=neighbours)


def said_by(federation: Federation, **change: Any) -> dict[str, Any]:
    """What a convener says at the stage of masks, with some of the noise's terms changed."""
    plan = federation.plan(4, 1, 1.0)
    return {**sum_words(plan), **change}


@pytest.mark.parametrize(
    "change",
    [
        {"colluders": 1},
        {"floor": 5},
        {"sites": 6},
        {"people": 399},
        {"size": 5},
        {"moves": 2},
        {"variance": "1e9999999"},
        {"variance": "nothing"},
        {"clip": "1/0"},
        {"steps": 0},
    ],
    ids=str,
)
def test_a_site_masks_nothing_on_other_terms_than_it_joined(change: dict[str, Any]) -> None:
    federation = sites(count=4)
    refusals = []
    words = said_by(federation, **change)
    lesson = {"layers": (("linear", 3, 1),), "data": "x", "target": "y", "loss": "mse"}
    task = {"sum": words, "lesson": lesson, "weights": [torch.zeros(1, 3), torch.zeros(1)]}
    collector = federation._collector(federation.plan(4, 1, 1.0), 1)
    box = dict.fromkeys(federation.workers, collector.invitation())
    for stage in ("join", "share", "mask"):
        refusals = federation._stage(collector, stage, box, task if stage == "mask" else {})
        box = dict(collector.close()) if stage != "mask" else {}
    assert len(refusals) == 4
    assert set(federation.spent().values()) == {0}


def test_noise_too_small_for_the_cap_is_not_drawn() -> None:
    federation = sites(count=4)
    words = said_by(federation, variance=str(Fraction(1, 10)))
    task = {
        "sum": words,
        "lesson": {"layers": (("linear", 3, 1),), "data": "x", "target": "y", "loss": "mse"},
        "weights": [torch.zeros(1, 3), torch.zeros(1)],
    }
    collector = federation._collector(federation.plan(4, 1, 1.0), 1)
    box = dict.fromkeys(federation.workers, collector.invitation())
    for stage in ("join", "share"):
        federation._stage(collector, stage, box, {})
        box = dict(collector.close())
    refusals = federation._stage(collector, "mask", box, task)
    assert {refusal.code for refusal in refusals} == {"budget-exceeded"}


@pytest.mark.parametrize(
    "model",
    [
        lambda: torch.nn.Linear(3, 1),
        lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Dropout()),
        lambda: nn.Sequential(nn.Linear(3, 2, bias=False)),
        lambda: nn.Sequential(nn.Linear(4, 1)),
    ],
    ids=["no sequence", "batch norm", "dropout", "no bias", "another width"],
)
def test_a_model_that_sites_do_not_train_is_refused(model: Any) -> None:
    federation = sites(count=3)
    with pytest.raises(Refused, match="remote-refused"):
        federation.train(model(), data="x", target="y")


def test_an_owner_says_how_many_rows_there_may_be() -> None:
    with pytest.raises(Refused, match="more rows"):
        federate({n: {"x": torch.zeros(5, 1)} for n in "abc"}, epsilon=1, delta=1e-5, people=4)


def test_nothing_else_of_the_sites_comes_back() -> None:
    federation = sites(count=3)
    for worker in federation.workers.values():
        with pytest.raises(Refused, match="remote-private"):
            (worker.table("x").T @ worker.table("y")).get()


def test_sites_learn_from_pictures_by_convolutions() -> None:
    torch.manual_seed(1)
    tables = {}
    for i in range(4):
        x, y = torch.rand(300, 1, 4, 4) / 4, torch.arange(300) % 2
        x[y == 1, :, :, 1] += 0.75  # a line down, or none
        tables[f"site{i}"] = {"x": x, "y": y}
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8, 2),
    )  # fmt: skip
    federation = federate(tables, epsilon=20, delta=1e-5, people=300)
    federation.train(model, data="x", target="y", rounds=12, rate=1.5, loss="cross_entropy")
    right = (model(tables["site0"]["x"]).argmax(1) == tables["site0"]["y"]).double().mean()
    assert float(right) > 0.9


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Conv2d(1, 1, (2, 3)),
        lambda: nn.Conv2d(1, 1, 3, dilation=2),
        lambda: nn.Conv2d(1, 1, 3, padding="same"),
        lambda: nn.Conv2d(1, 1, 3, padding_mode="circular"),
        lambda: nn.Embedding(3, 2, padding_idx=1),
        lambda: nn.MaxPool2d(2, stride=1),
        lambda: nn.Flatten(0),
    ],
    ids=["oblong", "dilation", "same", "round", "padding", "stride", "from rows"],
)
def test_a_layer_that_words_would_not_say_is_refused(layer: Any) -> None:
    with pytest.raises(Refused, match="Sites cannot train a layer"):
        words_of(nn.Sequential(layer()))


def test_a_site_without_rows_takes_part_as_all_others() -> None:
    """To drop out would tell everyone that it has none."""
    torch.manual_seed(4)
    counts = {"east": 30, "north": 0, "south": 30, "west": 30}
    tables = {
        name: {"x": torch.rand(count, 4, 3), "y": torch.zeros(count)}
        for name, count in counts.items()
    }
    layer, heard = nn.Linear(3, 3), list[Round]()
    model = nn.Sequential(
        layer, nn.GELU(), layer, nn.LayerNorm(3), nn.Conv1d(4, 2, 2), nn.Flatten(), nn.Linear(4, 2)
    )
    before = [parameter.detach().clone() for parameter in model.parameters()]
    federation = federate(tables, epsilon=20, delta=1e-5, people=30, floor=4)
    federation.train(
        model, data="x", target="y", rate=0.5, loss="cross_entropy", heard=heard.append
    )
    assert heard[0].sites == tuple(counts)
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.isfinite(new).all()
        assert not torch.equal(old, new)


@pytest.mark.parametrize(
    "said",
    [
        {"clip": 1e-40}, {"clip": 1e40}, {"clip": 0}, {"clip": float("nan")}, {"clip": None},
        {"clip": True}, {"rounds": 0}, {"rounds": -1}, {"rounds": 1.5}, {"rounds": None},
        {"rounds": 10**9}, {"rate": float("nan")}, {"rate": float("inf")}, {"rate": -1},
        {"rate": "much"},
    ],
)  # fmt: skip
def test_a_lesson_by_numbers_that_are_none_is_refused_and_costs_nothing(
    said: dict[str, Any],
) -> None:
    federation = sites()
    with pytest.raises(Refused) as refused:
        federation.train(model_of(3, 1), data="x", target="y", **said)
    assert refused.value.code == "bad-federation"
    assert next(iter(said)) in refused.value.cause
    assert set(federation.spent().values()) == {0.0}


def test_a_model_without_weights_has_nothing_to_learn() -> None:
    with pytest.raises(Refused, match="no parameters to train"):
        sites().train(nn.Sequential(nn.ReLU()), data="x", target="y")


@pytest.mark.parametrize(
    "said",
    [
        {"epsilon": 0}, {"epsilon": float("nan")}, {"epsilon": 1e9}, {"epsilon": "much"},
        {"delta": 0}, {"delta": 1}, {"delta": -1}, {"people": 0}, {"people": 1.5},
        {"people": 10**30}, {"people": None}, {"floor": 0}, {"floor": 1}, {"floor": 4},
        {"colluders": -1}, {"colluders": 2},
    ],
)  # fmt: skip
def test_a_federation_of_numbers_that_are_none_is_not_made(said: dict[str, Any]) -> None:
    rows = {"x": torch.zeros(5, 1)}
    terms = {"epsilon": 1, "delta": 1e-5, "people": 5, **said}
    with pytest.raises(Refused) as refused:
        federate(dict.fromkeys("abc", rows), **terms)
    assert refused.value.code == "bad-federation"
    assert next(iter(said)) in refused.value.cause


def test_one_site_is_no_federation() -> None:
    with pytest.raises(Refused, match="number of sites"):
        federate({"a": {"x": torch.zeros(5, 1)}}, epsilon=1, delta=1e-5, people=5)
