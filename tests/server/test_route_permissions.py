"""Every route, as everybody, on one's own things and on others'; a new route needs a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest

import sfumato
from sfumato.wire.verb_table import BY_NAME, COMMON, VERBS
from support.served_vault import PASSWORD, Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients
from support.survey_fixtures import design

# Who calls: nobody; the data set's owner; an owner of none; an operator; a researcher who was
# granted, one who was not, one whose token is for another data set; an auditor.
CALLERS: Final = ("nobody", "owner", "olga", "otto", "ada", "eve", "narrow", "vera")
SQL: Final = "SELECT COUNT(*) AS n FROM patients"
ASK: Final = {"sql": SQL, "epsilon": 0.001}


@dataclass(frozen=True)
class Row:
    """What a route answers to each of the callers, in their order."""

    statuses: tuple[int, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    query: str = ""


def same(status: int) -> tuple[int, ...]:
    """Return the answer to everybody who is signed in, and 401 to nobody."""
    return (401, *(len(CALLERS) - 1) * (status,))


# what an owner does with their own data set, which is not there for another
OWNERS: Final = (401, 200, 404, 403, 403, 403, 403, 403)
PATIENTS: Final = {"data_set": "patients"}
REQUEST: Final = {"request": "none"}
THEMSELVES: Final = (401, 404, 404, 404, 404, 404, 403, 404)  # never by a token for programs
SURVEY: Final = {"survey": "the owner's"}
SUM: Final = {"sql": SQL, "epsilon": 0.001, "federation": "none"}
AGREEMENT: Final = {  # this site is not of it
    "name": "clinics",
    "convener": "0" * 64,
    "sites": {"east": "1" * 64, "north": "2" * 64, "west": "3" * 64},
    "floor": 3,
    "colluders": 1,
}
# nobody, owner, olga, otto, ada, eve, narrow, vera
MATRIX: Final[Mapping[str, Row]] = {
    "hello": Row((200,)),  # nobody is asked who they are
    "ready": Row((200,)),
    "sign-in": Row((200,), body={"user": "ada", "password": PASSWORD}),
    "take-up": Row((401,), body={"invitation": "x", "password": PASSWORD}),
    "sign-out": Row(same(200), body={}),
    "me": Row(same(200)),
    "tokens": Row(same(200)),
    "make-token": Row((401, 200, 200, 200, 200, 200, 403, 200), body={"label": "one more"}),
    "revoke-token": Row(same(404), {"token": "another's"}),
    "revoke-tokens": Row((401, 200, 403, 200, 403, 403, 403, 403), {"user": "spare"}),
    "users": Row((401, 200, 403, 200, 403, 403, 403, 403)),
    "invite": Row(
        (401, 200, 403, 200, 403, 403, 403, 403), body={"user": "new", "roles": ["auditor"]}
    ),
    "change-user": Row(
        (401, 200, 403, 200, 403, 403, 403, 403),
        {"user": "spare"},
        {"roles": ["auditor"], "blocked": False},
    ),
    "metrics": Row((401, 200, 403, 200, 403, 403, 403, 403)),
    "data-sets": Row((401, 200, 200, 403, 200, 200, 200, 403)),
    "card": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "budget": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "add-report": Row(OWNERS, PATIENTS),
    "price": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS, ASK),
    "ask": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS, ASK),
    "stream": Row((401, 422, 404, 403, 422, 404, 404, 403), {**PATIENTS, "stream": "none"}),
    "open-stream": Row(
        (401, 422, 404, 403, 403, 403, 403, 403),
        PATIENTS,
        {
            "stream": "x",
            "start": "2026-01-01",
            "periods": 3,
            "rows": 1,
            "epsilon": 0.001,
            "sql": "SELECT COUNT(*) FROM patients",
        },
    ),
    "close-stream": Row(
        (401, 422, 404, 403, 403, 403, 403, 403),
        {**PATIENTS, "stream": "none"},
        {"until": "2026-01-01"},
    ),
    "twin": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS, {"rows": 5}),
    "dp-twin": Row(
        (401, 200, 404, 403, 200, 404, 404, 403),
        PATIENTS,
        {"epsilon": 0.001, "method": "independent", "rows": 5},
    ),
    "dp-twin-price": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS, {"epsilon": 0.001}),
    "pipelines": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "submit-pipeline": Row(
        (401, 200, 404, 403, 200, 404, 404, 403),
        PATIENTS,
        {
            "source": "def f(rows): return 1",
            "name": "f",
            "outputs": [{"name": "n", "lower": 0, "upper": 9}],
        },
    ),
    "decide-pipeline": Row(
        (401, 404, 404, 403, 403, 403, 403, 403),
        {**PATIENTS, "pipeline": "none"},
        {"state": "declined"},
    ),
    "price-pipeline": Row(
        (401, 404, 404, 403, 404, 404, 404, 403), {**PATIENTS, "pipeline": "none"}, {"epsilon": 0.1}
    ),
    "plan-pipeline": Row(
        (401, 404, 404, 403, 404, 404, 404, 403), {**PATIENTS, "pipeline": "none"}, {"epsilon": 0.1}
    ),
    "run-pipeline": Row(
        (401, 404, 404, 403, 404, 404, 404, 403), {**PATIENTS, "pipeline": "none"}, {"epsilon": 0.1}
    ),
    "pipeline": Row((401, 404, 404, 403, 404, 404, 404, 403), {**PATIENTS, "pipeline": "none"}),
    "begin-pipeline-run": Row(
        (401, 404, 404, 403, 404, 404, 404, 403), {**PATIENTS, "pipeline": "none"}, {"epsilon": 0.1}
    ),
    "pipeline-runs": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "pipeline-answer": Row((401, 404, 404, 403, 404, 404, 404, 403), {**PATIENTS, "op": "none"}),
    "request-image": Row(  # this vault allows no registry
        (401, 422, 422, 403, 422, 422, 422, 403), body={"image": "example.org/a@sha256:" + 64 * "0"}
    ),
    "image-requests": Row(same(200)),
    "decide-image-request": Row(
        (401, 400, 403, 400, 403, 403, 403, 403), {"request": "none"}, {"state": "declined"}
    ),
    "pipeline-rules": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "set-pipeline-rule": Row((401, 422, 404, 403, 403, 403, 403, 403), PATIENTS, {"columns": []}),
    "end-pipeline-rule": Row(
        (401, 404, 404, 403, 403, 403, 403, 403), {**PATIENTS, "rule": "none"}
    ),
    "airlock": Row((401, 200, 404, 404, 200, 404, 404, 404), PATIENTS),
    "submit-airlock": Row(
        (401, 422, 404, 403, 422, 404, 404, 403), PATIENTS, {"source": "1", "files": []}
    ),
    "show-airlock": Row(same(404), REQUEST),
    "fetch-airlock": Row(same(404), REQUEST),
    "run-airlock": Row(THEMSELVES, REQUEST, {}),
    "decline-airlock": Row(THEMSELVES, REQUEST, {}),
    "withdraw-airlock": Row(same(404), REQUEST, {}),
    "vote-airlock": Row(THEMSELVES, REQUEST, {"says": "release", "seal": "x", "draft": 1}),
    "trim-airlock": Row(THEMSELVES, REQUEST, {"path": "x"}),
    "replace-airlock": Row(THEMSELVES, REQUEST, {"path": "x", "base64": "eA=="}),
    "release-airlock": Row(THEMSELVES, REQUEST, {}),
    "site-key": Row(same(200)),
    "lessons": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "federations": Row((401, 200, 404, 403, 200, 404, 404, 403), PATIENTS),
    "join-federation": Row((401, 422, 404, 403, 403, 403, 403, 403), PATIENTS, AGREEMENT),
    "leave-federation": Row(
        (401, 404, 404, 403, 403, 403, 403, 403), {**PATIENTS, "federation": "none"}, {}
    ),
    "price-sum": Row((401, 404, 404, 403, 404, 404, 404, 403), PATIENTS, SUM),
    "join-sum": Row((401, 404, 404, 403, 404, 404, 404, 403), PATIENTS, {**SUM, "message": ""}),
    "go-on-with-sum": Row(
        (401, 422, 404, 403, 422, 404, 404, 403),
        {**PATIENTS, "round": "none", "stage": "share"},
        {"message": ""},
    ),
    "show-sum": Row(
        (401, 404, 404, 403, 404, 404, 404, 403), PATIENTS, {**SUM, "total": [1], "sites": 3}
    ),
    "tensor-call": Row(  # nobody has made it a site
        (401, 422, 422, 403, 422, 422, 422, 403), body={"session": "s", "number": 1, "message": ""}
    ),
    "tensor-table": Row(
        (401, 422, 404, 403, 422, 404, 404, 403), PATIENTS, {"session": "s", "number": 1}
    ),
    "grants": Row(OWNERS, PATIENTS),
    "grant": Row(OWNERS, {**PATIENTS, "user": "spare"}, {"group": "researchers"}),
    "revoke-grant": Row(OWNERS, {**PATIENTS, "user": "spare"}),
    "spending": Row(OWNERS, PATIENTS),
    "set-cap": Row(OWNERS, PATIENTS, {"of": "user", "name": "spare", "epsilon": 0.5}),
    "approvals": Row((401, 200, 200, 200, 403, 403, 403, 403)),
    "decide": Row(
        (401, 404, 404, 404, 403, 403, 403, 403), {"approval": "none"}, {"approve": True}
    ),
    "thaw": Row(OWNERS, PATIENTS, {}),
    "freeze": Row(OWNERS, {"data_set": "spare"}, {}),
    "frozen-questions": Row(OWNERS, PATIENTS),
    "thaw-question": Row(
        (401, 404, 404, 403, 403, 403, 403, 403), {**PATIENTS, "shape": "none"}, {}
    ),
    "begin": Row((401, 200, 404, 403, 200, 404, 404, 403), body={**PATIENTS, **ASK}),
    "jobs": Row((401, 200, 200, 403, 200, 200, 200, 403)),
    "job": Row((401, 404, 404, 403, 404, 404, 404, 403), {"job": "none"}),
    "cancel-job": Row((401, 404, 404, 403, 404, 404, 404, 403), {"job": "none"}),
    "events": Row((401, 404, 404, 403, 404, 404, 404, 403), {"job": "none"}),
    "upload": Row((401, 400, 400, 403, 403, 403, 403, 403), body={}),
    "begin-folder": Row(
        (401, 200, 200, 403, 403, 403, 403, 403),
        body={"name": "a.zip", "kind": "zip", "bytes": 1, "parts": ["0" * 64]},
    ),
    "finish-folder": Row((401, 404, 404, 403, 403, 403, 403, 403), {"upload": "none"}, {}),
    "proposed": Row((401, 404, 404, 403, 403, 403, 403, 403), {"upload": "none"}),
    "add": Row(
        (401, 404, 404, 403, 403, 403, 403, 403),
        body={"name": "more", "upload": "none", "card": {"budget": {"epsilon": 1}}},
    ),
    "append": Row(
        (401, 404, 404, 403, 403, 403, 403, 403), PATIENTS, {"version": "9", "upload": "none"}
    ),
    "forget-person": Row(
        (401, 403, 404, 403, 403, 403, 403, 403), PATIENTS, {"version": "9", "person": "nobody"}
    ),
    "connections": Row((401, 200, 200, 403, 403, 403, 403, 403)),
    "proposed-table": Row(
        (401, 404, 404, 403, 403, 403, 403, 403), {"connection": "none"}, query="?table=x"
    ),
    "amend": Row((401, 422, 404, 403, 403, 403, 403, 403), PATIENTS, {"card": {"unit": "other"}}),
    "surveys": Row((401, 200, 200, 403, 403, 403, 403, 403)),
    "preview-survey": Row((401, 200, 200, 403, 403, 403, 403, 403), body={"survey": design()}),
    "publish-survey": Row(
        (401, 422, 422, 403, 403, 403, 403, 403), body={"survey": design(epsilon=0)}
    ),
    "invite-to-survey": Row(OWNERS, SURVEY, {"count": 1}),
    "survey": Row((200,), SURVEY),  # whoever has the link
    "survey-token": Row((404,), SURVEY, {"invitation": "A" * 16, "blinded": "A" * 340 + "Ag"}),
    "survey-report": Row(
        (422,), SURVEY, {"token": "A" * 43, "signature": "A" * 342, "said": "0.0.0 1.0.0"}
    ),
    "survey-sheet": Row((422,), SURVEY, {"invitation": "A" * 16, "said": "0.0.0 1.0.0"}),
    "survey-estimates": Row((200,), SURVEY),
    "survey-reports": Row((200,), SURVEY),
    "close-survey": Row((401, 404, 404, 403, 403, 403, 403, 403), {"survey": "a" * 32}, {}),
    "history": Row((401, 200, 200, 403, 200, 200, 200, 403)),
    "answer": Row((401, 200, 404, 403, 404, 404, 404, 403), {"op": "owners"}),
    "entries": Row((401, 403, 403, 403, 403, 403, 403, 200)),
    "verify-ledger": Row((401, 403, 403, 403, 403, 403, 403, 200)),
    "present-receipt": Row(
        (401, 404, 404, 403, 404, 404, 404, 403), body={"receipt": {"signed": {}, "signature": "x"}}
    ),
    "releases": Row((401, 403, 403, 403, 403, 403, 403, 200)),
    "sheet": Row((401, 403, 403, 403, 403, 403, 403, 404), {"entry": "1"}),
    "policies": Row((401, 403, 403, 403, 403, 403, 403, 200)),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with one of each caller, and an answer of the owner's."""
    folder = tmp_path_factory.mktemp("served")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        source = write_patients(folder / "patients.csv")
        opened.add("patients", source, card(PATIENTS_CARD))
        opened.enrol("ada", "researchers")
        text = PATIENTS_CARD.replace("city-hospital-patients", "others")
        opened.add("spare", source, card(text), different_people="the matrix")
        opened["patients"].ask("SELECT COUNT(*) FROM patients", epsilon=0.01, op="owners")
    with served(vault) as running:
        running.owner()
        for name, role in (
            ("olga", "owner"), ("otto", "operator"), ("ada", "researcher"), ("eve", "researcher"),
            ("vera", "auditor"), ("spare", "auditor"),
        ):  # fmt: skip
            running.user(name, role)
        body = {"label": "for another", "data_sets": ["other"]}
        made = running.call("POST", "/v1/tokens", body, token=running.tokens["ada"])[1]
        running.tokens["narrow"] = made["token"]
        made = running.call("POST", "/v1/surveys", {"survey": design()}, token=running.owner())
        running.tokens["survey"] = made[1]["survey"]
        yield running


def _answered(service: Service, verb: str, row: Row, caller: str) -> tuple[int, Any]:
    route = BY_NAME[verb]
    token = service.tokens.get(caller)
    if token is not None and verb == "sign-out":  # which would end what the others need
        maker = service.tokens["ada"] if caller == "narrow" else token
        token = service.call("POST", "/v1/tokens", {"label": "short"}, token=maker)[1]["token"]
    places = {
        **row.places,
        **({"survey": service.tokens["survey"]} if row.places is SURVEY else {}),
    }
    path = route.path.format(**places) + row.query
    return service.call(route.method, path, row.body, token=token)


def test_every_route_has_a_row() -> None:
    assert {route.name for route in VERBS} == set(MATRIX)
    for verb, row in MATRIX.items():
        assert len(row.statuses) == (1 if BY_NAME[verb].action is None else len(CALLERS)), verb


@pytest.mark.parametrize(
    ("verb", "caller"),
    [(v, c) for v, row in sorted(MATRIX.items()) for c in CALLERS[: len(row.statuses)]],
)
def test_a_route_answers_as_its_row_says(service: Service, verb: str, caller: str) -> None:
    row = MATRIX[verb]
    status, said = _answered(service, verb, row, caller)
    assert status == row.statuses[CALLERS.index(caller)]
    if status != 200:
        assert said["refused"]["code"] in {*BY_NAME[verb].refusals, *COMMON}
    elif BY_NAME[verb].carries == "json":
        msgspec.convert(said, BY_NAME[verb].reply)  # the reply has the fields that are documented


def test_what_is_anothers_reads_like_what_is_not_there(service: Service) -> None:
    token = service.tokens["eve"]
    anothers = service.call("GET", "/v1/data-sets/patients", token=token)[1]
    nowhere = service.call("GET", "/v1/data-sets/nowhere", token=token)[1]
    assert str(anothers).replace("patients", "nowhere") == str(nowhere)
