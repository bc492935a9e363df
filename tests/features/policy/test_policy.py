"""What an owner decides over HTTP: who may ask, how much, when to stop; and who else agrees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

AT = "/v1/data-sets/patients"
TWO = PATIENTS_CARD.replace("[caps]", '[caps]\nraise = "two people"').replace(
    "city-hospital", "other-hospital"
)
SHAPE = "a" * 64
# each of the owner's verbs, as one request
REQUESTS: list[tuple[str, str, object]] = [
    ("GET", "/grants", None),
    ("PUT", "/grants/ada", {"group": "researchers"}),
    ("DELETE", "/grants/ada", None),
    ("GET", "/spending", None),
    ("PUT", "/caps", {"of": "user", "name": "ada", "epsilon": 0.5}),
    ("POST", "/freeze", {}),
    ("POST", "/thaw", {}),
    ("GET", "/frozen", None),
    ("POST", f"/frozen/{SHAPE}", {}),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service of two data sets of the first owner's; the second needs two to raise."""
    folder = tmp_path_factory.mktemp("policy")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        rows = write_patients(folder / "patients.csv")
        opened.add("patients", rows, card(PATIENTS_CARD))
        opened.add("guarded", rows, card(TWO), different_people="the board")
        opened.enrol("eva", "researchers")
        opened.enrol("emil", "gardeners")  # whom neither card lets ask
    with served(vault) as running:
        running.owner()
        for name, role in (
            ("otto", "owner"),
            ("stooge", "operator"),
            ("ada", "researcher"),
            ("aud", "auditor"),
        ):
            running.user(name, role)
        running.user_from_folder("pia", "operator")
        yield running


def call(
    service: Service, method: str, path: str, body: object = None, *, by: str = "owner"
) -> tuple[int, Any]:
    return service.call(method, path, body, token=service.tokens[by])


def code(said: Any) -> object:
    return said.get("refused", {}).get("code")


def ask(service: Service, epsilon: float, data_set: str = "patients", **more: object) -> Any:
    sql = f"SELECT COUNT(*) AS n FROM {data_set}"
    body = {"sql": sql, "epsilon": epsilon, "fresh": True, **more}
    return call(service, "POST", f"/v1/data-sets/{data_set}/ask", body, by="ada")


def kinds(service: Service, folder_kind: str) -> list[dict[str, Any]]:
    """Return the bodies of the ledger's entries of a kind, read where they lie."""
    vault = Path(json.loads(json.dumps(service.process.args))[5])
    with sfumato.open(vault) as opened:
        entries = opened.house.ledger.store.entries()
        return [json.loads(e.body) for e in entries if e.kind == folder_kind]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_another_owner_finds_no_such_data_set(
    service: Service, method: str, path: str, body: object
) -> None:
    theirs = call(service, method, AT + path, body, by="otto")
    nobodys = call(service, method, "/v1/data-sets/nowhere" + path, body, by="otto")
    assert (theirs[0], code(theirs[1])) == (404, "unknown-data-set")
    assert theirs == nobodys


@pytest.mark.parametrize("role", ["ada", "pia", "aud"])
@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_only_owners_decide(
    service: Service, method: str, path: str, body: object, role: str
) -> None:
    status, said = call(service, method, AT + path, body, by=role)
    assert (status, code(said)) == (403, "not-allowed")


def test_a_token_for_another_data_set_decides_nothing(service: Service) -> None:
    asked = {"label": "one", "data_sets": ["guarded"]}
    _, made = call(service, "POST", "/v1/tokens", asked)
    assert service.call("GET", AT + "/grants", token=made["token"])[0] == 404
    assert service.call("GET", "/v1/data-sets/guarded/grants", token=made["token"])[0] == 200


def test_an_owner_sees_who_may_ask_by_being_enrolled(service: Service) -> None:
    """Whoever was granted nothing here may ask all the same, where they are in a card's group."""
    found = call(service, "GET", AT + "/grants")[1]
    assert found["enrolled"] == [{"user": "eva", "group": "researchers"}]


def test_a_grant_lets_a_user_ask_that_data_set_until_it_is_revoked(service: Service) -> None:
    assert ask(service, 0.01)[0] == 404
    status, made = call(service, "PUT", AT + "/grants/ada", {"group": "researchers"})
    assert (status, made["group"]) == (200, "researchers")
    assert ask(service, 0.01)[0] == 200
    assert ask(service, 0.01, "guarded")[0] == 404
    listed = call(service, "GET", AT + "/grants")[1]["grants"]
    assert [(g["user"], g["by"]) for g in listed] == [("ada", "owner")]
    assert call(service, "DELETE", AT + "/grants/ada")[0] == 200
    assert ask(service, 0.01)[0] == 404
    assert call(service, "DELETE", AT + "/grants/ada")[0] == 404
    assert kinds(service, "granted")[-1]["user"] == "ada"
    assert kinds(service, "grant-revoked")[-1] == {
        "data_set": "patients",
        "user": "ada",
        "by": "owner",
    }


def test_nobody_is_granted_a_group_that_the_card_does_not_let_ask(service: Service) -> None:
    status, _ = call(service, "PUT", AT + "/grants/ada", {"group": "everybody"})
    assert status == 400
    assert call(service, "PUT", AT + "/grants/nobody", {"group": "researchers"})[0] == 404


def test_a_frozen_data_set_charges_nothing(service: Service) -> None:
    call(service, "PUT", AT + "/grants/ada", {})
    assert call(service, "POST", AT + "/freeze", {})[1]["frozen"]
    before = call(service, "GET", AT + "/budget")[1]["spent"]
    status, said = ask(service, 0.01)
    assert (status, code(said)) == (409, "data-set-frozen")
    assert call(service, "GET", AT, by="ada")[1]["frozen"]
    assert call(service, "GET", AT + "/budget")[1]["spent"] == before
    assert call(service, "POST", AT + "/thaw", {})[0] == 200
    assert ask(service, 0.01)[0] == 200
    assert kinds(service, "data-set-frozen")[-1]["by"] == "owner"
    assert kinds(service, "data-set-thawed")[-1]["by"] == "owner"


def test_spending_says_who_asked_what_and_no_answer(service: Service) -> None:
    call(service, "PUT", AT + "/grants/ada", {})
    status, answer = ask(service, 0.03125)
    assert status == 200
    status, said = call(service, "GET", AT + "/spending")
    assert status == 200
    last = said["questions"][0]
    assert (last["user"], last["epsilon"]) == ("ada", "1/32")
    assert {a["of"] for a in said["accounts"]} == {"people", "data-set", "user"}
    ada = next(a for a in said["accounts"] if a["name"] == "ada")
    assert ada["cap"]["epsilon"] == 1.0
    value = answer["rows"][0][0]
    assert "rows" not in said
    assert str(value) not in json.dumps([q["says"] for q in said["questions"]])
    assert not {"answer", "values", "rows"} & {key for q in said["questions"] for key in q}


def test_a_cap_is_lowered_at_once_and_holds(service: Service) -> None:
    call(service, "PUT", AT + "/grants/ada", {})
    body = {"of": "user", "name": "ada", "epsilon": 0.9}
    status, said = call(service, "PUT", AT + "/caps", body)
    assert (status, said["cap"]["epsilon"]) == (200, 0.9)
    status, said = ask(service, 0.95)
    assert (status, code(said)) == (422, "budget-exceeded")
    body["epsilon"] = 1.0
    assert call(service, "PUT", AT + "/caps", body)[0] == 400  # a raise needs its reason
    status, said = call(service, "PUT", AT + "/caps", {**body, "why": "a second study"})
    assert (status, said["approval"]) == (200, None)
    assert kinds(service, "cap-lowered")[-1]["account"] == "user:patients/ada"
    assert kinds(service, "cap-raised")[-1]["why"] == "a second study"


def test_a_peoples_cap_always_needs_a_second_person(service: Service) -> None:
    body = {"of": "people", "epsilon": 4, "delta": "1/1000000", "why": "the board has decided"}
    status, said = call(service, "PUT", AT + "/caps", body)
    assert (status, said["cap"]["epsilon"]) == (200, 3.0)
    waits = "/v1/approvals/" + said["approval"]
    for role, expected in (("owner", 403), ("ada", 403), ("aud", 403)):
        assert call(service, "POST", waits, {"approve": True}, by=role)[0] == expected
    assert call(service, "GET", "/v1/approvals", by="ada")[0] == 403
    listed = call(service, "GET", "/v1/approvals", by="pia")[1]["approvals"]
    assert listed[0]["why"] == "the board has decided"
    people = call(service, "GET", AT + "/spending")[1]["accounts"][0]
    assert (people["of"], people["cap"]["epsilon"]) == ("people", 3.0)
    # another owner: it is not there for them, and theirs to decide least of all
    assert call(service, "GET", "/v1/approvals", by="otto")[1]["approvals"] == []
    for said_to in (True, False):
        assert call(service, "POST", waits, {"approve": said_to}, by="otto")[0] == 404
    status, said = call(service, "POST", waits, {"approve": True}, by="pia")
    assert (status, said["state"]) == (200, "approved")
    assert call(service, "POST", waits, {"approve": True}, by="pia")[0] == 404
    people = call(service, "GET", AT + "/spending")[1]["accounts"][0]
    assert people["cap"]["epsilon"] == 4.0
    raised = kinds(service, "cap-raised")[-1]
    assert (raised["by"], raised["approver"]) == ("owner", "pia")


def asked_raise(service: Service, epsilon: int) -> str:
    """Ask as the owner for a raise of the people's cap; return where it is decided."""
    body = {"of": "people", "epsilon": epsilon, "delta": "1/1000000", "why": "more is needed"}
    status, said = call(service, "PUT", AT + "/caps", body)
    assert status == 200
    return f"/v1/approvals/{said['approval']}"


def invited(service: Service, by: str, name: str) -> None:
    """Let a user invite another operator, who comes in."""
    body = {"user": name, "roles": ["operator"]}
    status, made = service.call("POST", "/v1/users", body, token=service.tokens[by])
    assert status == 200, made
    service.tokens[name] = service.taken_up(made["invitation"])


def test_nobody_approves_for_who_let_them_in(service: Service) -> None:
    invited(service, "stooge", "stooge's own")
    waits = asked_raise(service, 5)
    for approver in ("stooge", "stooge's own"):
        status, said = call(service, "POST", waits, {"approve": True}, by=approver)
        assert (status, code(said)) == (403, "not-allowed")
        assert "access or their role" in str(said)
    assert call(service, "POST", waits, {"approve": False}, by="stooge")[0] == 200


def test_who_came_in_after_the_request_does_not_approve_it(service: Service) -> None:
    waits = asked_raise(service, 6)
    invited(service, "pia", "late")
    status, said = call(service, "POST", waits, {"approve": True}, by="late")
    assert (status, code(said)) == (403, "not-allowed")
    assert call(service, "POST", waits, {"approve": True}, by="pia")[1]["state"] == "approved"


def test_an_approver_whom_the_asker_invited_anew_does_not_count(service: Service) -> None:
    invited(service, "pia", "known")
    invited(service, "owner", "known")  # whoever takes that up comes in as them
    waits = asked_raise(service, 7)
    assert call(service, "POST", waits, {"approve": True}, by="known")[0] == 403
    assert call(service, "POST", waits, {"approve": False}, by="known")[0] == 200


def test_a_card_may_ask_for_two_people_for_every_raise(service: Service) -> None:
    path = "/v1/data-sets/guarded/caps"
    body = {"of": "user", "name": "ada", "epsilon": 2, "why": "more"}
    status, said = call(service, "PUT", path, body)
    assert status == 200
    assert said["approval"]
    first, path_of = said["approval"], "/v1/approvals/"
    assert call(service, "POST", path_of + first, {"approve": False}, by="pia")[0] == 200
    _, said = call(service, "PUT", path, body)
    lower = {"of": "user", "name": "ada", "epsilon": 0.5}
    assert call(service, "PUT", path, lower)[1]["cap"]["epsilon"] == 0.5
    # the cap is no longer what the raise was asked from
    _, done = call(service, "POST", path_of + said["approval"], {"approve": True}, by="pia")
    assert done["state"] == "outdated"
    accounts = call(service, "GET", "/v1/data-sets/guarded/spending")[1]["accounts"]
    assert [a["cap"]["epsilon"] for a in accounts if a["name"] == "ada"] == [0.5]


def test_an_unknown_approval_is_not_there(service: Service) -> None:
    status, said = call(service, "POST", "/v1/approvals/nothing", {"approve": True}, by="pia")
    assert (status, code(said)) == (404, "approval-unknown")


def test_a_stopped_question_is_thawed_by_the_owner_of_its_data_set(service: Service) -> None:
    status, _ = call(service, "POST", f"{AT}/frozen/{SHAPE}", {})
    assert status == 404
    assert call(service, "GET", AT + "/frozen")[1] == {"questions": [], "lost": []}
