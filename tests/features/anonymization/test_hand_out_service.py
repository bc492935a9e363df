"""What receipts say of tables that were handed out without noise, and what it takes to know it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.json_values import Json
from sfumato.release.guarantees.k_anonymity import hand_out
from sfumato.release.receipts import not_dp_json
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import Entry
from support.small_vaults import PATIENTS_CARD, open_with, write_patients

COUNT = "SELECT COUNT(*) AS n FROM clinic WHERE age > {age}"
ONE = "DP releases only; 1 non-DP releases exist"
TWO = "DP releases only; 2 non-DP releases exist"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    text = PATIENTS_CARD.replace("3.0", "1000").replace("1.0", "1000")
    with open_with(tmp_path, "clinic", write_patients(tmp_path / "p.csv"), text) as opened:
        yield opened


def receipt(vault: OpenVault, age: int) -> Json:
    return vault["clinic"].ask(COUNT.format(age=age), epsilon=0.1).receipt


def hand_one_out(vault: OpenVault) -> None:
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    hand_out(vault.house.ledger, listing.card, by="owner", says="a table")


def test_a_table_handed_out_after_a_question_is_on_the_next_receipt(vault: OpenVault) -> None:
    assert "not_dp" not in receipt(vault, 1)
    assert "not_dp" not in receipt(vault, 2)
    hand_one_out(vault)
    assert [receipt(vault, age)["not_dp"] for age in (3, 4)] == [ONE, ONE]
    hand_one_out(vault)
    assert [receipt(vault, age)["not_dp"] for age in (5, 3)] == [TWO, TWO]


def test_what_another_process_handed_out_is_on_the_next_receipt(
    vault: OpenVault, tmp_path: Path
) -> None:
    assert "not_dp" not in receipt(vault, 1)
    with sfumato.open(tmp_path / "vault") as other:
        hand_one_out(other)
    assert receipt(vault, 2)["not_dp"] == ONE


def test_what_was_handed_out_in_an_earlier_epoch_still_counts(
    vault: OpenVault, tmp_path: Path
) -> None:
    hand_one_out(vault)
    assert receipt(vault, 1)["not_dp"] == ONE
    (tmp_path / "anchors" / "anchor").unlink()
    vault.house.ledger.acknowledge("the anchor was lost")
    hand_one_out(vault)
    said = not_dp_json(vault.house.ledger, "city-hospital-patients")
    assert said == {"not_dp": TWO}


def test_a_look_back_counts_nothing_twice(vault: OpenVault) -> None:
    ledger, people = vault.house.ledger, "city-hospital-patients"
    before = ledger.store.head()
    hand_one_out(vault)
    assert ledger.not_dp(people) == 1
    assert ledger.not_dp(people, before) == 1  # what is known by now is known for every receipt
    assert ledger.not_dp(people) == 1


def test_a_receipt_reads_only_what_was_written_since_the_one_before(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = SqlLedger.notes, []

    def notes(
        store: SqlLedger, kind: str, after: int = 0, until: int | None = None
    ) -> tuple[Entry, ...]:
        looks.append(after)
        return real(store, kind, after, until)

    monkeypatch.setattr(SqlLedger, "notes", notes)
    entries = [int(str(receipt(vault, age)["seq"])) for age in range(4)]
    assert looks[0] == 0
    assert all(look >= paid for look, paid in zip(looks[1:], entries, strict=False))
    assert len(looks) == 4
