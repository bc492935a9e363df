"""A ledger that was rolled back says so on every face, before anybody asks a question."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from support.small_vaults import PATIENTS_CARD, open_with, run, write_patients


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    """Return a vault whose folder was set back to before its only question."""
    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD):
        pass
    shutil.copytree(tmp_path / "vault", tmp_path / "backup")
    with sfumato.open(tmp_path / "vault") as vault:
        vault["clinic"].count().ask(epsilon=0.5)
    shutil.rmtree(tmp_path / "vault")
    return (tmp_path / "backup").rename(tmp_path / "vault")


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


FACES: dict[str, Callable[[OpenVault], object]] = {
    "budget": lambda vault: vault["clinic"].budget,
    "price": lambda vault: vault["clinic"].count().price(epsilon=0.1),
    "spending": lambda vault: vault.call("spending", {"data_set": "clinic"}),
    "ask": lambda vault: vault["clinic"].count().ask(epsilon=0.1),
    "cap": lambda vault: vault.owner.data_sets.raise_cap(
        "city-hospital-patients", 3, 0, why="a test", approver="the board"
    ),
}


@pytest.mark.parametrize("face", FACES)
def test_no_face_shows_what_was_spent_by_a_ledger_that_was_rolled_back(
    rolled: Path, face: str
) -> None:
    with sfumato.open(rolled) as vault:
        assert code_of(lambda: FACES[face](vault)) == "ledger-frozen"


def test_an_auditor_is_told_beside_the_accounts(rolled: Path) -> None:
    with sfumato.open(rolled) as vault:
        assert "anchor" in str(vault.call("policies", {})["history"])


def test_a_rolled_back_ledger_is_frozen_when_it_is_opened(rolled: Path) -> None:
    with sfumato.open(rolled) as vault:
        assert vault.house.ledger.store.frozen() == "the ledger ends before the anchor's mark"


def test_verify_reads_the_anchor(rolled: Path) -> None:
    shown = run(rolled, "ledger", "verify", "--json")
    assert shown.returncode == 3
    said = json.loads(shown.stdout)
    assert said["ok"] is False
    assert "anchor" in said["refused"]["cause"]
    with sfumato.open(rolled) as vault:
        found = vault.call("verify-ledger", {})
        assert found["ok"] is False
        assert "anchor" in str(found["frozen"])


def test_verify_says_that_the_anchor_is_missing(rolled: Path, tmp_path: Path) -> None:
    (tmp_path / "anchors" / "anchor").unlink()
    shown = run(rolled, "ledger", "verify", "--json")
    assert shown.returncode == 3
    assert "anchor" in json.loads(shown.stdout)["refused"]["cause"]


def test_acknowledge_finds_a_rollback_that_nothing_else_has_found(rolled: Path) -> None:
    with sfumato.open(rolled) as vault:
        assert vault.owner.data_sets.acknowledge("restored by hand").epoch == 2


def test_acknowledge_changes_nothing_where_the_history_holds(tmp_path: Path) -> None:
    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        before = vault.house.ledger.store.head()
        assert code_of(lambda: vault.owner.data_sets.acknowledge("nothing")) == "not-allowed"
        assert vault.house.ledger.store.head() == before


def test_a_changed_entry_freezes_the_ledger_where_it_is_found(tmp_path: Path) -> None:
    import apsw

    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        vault["clinic"].count().ask(epsilon=0.5)
    link = apsw.Connection(str(tmp_path / "vault" / "ledger.sqlite"))
    link.execute("DROP TRIGGER ledger_entries_no_update")
    link.execute("UPDATE ledger_entries SET at = 'another time' WHERE seq = 3")
    link.close()
    with sfumato.open(tmp_path / "vault") as vault:
        assert vault.call("verify-ledger", {})["ok"] is False
        assert code_of(lambda: vault["clinic"].budget) == "ledger-frozen"


def test_a_true_receipt_that_does_not_stand_freezes_and_is_kept_once(tmp_path: Path) -> None:
    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        receipt = vault["clinic"].count().ask(epsilon=0.5).receipt
        assert vault.has_receipt(receipt)
        ledger, was = vault.house.ledger, receipt["signed"]
        assert isinstance(was, dict)
        for lost in ({**was, "seq": 99}, {**was, "head": "0" * 64}, {**was, "seq": 99}):
            assert vault.has_receipt(ledger.sign(lost)) is False
        assert len(ledger.store.notes("receipt-unknown")) == 2
        assert code_of(lambda: vault["clinic"].budget) == "ledger-frozen"


def test_what_this_vault_did_not_sign_as_a_receipt_freezes_nothing(tmp_path: Path) -> None:
    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        receipt = vault["clinic"].count().ask(epsilon=0.5).receipt
        was, ledger = receipt["signed"], vault.house.ledger
        assert isinstance(was, dict)
        forged: list[dict[str, object]] = [
            {},
            {"signed": None, "signature": 1},
            {**receipt, "signed": {**was, "seq": 99}},
            {**receipt, "signature": None},
            {**receipt, "signature": "\u00e9" * 128},
            {**receipt, "signature": str(receipt["signature"]).upper() + "0"},
            ledger.sign({"format": "another paper"}),
            ledger.sign({**was, "seq": "99"}),
        ]
        for one in forged:
            assert code_of(lambda: vault.has_receipt(one)) == "answer-unknown"  # noqa: B023  # now
        assert ledger.store.frozen() is None
