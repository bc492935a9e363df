"""What no owner's word gets round, in a vault that is open in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import sfumato
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.system.clock import SystemClock
from sfumato.vault.users import ACTIONS, Caller
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

TWO = PATIENTS_CARD.replace("[caps]", '[caps]\nraise = "two people"')


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return a vault whose one card wants two people for every raise."""
    rows = write_patients(tmp_path / "patients.csv")
    with sfumato.open(make_vault(tmp_path)) as opened:
        opened.add("patients", rows, card(TWO))
        yield opened


def count(vault: OpenVault, epsilon: float) -> None:
    vault["patients"].ask("SELECT COUNT(*) AS n FROM patients", epsilon=epsilon)


def waiting(vault: OpenVault) -> list[dict[str, str]]:
    found = vault.call("frozen-questions", {"data_set": "patients"})["questions"]
    assert isinstance(found, list)
    return found


def add(vault: OpenVault, text: str) -> None:
    rows = vault.house.folder.parent / "patients.csv"
    vault.add("patients", rows, card(text.replace("2026-11", "2026-12")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('raise = "two people"', ""),
        ('raise = "two people"', 'raise = "owner"'),
        ("user = { epsilon = 1.0 }", "user = { epsilon = 1.1 }"),
        ("user = { epsilon = 1.0 }", ""),
        ("budget = { epsilon = 3.0,", "budget = { epsilon = 3.1,"),
        ("delta = 1e-6", "delta = 2e-6"),
    ],
)
def test_a_new_version_gets_round_no_second_person(vault: OpenVault, old: str, new: str) -> None:
    with pytest.raises(Refused) as refused:
        add(vault, TWO.replace(old, new))
    assert refused.value.code == "not-allowed"


def test_a_new_version_may_lower_a_cap(vault: OpenVault) -> None:
    count(vault, 0.1)
    add(vault, TWO.replace("user = { epsilon = 1.0 }", "user = { epsilon = 0.5 }"))
    account = vault.house.ledger.store.account("user:patients/owner")
    assert account is not None
    assert account.cap.epsilon == 500_000_000


def test_a_cap_that_was_set_outlives_a_new_version(vault: OpenVault) -> None:
    body = {"data_set": "patients", "of": "user", "name": "owner", "epsilon": 0.2}
    vault.call("set-cap", body)
    add(vault, TWO)
    account = vault.house.ledger.store.account("user:patients/owner")
    assert account is not None
    assert account.cap.epsilon == 200_000_000
    add_again = TWO.replace("2026-11", "2027").replace(
        "user = { epsilon = 1.0 }", "user = { epsilon = 0.9 }"
    )
    vault.add("patients", vault.house.folder.parent / "patients.csv", card(add_again))
    account = vault.house.ledger.store.account("user:patients/owner")
    assert account is not None
    assert account.cap.epsilon == 200_000_000


def test_a_cap_of_a_group_that_pays_nothing_is_refused(vault: OpenVault) -> None:
    body = {"data_set": "patients", "of": "group", "name": "researchers", "epsilon": 0.2}
    with pytest.raises(Refused) as refused:
        vault.call("set-cap", body)
    assert refused.value.code == "bad-request"


def test_a_freeze_holds_on_every_node(vault: OpenVault) -> None:
    with sfumato.open(vault.house.folder) as other:
        vault.call("freeze", {"data_set": "patients"})
        with pytest.raises(Refused) as refused:
            count(other, 0.1)
        assert refused.value.code == "data-set-frozen"
        assert other.house.ledger.store.account("user:patients/owner") is None
        other.call("thaw", {"data_set": "patients"})
        count(vault, 0.1)


def test_a_freeze_that_broke_off_is_written_by_the_next(vault: OpenVault) -> None:
    """Who is told that it is frozen has waited for every charge that did not see it."""
    vault.house.catalogue.freeze("patients", "owner", "2026-11-23T00:00:00+00:00")  # killed
    vault.call("freeze", {"data_set": "patients"})
    kinds = [entry.kind for entry in vault.house.ledger.store.entries()]
    assert "data-set-frozen" in kinds


def test_a_stopped_question_is_shown_to_the_owner_and_thawed(vault: OpenVault) -> None:
    count(vault, 0.1)
    store = vault.house.ledger.store
    charged = [json.loads(e.body) for e in store.entries() if e.kind == "charged"][-1]
    store.fail(charged["user"], charged["op"], "question-failed", charged["shape"])
    with pytest.raises(Refused) as refused:
        count(vault, 0.2)
    assert refused.value.code == "question-frozen"
    waits = waiting(vault)[0]
    assert waits["user"] == "owner"
    vault.call("thaw-question", {"data_set": "patients", "shape": waits["shape"]})
    assert waiting(vault) == []
    count(vault, 0.2)


def test_a_cap_that_was_changed_meanwhile_is_not_set(vault: OpenVault) -> None:
    store = vault.house.ledger.store
    account = store.account("data-set:patients")
    assert account is not None
    lower = replace(account.cap, epsilon=1)
    assert store.set_cap(account.name, lower, account.cap).cap == lower
    assert store.set_cap(account.name, account.cap, account.cap).cap == lower


def test_a_cap_that_was_set_outlives_a_new_version_of_an_owners_own(tmp_path: Path) -> None:
    rows = write_patients(tmp_path / "patients.csv")
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("patients", rows, card(PATIENTS_CARD))
        body = {"data_set": "patients", "of": "user", "name": "ada", "epsilon": 0.2}
        vault.call("set-cap", body)
        vault.add("patients", rows, card(PATIENTS_CARD.replace("2026-11", "2026-12")))
        account = vault.house.ledger.store.account("user:patients/ada")
        assert account is not None
        assert account.cap.epsilon == 200_000_000


def test_the_owner_sees_how_often_the_host_ended_a_reading(vault: OpenVault) -> None:
    """An alarm of theirs alone: nobody else may call it (test_route_permissions.py)."""
    for cause in ("signal", "signal", "memory"):
        said = {"data_set": "patients", "shape": None, "cause": cause}
        vault.house.ledger.note("engine-lost", dict(said))
    vault.house.ledger.note("engine-lost", {"data_set": "another", "shape": None, "cause": "start"})
    found = vault.call("frozen-questions", {"data_set": "patients"})["lost"]
    assert isinstance(found, list)
    assert [(one["cause"], one["times"]) for one in found] == [("signal", 2), ("memory", 1)]
    assert all(one["says"] != one["cause"] for one in found)
    late = replace(vault.house.desk.policy, clock=InAYear())
    assert late.lost_readings(Caller("owner", frozenset(ACTIONS)), "patients") == []


class InAYear:
    """A clock of another day."""

    def now(self) -> str:
        return f"{int(SystemClock().now()[:4]) + 1}-12-31T00:00:00.000+00:00"
