"""An add that was killed when it was all but over is over, and stands in the ledger once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.app import OpenVault
from sfumato.core.card import read_card
from sfumato.core.ports import Listing
from sfumato.faces.upload_desk import added
from sfumato.services.access import Caller
from sfumato.services.data_sets.card_text import card_text
from sfumato.services.jobs import ADD, Job
from sfumato.wire import json_text
from vaults import PATIENTS_CARD, card, make_vault, write_patients

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
    added(vault.house.desk, OWNER, job)
    again = job_of(vault, 2)
    added(vault.house.desk, OWNER, again)
    assert len(vault.house.catalogue.cards()) == signed(vault) == 1


def test_the_same_add_begun_anew_is_no_second_one(vault: OpenVault) -> None:
    added(vault.house.desk, OWNER, job_of(vault, 1))
    with pytest.raises(Refused) as refused:
        added(vault.house.desk, OWNER, job_of(vault, 1))
    assert refused.value.code == "data-set-exists"


def test_another_card_is_not_taken_for_the_one_that_stands(vault: OpenVault) -> None:
    added(vault.house.desk, OWNER, job_of(vault, 1))
    with pytest.raises(Refused):
        added(vault.house.desk, OWNER, job_of(vault, 2, PATIENTS_CARD.replace("110", "120")))


def test_an_add_that_was_killed_before_its_card_was_signed_is_signed(vault: OpenVault) -> None:
    shape = card(PATIENTS_CARD)
    made = read_card("patients", shape)
    listing = Listing(made, str(vault.house.folder / "tables" / "x.duckdb"))
    vault.house.catalogue.put(listing, card_text(shape), made.people, "x")
    assert signed(vault) == 0
    added(vault.house.desk, OWNER, job_of(vault, 2))
    assert signed(vault) == 1
