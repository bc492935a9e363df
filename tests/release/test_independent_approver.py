"""A second person depends on nobody whose request they approve."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.features.policy.schema import ChangeCap
from sfumato.release.independent_approver import SecondPerson
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.users import Caller, User
from support.ledger_stores import Place
from support.small_vaults import PATIENTS_CARD, open_with, write_patients

USERS = "abcdef"
KINDS = ("user-added", "user-invited", "user-changed")
ACCESS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(USERS), st.sampled_from(USERS)), max_size=9
)


def ledger_of(folder: Path, access: list[tuple[str, str, str]]) -> SqlLedger:
    store = Place("sqlite", str(folder / "ledger.db")).create()
    for kind, user, by in access:
        store.note(kind, {"user": user, "by": by})
    return store


def depends(user: str, on: str, let_in: set[tuple[str, str]]) -> bool:
    """Say whether somebody's access comes from another, by all chains there are."""
    reached = {user}
    for _ in USERS:
        reached |= {by for one, by in let_in if one in reached}
    return any(by == on for one, by in let_in if one in reached)


def is_refused(
    store: SqlLedger,
    approver: str,
    request: tuple[str, str] | None = None,
    *,
    is_served: bool = False,
) -> bool:
    try:
        SecondPerson(store).check(approver, "a", request, is_served=is_served)
    except Refused:
        return True
    return False


@settings(max_examples=60)
@given(access=ACCESS)
def test_whoever_has_their_access_from_the_asker_is_no_second_person(
    access: list[tuple[str, str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = ledger_of(Path(folder), access)
        let_in = {(user, by) for _, user, by in access}
        for approver in USERS[1:]:
            assert is_refused(store, approver) == depends(approver, "a", let_in)
            is_on_record = approver in {user for user, _ in let_in}
            refused = is_refused(store, approver, is_served=True)
            assert refused == (depends(approver, "a", let_in) or not is_on_record)
        store.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "request_of",
    [("cap-asked", "approval"), ("people-asked", "id"), ("airlock-submitted", "request")],
)
def test_access_that_is_newer_than_the_request_does_not_count(
    tmp_path: Path, kind: str, request_of: tuple[str, str]
) -> None:
    entry, name = request_of
    store = ledger_of(tmp_path, [("user-added", "b", "c")])
    store.note(entry, {name: "one"})
    assert not is_refused(store, "b", (entry, "one"))
    store.note(kind, {"user": "b", "by": "c"})
    assert is_refused(store, "b", (entry, "one"))
    store.note(entry, {name: "two"})
    assert not is_refused(store, "b", (entry, "two"))
    store.close()


def test_who_is_served_and_on_no_record_raises_no_cap_and_confirms_no_rows(tmp_path: Path) -> None:
    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        desk, owner = vault.house.desk, Caller("owner", frozenset({"own"}), None, "one")
        asked = desk.caps.set(
            owner, ChangeCap(data_set="clinic", of="people", epsilon=9, why="a new study")
        )
        approval = str(asked["approval"])
        with pytest.raises(Refused, match="does not say who let"):
            desk.caps.decide(Caller("olga", frozenset({"operate"}), None, "two"), approval, True)
        with pytest.raises(Refused, match="does not say who let"):
            desk.confirmations.second_person(owner, User("olga", ("operator",), "today"))
        done = desk.caps.decide(Caller("olga", frozenset({"operate"})), approval, True)
        assert done["state"] == "approved"
