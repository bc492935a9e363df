"""A site that does not answer, or takes for ever, holds up nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import sfumato
from sfumato.dp.refusal import Refused
from sfumato.features.federated.parallel_calls import call_all_sites
from support.federated_sites import ASK, Sites, several

COUNT = "SELECT COUNT(*) AS n FROM patients"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with several(tmp_path_factory.mktemp("late")) as made:
        yield made


@dataclass
class Stuck:
    """A site that takes a message of one kind and says nothing until the test is over."""

    vault: Any
    at: str
    is_over: Event = field(default_factory=Event)

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("stage", verb) == self.at:
            self.is_over.wait(120)
        return dict(self.vault.call(verb, body))


@pytest.mark.parametrize("at", ["price-sum", "join-sum", "share", "mask", "agree", "show-sum"])
def test_a_site_that_never_answers_is_left_out_and_the_round_goes_on(sites: Sites, at: str) -> None:
    stuck = Stuck(sites.vaults["west"], at)
    ways: Any = {**sites.vaults, "west": stuck}
    key = sites.folder / "convener.key"
    clinics = sfumato.federation(sites.agreement, key=key, sites=ways, patience_s=0.1)
    try:
        receipt: Any = clinics["patients"].ask(COUNT, **ASK).receipt
    finally:
        stuck.is_over.set()
    left_out = {} if at in ("agree", "show-sum") else {"west": "service-down"}
    assert receipt["left_out"] == left_out
    assert ("west" in receipt["sites"]) == (not left_out)


def test_below_the_floor_everybody_is_waited_for() -> None:
    """There is nothing to be had without them: two of three are needed, and one is slow."""
    slow = Event()

    def says_late() -> object:
        slow.wait(1)
        return "late"

    def refuses() -> object:
        raise Refused("service-down", "It is not there.", "Try later.")

    found = dict(call_all_sites({"a": lambda: "at once", "b": says_late, "c": refuses}, 2, 0.0))
    assert (found["a"], found["b"]) == ("at once", "late")
    assert isinstance(found["c"], Refused)


def test_a_refusal_is_no_answer_that_others_are_late_after() -> None:
    slow = Event()

    def says_late() -> object:
        slow.wait(1)
        return "late"

    def refuses() -> object:
        raise Refused("service-down", "It is not there.", "Try later.")

    found = dict(call_all_sites({"a": refuses, "b": refuses, "c": says_late}, 1, 0.0))
    assert found["c"] == "late"


def test_what_is_wrong_here_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        dict(call_all_sites({"a": (tmp_path / "gone").read_bytes}, 1, 0.0))
