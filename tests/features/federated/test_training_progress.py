"""Rounds in view: what a site's ledger says of lessons, and to whom; nothing of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.features.federated import training_progress as services
from sfumato.features.federated.pages import EDGE, HIGH, LEFT, WIDE, Paid, curves_of, paid_of
from sfumato.features.federated.training.training_rounds import Step, paid_by
from sfumato.server.console.templates_renderer import make_renderer
from support.federated_sites import Sites, pooled, several

LESSON: dict[str, Any] = {
    "features": ["age"], "target": "ill", "epsilon": 20, "delta": 1e-6, "rounds": 3,
    "people": 480, "clip": 1, "rate": 2.0,
}  # fmt: skip
PUBLIC = [{"age": age, "ill": ill == "true"} for _, age, _, _, ill in pooled()[:50]]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with several(tmp_path_factory.mktemp("lessons")) as made:
        yield made


def lessons(vault: Any) -> dict[str, Any]:
    return dict(vault.call("lessons", {"data_set": "patients"}))


def test_a_lesson_is_followed_round_by_round_by_its_own_sites_ledger(sites: Sites) -> None:
    seen: list[tuple[str, int]] = []
    told: list[float] = []

    def heard(step: Step) -> None:
        found = lessons(sites.vaults["west"])
        seen.append((found["state"], found["lessons"][0]["used"]))
        told.append(step.model.loss(PUBLIC))

    sites.together().train("patients", heard=heard, public=PUBLIC, **LESSON)
    assert seen == [("1-1", 1), ("1-2", 2), ("done", 3)]
    (one,) = lessons(sites.vaults["west"])["lessons"]
    assert (one["epsilon"], one["rounds"], one["guarantee"]) == (20, 3, "central-dp")
    assert [round_["round"] for round_ in one["told"]] == [1, 2, 3]
    # each figure is of the model that the round began with: that after the round before
    assert [round_["loss"] for round_ in one["told"][1:]] == pytest.approx(told[:2])
    assert all(0 <= round_["accuracy"] <= 1 for round_ in one["told"])


def test_who_looks_again_and_again_reads_the_ledger_once(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = sites.vaults["west"]
    before = lessons(vault)
    read: list[object] = []
    charges = services._charges

    def counted(ledger: Any, data_set: str) -> Any:
        read.append(data_set)
        return charges(ledger, data_set)

    monkeypatch.setattr(services, "_charges", counted)
    assert [lessons(vault) for _ in range(9)] == [before] * 9
    assert read == []
    vault.call("leave-federation", {"data_set": "patients", "federation": "clinics"})
    vault.call("join-federation", {"data_set": "patients", **sites.agreement})
    assert [lessons(vault) for _ in range(9)] == [before] * 9
    assert read == ["patients"]  # the ledger has grown


def test_without_public_rows_nothing_is_told_of_how_the_model_does(sites: Sites) -> None:
    sites.together().train("patients", **LESSON)
    newest = lessons(sites.vaults["east"])["lessons"][0]
    assert [set(one) - {"round", "paid"} for one in newest["told"]] == [set(), set(), set()]


def test_each_site_is_told_once_what_all_have_paid(sites: Sites) -> None:
    """By whoever convenes, as soon as they know: in the round after the one that it was paid in."""
    sites.together().train("patients", **LESSON)
    paid = dict.fromkeys(("east", "north", "south", "west"), 20.0)
    for vault in sites.vaults.values():
        newest = lessons(vault)["lessons"][0]
        assert newest["told"] == [{"round": 1}, {"round": 2, "paid": paid}, {"round": 3}]


@dataclass
class Way:
    """The way to a site that is away in some rounds, or is told something else besides."""

    vault: Any  # whatever answers verbs
    away: tuple[int, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        if verb != "join-sum":
            return dict(self.vault.call(verb, body))
        if body["number"] in self.away:
            raise Refused("service-down", "It is away.", "Ask later.")
        return dict(self.vault.call(verb, {**body, **self.more}))


def test_a_site_that_comes_late_or_back_is_told_too(sites: Sites) -> None:
    """West is out of the first two rounds; north of the one in which others hear that it paid."""
    ways = {"west": Way(sites.vaults["west"], (1, 2)), "north": Way(sites.vaults["north"], (4,))}
    sites.together(ways).train("patients", **{**LESSON, "rounds": 6})
    told = {
        name: [(one["round"], "".join(site[0] for site in one.get("paid", {})))
               for one in lessons(vault)["lessons"][0]["told"]]
        for name, vault in sites.vaults.items()
    }  # fmt: skip
    before, after = [(1, ""), (2, "ens"), (3, "")], [(5, ""), (6, "ensw")]
    assert told["east"] == told["south"] == [*before, (4, "ensw"), *after]
    assert told["north"] == [*before, *after]
    assert told["west"] == [(3, ""), (4, "ensw"), *after]


def test_payments_of_strangers_are_not_taken_down(sites: Sites) -> None:
    """Else whoever convenes could write what they like into a ledger, as somebody's name."""
    told = {"told": {"paid": {"mallory": 1.0}}}
    ways = {name: Way(vault, more=told) for name, vault in sites.vaults.items()}
    before = lessons(sites.vaults["east"])
    with pytest.raises(Refused, match=r"^bad-request:.*of the agreement"):
        sites.together(ways).train("patients", **LESSON)
    assert lessons(sites.vaults["east"]) == before


def test_a_price_that_no_site_would_take_down_is_not_handed_on() -> None:
    said = {"east": 1, "north": float("nan"), "south": -1, "west": Decimal("0.5"), "x": 10**11}
    assert paid_by({name: {"epsilon": one} for name, one in said.items()}) == {
        "east": 1.0, "west": 0.5,
    }  # fmt: skip


def test_others_see_their_own_lessons_alone(sites: Sites) -> None:
    vault = sites.vaults["south"]
    sites.together().train("patients", **LESSON)
    assert lessons(vault)["lessons"]
    vault.enrol("ria", "researchers")
    with sfumato.open(sites.folder / "south" / "vault", user="ria") as other:
        assert lessons(other) == {"lessons": [], "state": "done"}
    with (
        sfumato.open(sites.folder / "south" / "vault", user="eve") as stranger,
        pytest.raises(Refused, match=r"^unknown-data-set:"),
    ):
        lessons(stranger)


@pytest.mark.parametrize(
    "told",
    [{"loss": float("nan")}, {"loss": -1}, {"loss": "low"}, {"loss": True}, {"rows": 3}, [1],
     {"loss": 10**400}, {"paid": {"east": 10**400}},
     {"paid": [1]}, {"paid": {"east": "much"}}, {"paid": {"east": -1}}, {"paid": {"east": True}}],
    ids=["no number", "below zero", "a word", "yes", "another name", "a list",
         "longer than a float", "paid longer than a float",
         "paid a list", "paid a word", "paid below zero", "paid yes"],
)  # fmt: skip
def test_what_is_told_are_plain_numbers(sites: Sites, told: object) -> None:
    """Whoever convenes writes it into the ledger of each site, and no more than that."""
    body = {
        "data_set": "patients", "federation": "clinics", "epsilon": 1, "delta": 1e-6,
        "sql": "SELECT COUNT(*) FROM patients", "message": "eA==", "told": told,
    }  # fmt: skip
    with pytest.raises(Refused, match=r"^bad-request:"):
        sites.vaults["east"].call("join-sum", body)


def test_what_others_have_paid_is_shown_by_the_word_that_it_is() -> None:
    lesson = {
        "epsilon": 3.0, "sites": ["a", "b", "c"],
        "told": [{"round": 1}, {"round": 2, "paid": {"a": 9.0, "b": 3.0}},
                 {"round": 3, "paid": {"a": 9.0, "b": 3.0}}],
    }  # fmt: skip
    assert [(one.site, one.epsilon, one.word) for one in paid_of(lesson, "a")] == [
        ("a", 3.0, "this site’s ledger"), ("b", 3.0, "reported by the convener, before round 2"),
        ("c", None, "not reported yet"),
    ]  # fmt: skip
    assert paid_of(lesson, None)[0] == Paid("a", 9.0, "reported by the convener, before round 2")


def test_a_curve_is_drawn_from_what_was_told_and_said_in_words() -> None:
    rounds: list[dict[str, Any]] = [
        {"round": 1, "loss": 2.0, "accuracy": 0.25}, {"round": 2},
        {"round": 3, "loss": 1.0, "accuracy": 0.75},
    ]  # fmt: skip
    loss, accuracy = curves_of(rounds)
    low, high = HIGH - EDGE, HIGH - 2 * EDGE
    assert loss.points == f"{LEFT:.1f},{EDGE:.1f} {WIDE - EDGE:.1f},{low - high / 2:.1f}"
    assert accuracy.points.startswith(f"{LEFT:.1f},{low - high / 4:.1f} ")
    assert accuracy.words == "accuracy from 0.250 before round 1 to 0.750 before round 3"
    assert [number for _, number in loss.marks] == ["0", "1", "2"]
    assert [down for down, _ in loss.marks] == [low, low - high / 2, EDGE]
    assert curves_of(rounds[:1]) == curves_of([]) == []


def test_the_page_has_every_round_as_a_table_and_follows_what_is_open(sites: Sites) -> None:
    sites.together().train("patients", public=PUBLIC, **LESSON)
    found = lessons(sites.vaults["north"])
    card = sites.vaults["north"].call("card", {"data_set": "patients"})
    joined = sites.vaults["north"].call("federations", {"data_set": "patients"})["federations"]
    made = [
        {**one, "curves": curves_of(one["told"]), "paid": paid_of(one, "north")}
        for one in found["lessons"]
    ]
    me = {"user": "owner", "roles": [], "actions": ["own", "ask", "read"]}
    for state, follows in (("done", 0), ("4-1", 1)):
        values = {"card": card, "federations": joined, "lessons": made, "state": state}
        at = {"path": "/data-sets/patients/lessons", "me": me, "csrf": "", "refused": None}
        page = bytes(make_renderer().page("lessons.html", 200, **values, **at).body).decode()
        assert page.count("data-events=") == follows
        assert "Rounds in which this site took part" in page
        assert "<polyline points=" in page
        assert "east, north, south, west" in page
        assert page.count("reported by the convener, before round 2") >= 3
        assert '<th scope="row">north</th><td class="n">20</td><td>this site’s ledger</td>' in page
        assert "shares its masks" not in page
        ring = {**values, "federations": [{**one, "neighbours": 2} for one in joined]}
        page = bytes(make_renderer().page("lessons.html", 200, **ring, **at).body).decode()
        assert 'Each shares its masks with <span class="num">2</span> others.' in page
