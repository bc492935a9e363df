"""Training at sites: charged once by each site's own door, answered once a round, never alone."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato
from sfumato import Refused
from sfumato.dp.secure_aggregation import stochastic_rounding
from sfumato.dp.secure_aggregation.message_encoding import decode_fields
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.federated.training import training_rounds
from sfumato.features.federated.training.trained_model import TrainedModel
from sfumato.features.federated.training.training_rounds import Step
from sfumato.release.guarantees import secure_aggregation
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.training_port import LearnOrder
from support.federated_sites import NAMES, Between, Rows, Sites, pooled, rows_of, several, site_card

LESSON: dict[str, Any] = {
    "features": ["age", "salary"], "target": "ill", "epsilon": 20, "delta": 1e-6, "rounds": 2,
    "people": 480, "hidden": [4], "activation": "tanh", "clip": 1, "rate": 2.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Return four sites of few columns, for all tests of this module."""
    with several(tmp_path_factory.mktemp("training")) as made:
        yield made


def lesson(**changed: Any) -> dict[str, Any]:
    return {**LESSON, **changed}


def public_rows() -> list[dict[str, Any]]:
    """Rows that everybody may know, to look at a model with."""
    return [{"age": age, "salary": pay, "ill": ill == "true"} for _, age, _, pay, ill in pooled()]


def train(sites: Sites, ways: Any = None, **changed: Any) -> tuple[TrainedModel, list[Step]]:
    steps: list[Step] = []
    model = sites.together(ways).train("patients", heard=steps.append, **lesson(**changed))
    return model, steps


def listening(sites: Sites) -> dict[str, Between]:
    return {name: Between(vault) for name, vault in sites.vaults.items()}


def test_four_sites_learn_what_ages_foretell(sites: Sites) -> None:
    model, steps = train(sites, rounds=12, epsilon=60, hidden=[])
    rows = public_rows()
    most = max(sum(row["ill"] for row in rows), sum(not row["ill"] for row in rows)) / len(rows)
    assert model.accuracy(rows) > most + 0.1
    assert model.loss(rows) < steps[0].model.loss(rows)
    assert [step.sites for step in steps] == [NAMES] * 12


def test_a_lesson_is_paid_once_at_each_site_whatever_its_rounds(sites: Sites) -> None:
    before = sites.spent()
    model, _ = train(sites, rounds=3)
    assert sites.spent() == {name: spent + 20 for name, spent in before.items()}
    assert model.card["paid"] == dict.fromkeys(NAMES, 20.0)
    assert all(vault.call("verify-ledger", {})["ok"] for vault in sites.vaults.values())


def test_the_model_file_is_safetensors_and_names_its_guarantee(
    sites: Sites, tmp_path: Path
) -> None:
    model, _ = train(sites)
    path = tmp_path / "model.safetensors"
    model.save(path)
    found = path.read_bytes()
    header = json.loads(found[8 : 8 + int.from_bytes(found[:8], "little")])
    assert header["0.weight"] == {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}
    card = json.loads(header["__metadata__"]["card"])
    assert (card["guarantee"], card["epsilon"]) == ("central-dp", 20.0)
    assert card["against"].endswith("somebody at several of the sites pays at each of them")
    assert header["__metadata__"]["guarantee"] == "central-dp"
    again = TrainedModel.load(path)
    assert again.predict(public_rows()[:50]) == model.predict(public_rows()[:50])


@pytest.mark.parametrize("place", [0, 9, 200, -1])
def test_a_model_file_with_one_byte_less_or_changed_is_refused(
    sites: Sites, tmp_path: Path, place: int
) -> None:
    path = tmp_path / "model.safetensors"
    train(sites, rounds=1)[0].save(path)
    found = bytearray(path.read_bytes())
    del found[place]
    path.write_bytes(bytes(found))
    with pytest.raises(Refused, match="bad-request"):
        TrainedModel.load(path)


def test_averages_of_sites_own_steps_are_federated_too(sites: Sites) -> None:
    """FedProx with a public weight: the whole update is clipped, so its norm is known."""
    weights = {"east": 0.5}
    more: dict[str, Any] = {"local": 3, "local_rate": 0.5, "proximal": 0.1, "weights": weights}
    model, steps = train(sites, epsilon=40, **more)
    assert len(steps) == 2
    assert "whole update" in model.card["bounding"]


def walked(begin: np.ndarray, rows: Rows, *, steps: int, rate: float, drawn: float) -> np.ndarray:
    """How far FedProx goes on one site's rows, in plain floats: two classes from two columns."""
    inputs = np.array([[age / 110, pay / 200_000, 1] for _, age, _, pay, _ in rows])
    wanted = np.array([[ill != "true", ill == "true"] for *_, ill in rows])
    now = begin.copy()
    for _ in range(steps):
        matrix = np.column_stack([now[:4].reshape(2, 2), now[4:]])
        grown = np.exp(inputs @ matrix.T)
        off = grown / grown.sum(axis=1, keepdims=True) - wanted
        slope = off.T @ inputs / len(rows)
        flat = np.concatenate([slope[:, :2].ravel(), slope[:, 2]])
        now = now - rate * (flat + drawn * (now - begin))
    return np.asarray(now - begin)


def test_without_noise_a_round_is_the_weighted_average_of_what_sites_walked(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedAvg, FedProx and public weights, held against the same in floats on rows by site."""
    monkeypatch.setattr(
        secure_aggregation.skellam, "sample", lambda _v, count, _d: np.zeros(count, dtype=np.int64)
    )
    monkeypatch.setattr(
        stochastic_rounding, "_at_random", lambda found, _d: np.rint(found).astype(np.int64)
    )
    begin = np.array([1, -1, -1, 1, 0.5, -0.5])  # far enough off that there is a way to go
    monkeypatch.setattr(training_rounds, "first_weights", lambda *_: begin)
    some: dict[str, float] = {"east": 0.25, "west": 0.5}
    cases: tuple[tuple[float, dict[str, float]], ...] = ((0, {}), (1.5, {}), (0, some))
    for drawn, weights in cases:
        ways = listening(sites)
        model, _ = train(
            sites, ways, rounds=1, hidden=[], clip=1, momentum=0, epsilon=10,
            local=3, local_rate=0.5, proximal=drawn, weights=weights,
        )  # fmt: skip
        ((_, priced),) = ways["west"].of("price-sum")
        parts = [float(weights.get(name, 1)) for name in NAMES]
        moves = [walked(begin, rows_of(n), steps=3, rate=0.5, drawn=drawn) for n in range(4)]
        wanted = sum(part * move for part, move in zip(parts, moves, strict=True)) / sum(parts)
        near = 2 * float(priced["noise"][0]["unit"]) / sum(parts) + 1e-3  # half a step at each
        assert max(np.linalg.norm(move) for move in moves) < 1  # nothing is clipped
        assert np.abs(wanted).max() > 3 * near
        assert model.flat - begin == pytest.approx(wanted, abs=near)


@pytest.mark.parametrize("more", [{}, {"local": 1, "local_rate": 0.01}], ids=["sums", "updates"])
def test_the_noise_of_a_round_is_what_all_sites_shares_make(
    sites: Sites, more: dict[str, Any]
) -> None:
    """Of thousands of numbers and little epsilon: what a round moves them by is noise, nearly."""
    ways = listening(sites)
    wide: dict[str, Any] = {"hidden": [60, 60], "epsilon": 2, "momentum": 0, "rate": 1, **more}
    train(sites, ways, **wide)
    first, second = (
        np.frombuffer(base64.b64decode(body["weights"]), dtype="<f4").astype(np.float64)
        for body, _ in ways["west"].of("join-sum")
    )
    ((_, priced),) = ways["west"].of("price-sum")
    (noise,) = priced["noise"]
    moved = (second - first) * (len(NAMES) if more else LESSON["people"])
    share = Fraction(noise["share"])
    assert Fraction(noise["variance"]) == 2 * share  # of a floor of three, one may tell
    expected = len(NAMES) * float(share) * noise["unit"] ** 2
    assert moved.size > 3_000
    assert np.abs(second).max() < 32  # nothing was cut off
    assert 0.85 < moved.var() / expected < 1.15  # six of its own deviations, and the gradient


def test_sums_of_peoples_own_steps_are_federated_too(sites: Sites) -> None:
    """DP-FedAvg: with the noise that a person needs, and not that which a site does."""
    more: dict[str, Any] = {"local": 2, "local_rate": 2, "each": "person", "rounds": 12}
    model, steps = train(sites, epsilon=60, hidden=[], **more)
    rows = public_rows()
    most = max(sum(row["ill"] for row in rows), sum(not row["ill"] for row in rows)) / len(rows)
    assert model.accuracy(rows) > most + 0.1
    assert model.loss(rows) < steps[0].model.loss(rows)
    assert model.card["bounding"] == (
        "at most 1 rows a person, whose whole update has a norm of at most 1 in every round"
    )
    assert model.card["lesson"]["each"] == "person"


def a_round(sites: Sites) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the site west was asked in the first round: to join, and for its numbers."""
    ways = listening(sites)
    train(sites, ways, rounds=1)
    ((joined, _),) = ways["west"].of("join-sum")
    ((masked, _),) = ways["west"].of("go-on-with-sum", "mask")
    return joined, masked


def test_a_round_is_not_answered_twice_not_even_after_a_restart(sites: Sites) -> None:
    joined, masked = a_round(sites)
    west, spent = sites.again("west"), sites.spent()
    with pytest.raises(Refused, match="sum-not-trusted"):
        west.call("join-sum", joined)
    with pytest.raises(Refused, match="sum-message-refused"):
        west.call("go-on-with-sum", masked)
    assert sites.spent() == spent


def test_the_same_round_of_a_lesson_in_another_sum_is_refused(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convener who names two lessons alike, to have two noises on one sum."""
    together = sites.together()
    drawn = [bytes(32)]
    convener = together.convener
    draw = convener.dice.draw

    class Same:
        def draw(self, count: int) -> bytes:
            return drawn.pop() if drawn else draw(count)

    for attempt in range(2):
        drawn[:] = [bytes(32)]
        monkeypatch.setitem(convener.__dict__, "dice", Same())
        if attempt == 0:
            together.train("patients", **lesson())
            spent = sites.spent()
        else:
            with pytest.raises(Refused, match="sum-message-refused: 0 sites are left"):
                together.train("patients", **lesson())
    assert sites.spent() == spent


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"number": 3}, "bad-request"),
        ({"number": 0}, "bad-request"),
        ({"weights": base64.b64encode(bytes(4)).decode()}, "update-refused"),
        ({"weights": base64.b64encode(b"\x00\x00\xc0\x7f" * 22).decode()}, "update-refused"),
        ({"weights": base64.b64encode(b"\x80\x04K*." + bytes(83)).decode()}, "sum-not-trusted"),
        ({"weights": "?"}, "bad-request"),
        ({"epsilon": 19}, "sum-not-trusted"),
        ({"lesson": {"rounds": 2}}, "bad-request"),
        ({"lesson": None}, "bad-request"),
    ],
    ids=["late", "none", "short", "nan", "pickled", "no-base64", "price", "no-lesson", "nothing"],
)
def test_what_is_no_round_of_the_lesson_is_refused_and_costs_nothing(
    sites: Sites, change: dict[str, Any], code: str
) -> None:
    ways, spent = listening(sites), sites.spent()
    asked: dict[str, Any] = {}

    class West:
        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            if verb == "join-sum":
                asked["code"] = None
                try:
                    sites.vaults["west"].call(verb, {**body, **change})
                except Refused as refused:
                    asked["code"] = refused.code
                    raise
            return sites.vaults["west"].call(verb, body)

    _, steps = train(sites, {**ways, "west": West()}, rounds=1 if "number" not in change else 2)
    assert asked["code"] == code
    assert steps[0].sites == NAMES[:3]
    assert sites.spent()["west"] == spent["west"]


def test_below_the_floor_there_is_no_model_and_no_charge(sites: Sites) -> None:
    class Gone:
        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            raise Refused("service-down", "It is off.", "Wait.")

    spent = sites.spent()
    with pytest.raises(Refused, match="service-down: 2 sites are left"):
        train(sites, {"south": Gone(), "west": Gone()})
    assert sites.spent() == spent


def test_a_site_that_is_lost_half_way_is_left_out_and_comes_back(sites: Sites) -> None:
    class Tired:
        rounds = 0

        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            self.rounds += verb == "join-sum"
            if self.rounds == 2:
                raise Refused("service-down", "It is off.", "Wait.")
            return sites.vaults["west"].call(verb, body)

    model, steps = train(sites, {"west": Tired()}, rounds=3)
    assert [step.sites for step in steps] == [NAMES, NAMES[:3], NAMES]
    assert model.card["rounds"] == 3


def test_all_rounds_are_paid_and_this_one_is_put_down_before_a_row_is_read(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moment of reading; a lesson whose first reading fails is paid, and over there."""
    before, learn = sites.spent(), DuckDBEngine.learn
    seen: dict[str, list[tuple[float, int]]] = {name: [] for name in NAMES}

    def looking(engine: DuckDBEngine, order: LearnOrder) -> Any:
        (name,) = (n for n, v in sites.vaults.items() if v.house.engine is engine)
        vault = sites.vaults[name]
        spent: Any = vault.call("budget", {"data_set": "patients"})["spent"]
        newest: Any = vault.call("lessons", {"data_set": "patients"})["lessons"]
        seen[name].append((spent["epsilon"] - before[name], newest[0]["used"]))
        if name == "west" and len(seen[name]) == 1:
            raise RuntimeError("a cell of the rows")
        return learn(engine, order)

    monkeypatch.setattr(DuckDBEngine, "learn", looking)
    train(sites, hidden=[5])  # of a shape of its own
    both = [(20, 1), (20, 2)]
    found = {name: [(round(paid, 6), used) for paid, used in seen[name]] for name in NAMES}
    assert found == {**dict.fromkeys(NAMES[:3], both), "west": both[:1]}
    assert sites.spent() == {name: pytest.approx(paid + 20) for name, paid in before.items()}


def test_a_lesson_that_was_stopped_in_one_round_reads_no_row_in_the_next(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop is a bit of the rows (soundness rule 13): one a lesson, not one a round."""
    learn, read = DuckDBEngine.learn, []

    def stopping(engine: DuckDBEngine, order: LearnOrder) -> Any:
        if "west" in Path(order.table).parts:
            read.append(order)
            if len(read) > 1:
                raise EngineStopped
        return learn(engine, order)

    monkeypatch.setattr(DuckDBEngine, "learn", stopping)
    _, steps = train(sites, rounds=4, rate=3.0, hidden=[3])  # of a shape of its own
    assert [step.sites for step in steps] == [NAMES, *[NAMES[:3]] * 3]
    assert [step.left_out.get("west") for step in steps[1:]] == [
        "question-failed", "question-frozen", "question-frozen",
    ]  # fmt: skip
    assert len(read) == 2


def test_a_vault_brought_back_from_a_copy_answers_no_round_again(tmp_path: Path) -> None:
    """The copy was made in the middle of a lesson: it is paid there, and later rounds look new."""
    with several(tmp_path) as sites:
        place, copy = tmp_path / "west" / "vault", tmp_path / "copy"
        refused: list[str] = []

        class West:
            rounds = 0

            def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
                self.rounds += verb == "join-sum"
                if verb == "join-sum" and self.rounds == 2:
                    sites.vaults["west"].close()
                    shutil.copytree(place, copy)
                    sites.vaults["west"] = sfumato.open(place)
                if verb == "join-sum" and self.rounds == 3:
                    sites.vaults["west"].close()
                    shutil.rmtree(place)
                    shutil.copytree(copy, place)
                    sites.vaults["west"] = sfumato.open(place)
                    with pytest.raises(Refused) as found:
                        sites.vaults["west"].call(verb, body)
                    refused.append(found.value.code)
                    sites.vaults["west"].owner.data_sets.acknowledge("A disk was lost.")
                return sites.vaults["west"].call(verb, body)

        _, steps = train(sites, {"west": West()}, rounds=3)
    assert refused == ["ledger-frozen"]
    assert [step.sites for step in steps] == [NAMES, NAMES, NAMES[:3]]
    assert steps[2].left_out == {"west": "op-reused"}


def test_training_stops_where_a_floor_is_not_reached_any_more(sites: Sites) -> None:
    class Failing:
        rounds = 0

        def __init__(self, vault: Any) -> None:
            self.vault = vault

        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            self.rounds += verb == "join-sum"
            if self.rounds > 1:
                raise Refused("data-set-frozen", "The owner has frozen the data set.", "Wait.")
            return dict(self.vault.call(verb, body))

    ways = {name: Failing(sites.vaults[name]) for name in ("south", "west")}
    model, steps = train(sites, ways, rounds=9)
    assert [step.failed is None for step in steps] == [True, False, False, False]
    assert model.card["rounds"] == 1
    assert model.card["stopped"].startswith("data-set-frozen")


def test_a_lesson_that_no_site_can_pay_is_refused_before_it_begins(sites: Sites) -> None:
    spent = sites.spent()
    with pytest.raises(Refused, match="budget-exceeded"):
        train(sites, epsilon=900)
    assert sites.spent() == spent


@pytest.mark.parametrize(
    ("said", "code"),
    [({"rate": float("nan")}, "bad-federation"), ({"rate": float("inf")}, "bad-federation"),
     ({"rate": -1}, "bad-federation"), ({"momentum": float("nan")}, "bad-federation"),
     ({"momentum": 1.5}, "bad-federation"), ({"people": 0}, "bad-federation"),
     ({"people": -480}, "bad-federation"), ({"people": 0.5}, "bad-federation"),
     ({"public": [{"age": 40, "salary": 100}]}, "bad-request"),
     ({"public": [{"age": 40, "salary": "much", "ill": True}]}, "bad-request"),
     ({"public": [{"age": 40, "salary": 100, "ill": "perhaps"}]}, "bad-request")],
    ids=["rate none", "rate endless", "rate back", "momentum none", "momentum grows", "nobody",
         "fewer than nobody", "half", "no target", "no number", "no class"],
)  # fmt: skip
def test_numbers_of_ones_own_that_are_none_cost_no_site_anything(
    sites: Sites, said: dict[str, Any], code: str
) -> None:
    """All sites had paid when the model was divided by nobody, or became what is no number."""
    before = sites.spent()
    with pytest.raises(Refused, match=f"^{code}:"):
        train(sites, **said)
    assert sites.spent() == before


def test_lessons_go_on_without_a_site_at_its_cap_and_stop_below_the_floor(tmp_path: Path) -> None:
    """Of four sites two have less to give: after the first of them there is a floor of three."""
    less = {"south": "50.0", "west": "30.0"}
    cards = {name: site_card(name, **{"900.0": cap}) for name, cap in less.items()}
    with several(tmp_path, cards=cards) as sites:
        assert train(sites, rounds=1)[1][0].sites == NAMES
        _, steps = train(sites, rounds=2)
        assert [step.sites for step in steps] == [NAMES[:3]] * 2
        assert steps[0].left_out == {"west": "budget-exceeded"}
        with pytest.raises(Refused, match="budget-exceeded: 2 sites are left"):
            train(sites, rounds=1)
        assert sites.spent() == {"east": 40, "north": 40, "south": 40, "west": 20}


LIES: dict[str, Any] = {
    "a better guarantee": {"epsilon": 0.01, "delta": 1e-30, "against": "everybody", "says": "!",
                           "bounding": "nobody moves anything", "mechanism": "magic"},
    "no epsilon": {"epsilon": None, "says": "Nothing was learnt"},
}  # fmt: skip


@pytest.mark.parametrize("kind", LIES)
def test_one_site_that_lies_of_the_price_decides_no_word_of_the_models_card(
    sites: Sites, kind: str
) -> None:
    """The first by name, which used to be believed."""
    way = Between(sites.vaults["east"])
    way.change = lambda verb, reply: {**reply, **LIES[kind]} if verb == "price-sum" else reply
    cards = [dict(train(sites, ways, rounds=1, epsilon=2)[0].card) for ways in ({}, {"east": way})]
    assert cards[0] == cards[1]
    assert (cards[1]["epsilon"], cards[1]["delta"]) == (2, 1e-6)


WORDLESS: dict[str, Any] = {
    "no noise": {"noise": []},
    "noise in words": {"noise": [{"unit": "little"}]},
    "no words": {"says": None},
    "no delta": {"delta": "none"},
    "a width beyond all": {"bits": 1000},
    "no width": {"bits": True},
}


@pytest.mark.parametrize("kind", WORDLESS)
def test_a_site_whose_price_is_none_of_a_lesson_is_left_out(sites: Sites, kind: str) -> None:
    way = Between(sites.vaults["east"])
    way.change = lambda verb, reply: {**reply, **WORDLESS[kind]} if verb == "price-sum" else reply
    _, steps = train(sites, {"east": way}, rounds=1, epsilon=2)
    assert steps[0].sites == NAMES[1:]
    assert steps[0].left_out == {"east": "sum-message-refused"}


CARDS: dict[str, Any] = {
    "other bounds": lambda columns: [{**one, "upper": 10**9} for one in columns],
    "other columns": lambda columns: columns[:1],
    "bounds in words": lambda columns: [{**one, "upper": "high"} for one in columns],
    "no columns": lambda _: None,
}


@pytest.mark.parametrize("kind", CARDS)
def test_one_site_that_shows_another_card_does_not_say_how_a_model_reads(
    sites: Sites, kind: str
) -> None:
    way = Between(sites.vaults["east"])
    way.change = lambda verb, reply: (
        {**reply, "columns": CARDS[kind](reply["columns"])} if verb == "card" else reply
    )
    model, _ = train(sites, {"east": way}, rounds=1, epsilon=2)
    assert [(one.name, one.upper) for one in model.features] == [("age", 110), ("salary", 200_000)]
    assert model.target.keys == (False, True)


def test_where_so_many_cards_differ_as_may_lie_nothing_is_learnt(sites: Sites) -> None:
    def told(name: str) -> Between:
        way = Between(sites.vaults[name])
        way.change = lambda verb, reply: (
            {**reply, "columns": [{**one, "upper": ord(name[0])} for one in reply["columns"]]}
            if verb == "card"
            else reply
        )
        return way

    spent = sites.spent()
    with pytest.raises(Refused, match="sum-not-trusted: Only 1 sites report the same data card"):
        train(sites, {name: told(name) for name in NAMES})
    assert sites.spent() == spent


def test_where_as_many_cards_say_otherwise_nothing_is_learnt(sites: Sites) -> None:
    """More than may lie say each of two things: whoever answers first is not believed for it."""

    def other(verb: str, reply: dict[str, Any]) -> dict[str, Any]:
        wider = CARDS["other bounds"]
        return {**reply, "columns": wider(reply["columns"])} if verb == "card" else reply

    ways = {name: Between(sites.vaults[name], change=other) for name in NAMES[2:]}
    spent = sites.spent()
    with pytest.raises(Refused, match="sum-not-trusted: Only 2 sites report the same data card"):
        train(sites, ways)
    assert sites.spent() == spent


def test_a_model_is_the_same_for_all_sites_or_there_is_no_round(sites: Sites) -> None:
    """The convener's invitation names the model: who is shown another one sends nothing."""
    ways = listening(sites)
    train(sites, ways, rounds=1)
    ((joined, _),) = ways["east"].of("join-sum")
    other = np.frombuffer(base64.b64decode(joined["weights"]), dtype="<f4").copy()
    assert sha256(other.tobytes()).hexdigest()
    other[0] += 1
    changed = {**joined, "weights": base64.b64encode(other.tobytes()).decode()}
    with pytest.raises(Refused, match="sum-not-trusted"):
        sites.vaults["east"].call("join-sum", changed)


def spread(sites: Sites) -> float:
    """How far the top bytes of what west sends in a round are from uniform (255 is the mean)."""
    ways = listening(sites)
    model, _ = train(sites, ways, rounds=1, hidden=[1000])
    ((_, reply),) = ways["west"].of("go-on-with-sum", "mask")
    _, masked = decode_fields(base64.b64decode(reply["message"]), "masked", 2)
    bits = max(int(way.of("price-sum")[0][1]["bits"]) for way in ways.values())
    words = np.frombuffer(masked, dtype="<u8" if bits > 32 else "<u4")
    assert len(words) == model.network.size
    counts = np.bincount((words >> np.uint64(bits - 8)).astype(np.int64), minlength=256)
    expected = len(words) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_what_leaves_a_site_is_uniform_and_would_not_be_without_masks(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spread(sites) < 400  # passed by chance less often than once in a million
    for name in ("add_mask", "take_mask"):
        monkeypatch.setattr(
            f"sfumato.dp.secure_aggregation.participant.{name}", lambda words, key: None
        )
    assert spread(sites) > 10_000


def test_wrong_units_from_one_site_are_seen(sites: Sites) -> None:
    way = Between(sites.vaults["west"])
    way.change = lambda verb, reply: (
        {**reply, "noise": [{**reply["noise"][0], "unit": 1.0}]} if verb == "price-sum" else reply
    )
    with pytest.raises(Refused, match="sum-not-trusted"):
        train(sites, {"west": way})
