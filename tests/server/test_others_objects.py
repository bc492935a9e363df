"""Whatever somebody has made is, to everybody else, as if it were not there; each by its real id.

The matrix asks for things that nobody has made (`test_route_permissions.py`); here they are there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

import sfumato
from sfumato.wire.verb_table import BY_NAME
from support.served_vault import Service, served
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients
from support.survey_fixtures import design

SQL: Final = "SELECT COUNT(*) AS n FROM patients"
AT: Final = "/v1/data-sets/patients"
TWO: Final = PATIENTS_CARD.replace("[caps]", '[caps]\nraise = "two people"')
TEXT: Final = TWO + '[airlock]\nreviewers = ["rita", "rolf"]\n'
# Who calls: one who may ask the same data set; an owner of none; somebody's own token for another
# data set; an operator and an auditor where neither has a part in it.
EVE, OLGA, NARROW, OTTO, VERA = "eve", "olga", "narrow", "otto", "vera"


@dataclass(frozen=True)
class Thing:
    """One verb on one thing of somebody's."""

    verb: str
    whose: str  # they are answered otherwise than if it were not there
    place: str  # the key of its id
    callers: tuple[str, ...]
    body: Mapping[str, object] | None = None
    more: Mapping[str, str] = field(default_factory=dict)


PATIENTS: Final = {"data_set": "patients"}
STRANGERS: Final = (EVE, OLGA, NARROW, OTTO, VERA)
JUDGES: Final = ("ada", EVE, OLGA, NARROW, OTTO, VERA)
THINGS: Final = (
    Thing("job", "ada", "job", STRANGERS),
    Thing("events", "ada", "job", STRANGERS),
    Thing("cancel-job", "ada", "job", STRANGERS),
    Thing("answer", "ada", "op", STRANGERS),
    Thing("revoke-token", "ada", "token", (EVE, OLGA, OTTO, VERA)),
    Thing("proposed", "owner", "upload", ("ada", *STRANGERS)),
    Thing("price-pipeline", "ada", "pipeline", STRANGERS, {"epsilon": 0.1}, PATIENTS),
    Thing("pipeline", "ada", "pipeline", STRANGERS, None, PATIENTS),
    Thing("begin-pipeline-run", "ada", "pipeline", STRANGERS, {"epsilon": 0.1}, PATIENTS),
    Thing("run-pipeline", "ada", "pipeline", STRANGERS, {"epsilon": 0.1}, PATIENTS),
    Thing("show-airlock", "ada", "request", STRANGERS),
    Thing("fetch-airlock", "ada", "request", STRANGERS),
    Thing("vote-airlock", "rita", "request", STRANGERS, {"says": "no", "seal": "x", "draft": 1}),
    Thing("trim-airlock", "rita", "request", STRANGERS, {"path": "x"}),
    Thing("replace-airlock", "rita", "request", STRANGERS, {"path": "x", "base64": "eA=="}),
    Thing("release-airlock", "rita", "request", STRANGERS, {}),
    Thing("run-airlock", "rita", "request", STRANGERS, {}),
    Thing("decline-airlock", "rita", "request", STRANGERS, {}),
    Thing("withdraw-airlock", "rita", "request", STRANGERS, {}),
    Thing("decide", "owner", "approval", ("ada", EVE, OLGA, NARROW, VERA), {"approve": True}),
    Thing("invite-to-survey", "owner", "survey", ("ada", *STRANGERS), {"count": 1}),
    Thing("close-survey", "owner", "survey", ("ada", *STRANGERS), {}),
    Thing("end-pipeline-rule", "owner", "rule", ("ada", *STRANGERS), None, PATIENTS),
)
NOWHERE: Final[Mapping[str, str]] = {  # an id of the same form, of nothing
    "job": "0" * 24, "op": "op-9-of-ada", "token": "0" * 16, "upload": "0" * 24,
    "pipeline": "0" * 64, "request": "0" * 16, "approval": "0" * 16, "survey": "0" * 32,
    "rule": "0" * 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with everybody, in whose tokens the things' ids are too."""
    folder = tmp_path_factory.mktemp("served")
    vault = make_vault(folder)
    with sfumato.open(vault) as opened:
        opened.add("patients", write_patients(folder / "patients.csv"), card(TEXT))
        for name in ("ada", "eve"):
            opened.enrol(name, "researchers")
    with served(vault) as running:
        running.owner()
        for name, role in (
            ("ada", "researcher"), ("eve", "researcher"), ("olga", "owner"), ("otto", "operator"),
            ("vera", "auditor"), ("rita", "auditor"),
        ):  # fmt: skip
            running.user(name, role)
        body = {"label": "for another", "data_sets": ["other"]}
        running.tokens[NARROW] = made(running, "ada", "POST", "/v1/tokens", body)["token"]
        running.tokens |= {f"id of {name}": text for name, text in _things(running).items()}
        yield running


def made(service: Service, who: str, method: str, path: str, body: object) -> dict[str, Any]:
    status, found = service.call(method, path, body, token=service.tokens[who])
    assert status == 200, found
    return dict(found)


def _things(service: Service) -> dict[str, str]:
    """Return the id of one thing of each kind, which somebody has made just now."""
    asked = {"data_set": "patients", "sql": SQL, "epsilon": 0.01, "op": "of a job"}
    made(service, "ada", "POST", f"{AT}/ask", {"sql": SQL, "epsilon": 0.02, "op": "op-1-of-ada"})
    program = {
        "source": "def f(rows): return 1",
        "name": "f",
        "outputs": [{"name": "n", "lower": 0, "upper": 9}],
    }
    drafted = {"source": "print()", "files": [{"path": "t.csv"}], "why": "to see"}
    raised = {"of": "user", "name": "eve", "epsilon": 2, "why": "she needs it"}
    rule = {
        "users": ["eve"], "columns": ["age"], "outputs": [{"name": "n", "lower": 0, "upper": 9}],
        "most_epsilon": 0.1, "most_total": 1,
    }  # fmt: skip
    return {
        "job": made(service, "ada", "POST", "/v1/jobs", asked)["job"],
        "op": "op-1-of-ada",
        "token": made(service, "ada", "POST", "/v1/tokens", {"label": "hers"})["id"],
        "upload": made(service, "owner", "PUT", "/v1/uploads?name=a.csv", b"a,b\n1,2\n")["upload"],
        "pipeline": made(service, "ada", "POST", f"{AT}/pipelines", program)["digest"],
        "request": made(service, "ada", "POST", f"{AT}/airlock", drafted)["request"],
        "approval": made(service, "owner", "PUT", f"{AT}/caps", raised)["approval"],
        "survey": made(service, "owner", "POST", "/v1/surveys", {"survey": design()})["survey"],
        "rule": made(service, "owner", "POST", f"{AT}/pipeline-rules", rule)["rule"],
    }


def _said(service: Service, thing: Thing, who: str, name: str) -> tuple[int, str]:
    """Return what they are answered, without the id that they gave."""
    route = BY_NAME[thing.verb]
    path = route.path.format(**{**thing.more, thing.place: name})
    status, found = service.call(route.method, path, thing.body, token=service.tokens[who])
    return status, json.dumps(found).replace(name, "ID")


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.verb)
def test_what_is_somebodys_is_not_there_for_others(service: Service, thing: Thing) -> None:
    real, nowhere = service.tokens[f"id of {thing.place}"], NOWHERE[thing.place]
    for caller in thing.callers:
        seen = _said(service, thing, caller, real)
        assert seen[0] in (403, 404), (caller, seen)
        assert seen == _said(service, thing, caller, nowhere), caller


@pytest.mark.parametrize("place", sorted(NOWHERE))
def test_whose_it_is_finds_it_there(service: Service, place: str) -> None:
    """So the ids are real ones, and what others are answered is not what everybody is."""
    thing = next(one for one in THINGS if one.place == place)
    real = service.tokens[f"id of {place}"]
    own, nothing = (_said(service, thing, thing.whose, name) for name in (real, NOWHERE[place]))
    assert own != nothing
