"""Rounds in view: what a site's ledger says of lessons, and to whom; nothing of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import sfumato
from several_sites import Sites, pooled, several
from sfumato import Refused
from sfumato.faces.console.lessons import EDGE, HIGH, LEFT, WIDE, curves_of
from sfumato.faces.console.paper import make_paper
from sfumato.federated.training import Step
from sfumato.services.federated import lessons as services

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
    assert newest["told"] == [{"round": 1}, {"round": 2}, {"round": 3}]


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
    [{"loss": float("nan")}, {"loss": -1}, {"loss": "low"}, {"loss": True}, {"rows": 3}, [1]],
    ids=["no number", "below zero", "a word", "yes", "another name", "a list"],
)
def test_what_is_told_is_two_plain_numbers(sites: Sites, told: object) -> None:
    """Whoever convenes writes it into the ledger of each site, and no more than that."""
    body = {
        "data_set": "patients", "federation": "clinics", "epsilon": 1, "delta": 1e-6,
        "sql": "SELECT COUNT(*) FROM patients", "message": "eA==", "told": told,
    }  # fmt: skip
    with pytest.raises(Refused, match=r"^bad-request:"):
        sites.vaults["east"].call("join-sum", body)


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
    made = [{**one, "curves": curves_of(one["told"])} for one in found["lessons"]]
    me = {"user": "owner", "roles": [], "actions": ["own", "ask", "read"]}
    for state, follows in (("done", 0), ("4-1", 1)):
        values = {"card": card, "federations": joined, "lessons": made, "state": state}
        at = {"path": "/data-sets/patients/lessons", "me": me, "csrf": "", "refused": None}
        page = bytes(make_paper().page("lessons.html", 200, **values, **at).body).decode()
        assert page.count("data-events=") == follows
        assert "Rounds that this site was in" in page
        assert "<polyline points=" in page
        assert "east, north, south, west" in page
