"""Two equal texts, and what an owner did between: nothing that is remembered answers over it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.vault.ledger_entries import Entry
from sfumato.vault.users import Caller
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

SQL = "SELECT SUM(age) AS years FROM patients WHERE age > 30"
ADA = Caller("ada", frozenset({"read", "ask"}))
OWNER = Caller("owner", frozenset({"read", "ask", "own", "operate", "audit"}))
TENTH = Decimal("0.1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a vault of patients that ada may ask, by a grant of this data set alone."""
    vault = make_vault(tmp_path)
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
        token = opened.house.desk.access.invite(OWNER, "ada", ["researcher"])
        opened.house.desk.access.take_up(str(token["invitation"]), "soft edges, no outline", "x")
        opened.house.desk.policy.grant(OWNER, "patients", "ada", "researchers")
    return vault


@pytest.fixture
def vault(folder: Path) -> Iterator[OpenVault]:
    """Return the vault as its owner has it open."""
    with sfumato.open(folder) as opened:
        yield opened


@pytest.fixture
def elsewhere(folder: Path) -> Iterator[OpenVault]:
    """Return the same vault, open a second time, as another node has it."""
    with sfumato.open(folder) as opened:
        yield opened


def asked_here(vault: OpenVault) -> dict[str, object]:
    """Ask in the very process and house that has read, priced and told this text before."""
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH}
    given = vault.house.desk.done("ask", ADA, body)
    receipt = given["receipt"]
    assert isinstance(receipt, dict)
    return receipt


def refusal_of(vault: OpenVault) -> str:
    with pytest.raises(Refused) as refused:
        asked_here(vault)
    return refused.value.code


def test_an_amended_card_prices_and_tells_an_equal_text_anew(
    vault: OpenVault, tmp_path: Path
) -> None:
    before = asked_here(vault)
    halved = PATIENTS_CARD.replace("upper = 110", "upper = 55").replace("2026-11", "2026-12")
    vault.add("patients", tmp_path / "p.csv", card(halved))
    after = asked_here(vault)
    assert (before["version"], after["version"]) == ("2026-11", "2026-12")
    assert not after["free"]
    assert _sensitivity(before) == 2 * _sensitivity(after)
    assert vault.house.ledger.verified()["ok"]


def _sensitivity(receipt: dict[str, object]) -> int:
    split = receipt["split"]
    assert isinstance(split, list)
    return int(split[0]["sensitivity"])


def test_a_freeze_refuses_the_text_that_was_answered_just_now(
    vault: OpenVault, elsewhere: OpenVault
) -> None:
    asked_here(vault)
    elsewhere.house.desk.policy.freeze(OWNER, "patients")
    assert refusal_of(vault) == "data-set-frozen"
    elsewhere.house.desk.policy.thaw(OWNER, "patients")
    assert asked_here(vault)["free"]


def test_who_lost_their_grant_is_refused_the_text_that_they_were_answered_just_now(
    vault: OpenVault, elsewhere: OpenVault
) -> None:
    asked_here(vault)
    elsewhere.house.desk.policy.revoke_grant(OWNER, "patients", "ada")
    assert refusal_of(vault) == "unknown-data-set"


def test_a_lowered_cap_refuses_the_next_price_of_an_equal_text(
    vault: OpenVault, elsewhere: OpenVault
) -> None:
    asked_here(vault)
    account = elsewhere.house.ledger.store.account("user:patients/ada")
    assert account is not None
    cap = type(account.cap)(10**8, account.cap.delta, 0, 0)  # what ada has spent, and no more
    elsewhere.house.ledger.store.set_cap(account.name, cap)
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH, "fresh": True}
    with pytest.raises(Refused) as refused:
        vault.house.desk.done("ask", ADA, body)
    assert refused.value.code == "budget-exceeded"
    assert asked_here(vault)["left"] == _left(vault)


def test_a_receipt_says_what_is_left_at_the_head_that_it_names(vault: OpenVault) -> None:
    first = asked_here(vault)
    assert first["left"] == _left(vault)
    again = asked_here(vault)
    assert again["free"]
    assert again["left"] == _left(vault) == first["left"]


def _left(vault: OpenVault) -> object:
    with sfumato.open(vault.house.folder, user="ada") as asker:
        budget = asker["patients"].budget
    return {**dict(budget["left"]), "next_epsilon": budget["next_epsilon"]}


def test_what_a_reader_does_to_a_receipt_changes_no_later_one(vault: OpenVault) -> None:
    first = asked_here(vault)
    told = copy.deepcopy(first)
    split, question = first["split"], first["question"]
    assert isinstance(split, list)
    assert isinstance(question, dict)
    for value in (*split, *question.values(), split, question):
        if isinstance(value, list | dict):
            value.clear()
    again = asked_here(vault)
    for name in ("split", "question", "says", "bounding", "mechanism", "odds"):
        assert again[name] == told[name]
    assert vault.house.ledger.verified()["ok"]


def test_a_retry_outlives_a_card_that_would_refuse_the_question(
    vault: OpenVault, tmp_path: Path
) -> None:
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH, "op": "mine"}
    before = vault.house.desk.done("ask", ADA, body)
    without_age = PATIENTS_CARD.replace("2026-11", "2026-12").replace(
        '[columns.age]\ntype = "integer"\nlower = 0\nupper = 110', "[columns.age]\nhidden = true"
    )
    vault.add("patients", tmp_path / "p.csv", card(without_age))
    assert vault.house.desk.done("ask", ADA, body)["rows"] == before["rows"]
    with pytest.raises(Refused) as refused:
        vault.house.desk.done("ask", ADA, {**body, "op": "another"})
    assert refused.value.code != "fault"


def test_what_a_reader_does_to_an_answer_changes_no_later_one(vault: OpenVault) -> None:
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH}
    for _ in range(2):
        given = vault.house.desk.done("ask", ADA, body)
        told = copy.deepcopy({name: given[name] for name in _TABLE})
        for name in _TABLE:
            column = given[name]
            assert isinstance(column, list)
            for row in (*column, column):
                if isinstance(row, list):
                    row.clear()
        again = vault.house.desk.done("ask", ADA, body)
        assert {name: again[name] for name in _TABLE} == told


_TABLE = ("columns", "rows", "std", "interval")


def test_the_chain_says_every_request_as_it_was_made(vault: OpenVault) -> None:
    changes: list[dict[str, object]] = [
        {},
        {"people": 100},
        {"people": 200},
        {"epsilon": Decimal("0.2")},
        {"fresh": True},
        {"split": {"years": 1}},
        {},
    ]
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH}
    for place, change in enumerate(changes):
        vault.house.desk.done("ask", ADA, {**body, "op": str(place), **change})
    wanted = [
        {
            "epsilon": str(Fraction(str(change.get("epsilon", TENTH)))),
            "people": change.get("people"),
            "fresh": "fresh" in change,
            "split": [["years", "1"]] if "split" in change else None,
        }
        for change in changes
    ]
    said = [asked for entry in vault.house.ledger.store.entries() if (asked := _asked_in(entry))]
    assert said == wanted
    assert vault.house.ledger.verified()["ok"]


def _asked_in(entry: Entry) -> dict[str, object] | None:
    if entry.kind not in ("charged", "repeated"):
        return None
    request = json.loads(entry.body)["body"]["request"]
    return {name: request.get(name) for name in ("epsilon", "people", "fresh", "split")}


def test_an_answer_of_an_earlier_version_is_shown_as_it_was(
    vault: OpenVault, tmp_path: Path
) -> None:
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH, "op": "mine"}
    before = vault.house.desk.done("ask", ADA, body)
    halved = PATIENTS_CARD.replace("upper = 110", "upper = 55").replace("2026-11", "2026-12")
    vault.add("patients", tmp_path / "p.csv", card(halved))
    other = vault.house.desk.done("ask", ADA, {**body, "op": "another"})
    again = vault.house.desk.done("ask", ADA, body)
    assert again["rows"] == before["rows"]
    receipts = [given["receipt"] for given in (before, other, again)]
    versions = [receipt["version"] for receipt in receipts if isinstance(receipt, dict)]
    assert versions == ["2026-11", "2026-12", "2026-11"]


def test_every_fresh_answer_of_an_equal_text_is_shown_as_itself(vault: OpenVault) -> None:
    body = {"data_set": "patients", "sql": SQL, "epsilon": TENTH, "fresh": True}
    given = [vault.house.desk.done("ask", ADA, {**body, "op": str(op)})["rows"] for op in range(4)]
    again = [vault.house.desk.done("ask", ADA, {**body, "op": str(op)})["rows"] for op in range(4)]
    assert again == given
    assert len({str(rows) for rows in given}) > 1  # sums: four are alike once in a million
