"""An add that was killed when it was all but over is over, and stands in the ledger once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.features.data_sets.card_text import card_text
from sfumato.features.data_sets.service import DataSets
from sfumato.features.jobs.service import ADD, Job
from sfumato.vault.card.data_card import read_card
from sfumato.vault.ports import Listing
from sfumato.vault.users import Caller
from sfumato.wire.json_text import json_text
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

OWNER = Caller("owner", frozenset({"read", "ask", "own"}))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return an empty vault."""
    with sfumato.open(make_vault(tmp_path)) as opened:
        yield opened


def job_of(vault: OpenVault, tries: int, text: str = PATIENTS_CARD) -> Job:
    rows = write_patients(vault.house.folder.parent / "patients.csv").read_bytes()
    incoming = vault.house.desk.uploads.begin(OWNER, "patients.csv", None)
    incoming.take(rows)
    upload = incoming.kept().id
    incoming.end(is_kept=True)
    body = json_text({"name": "patients", "upload": upload, "card": card(text)})
    return Job("j", "owner", "", ADD, "patients", "op", body, "2026-11-21", tries=tries)


def signed(vault: OpenVault) -> int:
    kinds = [entry.kind for entry in vault.house.ledger.store.entries()]
    return kinds.count("card-signed")


def test_an_add_that_was_killed_after_its_card_was_signed_is_over(vault: OpenVault) -> None:
    job = job_of(vault, 1)
    vault.house.desk.adding.run(OWNER, job)
    again = job_of(vault, 2)
    vault.house.desk.adding.run(OWNER, again)
    assert len(vault.house.catalogue.cards()) == signed(vault) == 1


def test_the_same_add_begun_anew_is_no_second_one(vault: OpenVault) -> None:
    vault.house.desk.adding.run(OWNER, job_of(vault, 1))
    with pytest.raises(Refused) as refused:
        vault.house.desk.adding.run(OWNER, job_of(vault, 1))
    assert refused.value.code == "data-set-exists"


def test_another_card_is_not_taken_for_the_one_that_stands(vault: OpenVault) -> None:
    vault.house.desk.adding.run(OWNER, job_of(vault, 1))
    with pytest.raises(Refused):
        vault.house.desk.adding.run(OWNER, job_of(vault, 2, PATIENTS_CARD.replace("110", "120")))


def test_an_add_that_was_killed_before_its_card_was_signed_is_signed(vault: OpenVault) -> None:
    shape = card(PATIENTS_CARD)
    made = read_card("patients", shape)
    listing = Listing(made, str(vault.house.folder / "tables" / "x.duckdb"))
    vault.house.catalogue.put(listing, card_text(shape), made.people, "x")
    assert signed(vault) == 0
    vault.house.desk.adding.run(OWNER, job_of(vault, 2))
    assert signed(vault) == 1


def killed_before_it_was_signed(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch, act: Any
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(DataSets, "_sign", killed)
        with pytest.raises(KeyboardInterrupt):
            act()


def caps(vault: OpenVault) -> Any:
    told: Any = vault.call("spending", {"data_set": "patients"})["accounts"]
    return {(one["of"], one["name"]): one["cap"]["epsilon"] for one in told}


def test_an_add_that_was_killed_before_it_was_signed_raises_no_cap(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has lowered one since: the card's own figure is as it was."""
    vault.house.desk.adding.run(OWNER, job_of(vault, 1))
    for of, name in (("user", "ada"), ("data-set", "")):
        vault.call("set-cap", {"data_set": "patients", "of": of, "name": name, "epsilon": 0.1})
    lowered = caps(vault)
    assert lowered["user", "ada"] == 0.1
    text = PATIENTS_CARD.replace("2026-11", "2026-12")
    first = job_of(vault, 1, text)
    killed_before_it_was_signed(
        vault, monkeypatch, lambda: vault.house.desk.adding.run(OWNER, first)
    )
    vault.house.desk.adding.run(OWNER, job_of(vault, 2, text))
    assert (caps(vault), signed(vault)) == (lowered, 2)


def test_an_amendment_that_was_killed_before_it_was_signed_is_signed_by_the_next(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caps are those of the accounts, too: a cap that was lowered on the card is lowered."""
    vault.house.desk.adding.run(OWNER, job_of(vault, 1))
    vault.call("set-cap", {"data_set": "patients", "of": "user", "name": "ada", "epsilon": 0.5})
    cap: dict[str, Any] = {"caps": {"user": {"epsilon": 0.2}}}
    body: dict[str, object] = {"data_set": "patients", "card": {"version": "2", **cap}}
    killed_before_it_was_signed(vault, monkeypatch, lambda: vault.call("amend", body))
    assert (signed(vault), caps(vault)["user", "ada"]) == (1, 0.5)
    vault.call("amend", {"data_set": "patients", "card": {"version": "3", "size": 500}})
    assert (signed(vault), caps(vault)["user", "ada"]) == (3, 0.2)
