"""Lessons whose rounds are of secret samples: drawn at each site, anew, once, and told nobody."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sfumato import Refused
from sfumato.dp.learning.poisson_sampling import PoissonSample, most_below
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.federated.training.trained_model import TrainedModel
from sfumato.features.federated.training.training_rounds import Step
from sfumato.release.guarantees import secure_aggregation
from sfumato.system.randomness import BulkRandomSource
from sfumato.vault.training_port import LearnOrder
from support.federated_sites import NAMES, Between, Sites, pooled, several

LESSON: dict[str, Any] = {
    "features": ["age", "salary"], "target": "ill", "epsilon": 20, "delta": 1e-6, "rounds": 3,
    "people": 480, "hidden": [4], "activation": "tanh", "clip": 1, "rate": 2.0, "sample": 0.5,
}  # fmt: skip
PUBLIC = [{"age": age, "salary": pay, "ill": ill == "true"} for _, age, _, pay, ill in pooled()]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with several(tmp_path_factory.mktemp("samples")) as made:
        yield made


def train(sites: Sites, ways: Any = None, **changed: Any) -> tuple[TrainedModel, list[Step]]:
    steps: list[Step] = []
    model = sites.together(ways).train("patients", heard=steps.append, **{**LESSON, **changed})
    return model, steps


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[LearnOrder]:
    """What engines are asked to learn, as it comes."""
    seen: list[LearnOrder] = []
    learn = DuckDBEngine.learn

    def noted(engine: DuckDBEngine, order: LearnOrder) -> Any:
        seen.append(order)
        return learn(engine, order)

    monkeypatch.setattr(DuckDBEngine, "learn", noted)
    return seen


def coins_of(orders: list[LearnOrder]) -> list[PoissonSample]:
    found = [order.coins for order in orders if order.coins is not None]
    assert len(found) == len(orders)
    return found


def test_four_sites_learn_from_samples_and_say_so(sites: Sites) -> None:
    before = sites.spent()
    model, steps = train(sites, rounds=16, epsilon=60, hidden=[])
    most = max(sum(r["ill"] for r in PUBLIC), sum(not r["ill"] for r in PUBLIC)) / len(PUBLIC)
    assert model.accuracy(PUBLIC) > most + 0.1
    assert [step.sites for step in steps] == [NAMES] * 16
    assert model.card["lesson"]["sample"] == 0.5
    drawn = "one step along the rows of a sample a round; everybody is in it with chance 0.5"
    assert drawn in model.card["says"]
    told: Any = sites.vaults["west"].call("lessons", {"data_set": "patients"})
    assert drawn in told["lessons"][0]["says"]
    assert sites.spent() == {name: spent + 60 for name, spent in before.items()}
    assert all(vault.call("verify-ledger", {})["ok"] for vault in sites.vaults.values())


def test_a_lesson_of_everybody_is_asked_and_said_as_before(
    sites: Sites, orders: list[LearnOrder]
) -> None:
    way = Between(sites.vaults["west"])
    model, _ = train(sites, {"west": way}, sample=Decimal("1.0"), rounds=1)
    assert all("sample" not in body["lesson"] for body, _ in way.of("price-sum"))
    assert "one step along all rows a round), added" in model.card["says"]
    assert "sample" not in model.card["lesson"]
    assert [order.coins for order in orders] == [None] * 4


def test_every_site_draws_its_own_coins_for_every_round(
    sites: Sites, orders: list[LearnOrder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From real dice: a key that came twice would be one sample in two rounds."""
    dice: list[object] = []
    fresh = PoissonSample.fresh.__func__

    def noted(kind: type[PoissonSample], chance: Fraction, drawn_from: Any) -> PoissonSample:
        dice.append(drawn_from)
        return fresh(kind, chance, drawn_from)

    monkeypatch.setattr(PoissonSample, "fresh", classmethod(noted))
    train(sites)
    train(sites)
    keys = {coins.key for coins in coins_of(orders)}
    assert len(keys) == len(orders) == 2 * 3 * 4
    assert {coins.below for coins in coins_of(orders)} == {most_below(Fraction(1, 2))}
    assert len(dice) == len(orders)
    assert all(isinstance(one, BulkRandomSource) for one in dice)


def test_coins_are_in_no_file_no_reply_and_no_ledger(
    sites: Sites, orders: list[LearnOrder]
) -> None:
    ways = {name: Between(vault) for name, vault in sites.vaults.items()}
    model, _ = train(sites, ways)
    said = json.dumps([model.card, *([way.sent for way in ways.values()])], default=str).encode()
    ledgers = [
        json.dumps(vault.call("lessons", {"data_set": "patients"})).encode()
        for vault in sites.vaults.values()
    ]
    files = [path.read_bytes() for path in sites.folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    for coins in coins_of(orders):
        for spelled in (coins.key, coins.key.hex().encode(), base64.b64encode(coins.key)):
            assert not any(spelled in found for found in (said, *ledgers, *files))


def test_a_reply_that_was_lost_is_given_again_and_nobody_is_drawn_anew(
    sites: Sites, orders: list[LearnOrder]
) -> None:
    said: list[tuple[object, object]] = []

    class Twice:
        """The line to west is cut each time that it has said its numbers."""

        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            first = dict(sites.vaults["west"].call(verb, body))
            if body.get("stage") == "mask":
                again = dict(sites.vaults["west"].call(verb, body))
                said.append((first["message"], again["message"]))
            return first

    _, steps = train(sites, {"west": Twice()})
    assert [step.sites for step in steps] == [NAMES] * 3
    assert len(said) == 3
    assert all(first == again for first, again in said)
    assert len(orders) == 3 * 4


def test_a_round_that_was_drawn_for_is_not_drawn_for_again(
    sites: Sites, orders: list[LearnOrder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convener who names two lessons alike, to have two samples of one round: none is read."""
    together = sites.together()
    draw, names = together.convener.dice.draw, [bytes(32), bytes(32)]

    class Same:
        def draw(self, count: int) -> bytes:
            return names.pop() if drawn.pop() else draw(count)

    drawn = [False] * 10_000
    monkeypatch.setitem(together.convener.__dict__, "dice", Same())
    drawn.append(True)
    together.train("patients", **LESSON)
    assert len(orders) == 3 * 4
    drawn.append(True)
    with pytest.raises(Refused, match="sum-message-refused: 0 sites are left"):
        together.train("patients", **LESSON)
    assert len(orders) == 3 * 4


def test_where_nobody_is_drawn_noise_is_sent_all_the_same(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = DuckDBEngine.learn
    nobody = PoissonSample(bytes(32), 1)

    def empty(engine: DuckDBEngine, order: LearnOrder) -> Any:
        return learn(engine, replace(order, coins=nobody))

    monkeypatch.setattr(DuckDBEngine, "learn", empty)
    ways = {name: Between(vault) for name, vault in sites.vaults.items()}
    _, steps = train(sites, ways, hidden=[60, 60], epsilon=2, rounds=2, momentum=0, rate=1)
    assert [step.sites for step in steps] == [NAMES] * 2
    first, second = (
        np.frombuffer(base64.b64decode(body["weights"]), dtype="<f4").astype(np.float64)
        for body, _ in ways["west"].of("join-sum")
    )
    ((_, priced),) = ways["west"].of("price-sum")
    (noise,) = priced["noise"]
    # the divisor is public: people times the chance, whoever was drawn
    moved = (second - first) * LESSON["people"] * 0.5
    expected = len(NAMES) * float(Fraction(noise["share"])) * noise["unit"] ** 2
    assert moved.size > 3_000
    assert 0.85 < moved.var() / expected < 1.15  # six of its own deviations


def test_what_is_divided_by_is_how_many_are_drawn_on_average(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, and with everybody drawn: a lesson's first round goes 1 / sample as far."""
    monkeypatch.setattr(
        secure_aggregation.skellam, "sample", lambda _v, count, _d: np.zeros(count, dtype=np.int64)
    )
    learn = DuckDBEngine.learn

    def everybody(engine: DuckDBEngine, order: LearnOrder) -> Any:
        coins = None if order.coins is None else PoissonSample(bytes(32), (1 << 64) - 1)
        return learn(engine, replace(order, coins=coins))

    monkeypatch.setattr(DuckDBEngine, "learn", everybody)
    begin = np.array([1, -1, -1, 1, 0.5, -0.5])
    monkeypatch.setattr(
        "sfumato.features.federated.training.training_rounds.first_weights", lambda *_: begin
    )
    one: dict[str, Any] = {"rounds": 1, "hidden": [], "momentum": 0, "rate": 1}
    whole, quarter = (train(sites, sample=part, **one)[0].flat - begin for part in (1, 0.25))
    assert np.abs(whole).max() > 0.01
    assert quarter == pytest.approx(4 * whole, rel=1e-2, abs=1e-2)


def test_peoples_own_steps_are_drawn_for_too(sites: Sites, orders: list[LearnOrder]) -> None:
    own: dict[str, Any] = {"local": 2, "local_rate": 2, "each": "person"}
    model, _ = train(sites, rounds=2, **own)
    assert "2 steps of each person's own a round; everybody is in it" in model.card["says"]
    assert len({coins.key for coins in coins_of(orders)}) == 2 * 4


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"sample": 0}, "bad-federation"), ({"sample": 2}, "bad-federation"),
        ({"sample": "much"}, "bad-federation"), ({"sample": float("nan")}, "bad-federation"),
        ({"sample": True}, "bad-federation"), ({"sample": 1e-9}, "bad-federation"),
        ({"local": 2, "local_rate": 1}, "bad-request"),
    ],
    ids=["none", "more", "word", "nan", "yes", "too few", "of a whole site"],
)  # fmt: skip
def test_samples_that_are_none_are_refused_before_anybody_pays(
    sites: Sites, change: dict[str, Any], code: str
) -> None:
    before = sites.spent()
    with pytest.raises(Refused, match=f"^{code}:"):
        train(sites, **change)
    assert sites.spent() == before
