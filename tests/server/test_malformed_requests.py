"""Whatever is sent to an owner's verbs and to jobs is answered or refused; it is never a fault."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from pathlib import Path

import pytest

import sfumato
from server.test_route_permissions import MATRIX
from sfumato import Refused
from sfumato.app.vault import OpenVault
from sfumato.vault.users import Caller
from sfumato.wire.verb_table import BY_NAME, COMMON, VERBS
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

ODD: tuple[object, ...] = (
    "", "\ud800", "x" * 5000, "a/b", "a\nb", 0, -1, 10**40, -(10**40), 1.5, Decimal("1e-30"),
    True, [], ["\ud800"], {}, {"x": None}, {"epsilon": "1/0"}, {"user": {"epsilon": "1/3"}}, None,
)  # fmt: skip
KEYS = {
    "grant": ("user", "group"),
    "revoke-grant": ("user",),
    "set-cap": ("of", "name", "epsilon", "delta", "why"),
    "decide": ("approval", "approve"),
    "thaw-question": ("shape",),
    "begin": ("data_set", "sql", "epsilon", "op", "split"),
    "job": ("job",),
    "cancel-job": ("job",),
    "events": ("job",),
    "upload": ("name", "folder"),
    "begin-folder": ("name", "kind", "bytes", "parts"),
    "finish-folder": ("upload",),
    "proposed": ("upload",),
    "add": (
        "different_people",
        "tables",
        "op",
        "name",
        "card",
        "upload",
        "connection",
        "table",
    ),
    "proposed-table": ("connection", "table"),
    "amend": ("card", "instead_of"),
    "history": ("before", "limit"),
    "entries": ("after", "limit"),
    "releases": ("before", "limit"),
}
GOOD: dict[str, object] = {
    "data_set": "patients",
    "user": "owner",
    "group": "researchers",
    "of": "user",
    "name": "other",
    "epsilon": 0.5,
    "sql": "SELECT COUNT(*) AS n FROM patients",
    "approve": True,
    "upload": "0" * 24,
    "card": {"version": "9"},
}
CARD_KEYS = ("version", "ask", "caps", "budget", "size", "columns", "nulls", "delta_per_request")


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    """Return a vault of one data set."""
    folder = tmp_path_factory.mktemp("malformed")
    with sfumato.open(make_vault(folder)) as opened:
        rows = write_patients(folder / "rows.csv")
        opened.add("patients", rows, card(PATIENTS_CARD))
        owner = Caller("owner", frozenset({"own"}))
        incoming = opened.house.desk.uploads.begin(owner, "rows.csv", None)
        incoming.take(rows.read_bytes())
        GOOD["upload"] = incoming.kept().id
        incoming.end(is_kept=True)
        yield opened


def body_of(verb: str) -> dict[str, object]:
    known = {*KEYS[verb], *BY_NAME[verb].places}
    made = {key: value for key, value in GOOD.items() if key in known}
    return {**made, "card": card(PATIENTS_CARD)} if verb == "add" else made


def code_of(vault: OpenVault, verb: str, body: dict[str, object]) -> str:
    try:
        vault.call(verb, body)
    except Refused as refused:
        return refused.code
    return ""


@pytest.mark.parametrize("verb", KEYS)
def test_odd_values_are_refused_and_the_refusals_described(vault: OpenVault, verb: str) -> None:
    route = BY_NAME[verb]
    for key, odd in product((*KEYS[verb], *route.places), ODD):
        code = code_of(vault, verb, {**body_of(verb), key: odd})
        assert code in {"", *route.refusals, *COMMON} - {"fault"}, (key, odd)


def test_odd_cards_are_refused(vault: OpenVault) -> None:
    for place, (key, odd) in enumerate(product(CARD_KEYS, ODD)):
        changes: dict[str, object] = {"version": f"v{place}", key: odd}
        body: dict[str, object] = {"data_set": "patients", "card": changes}
        assert code_of(vault, "amend", body) != "fault"
    assert vault.house.ledger.verified()["ok"]


def test_whatever_is_refused_without_an_anchor_is_described(tmp_path: Path) -> None:
    """Every act of the record can be refused so; the document of the API says each code."""
    said: set[str] = set()
    with sfumato.open(make_vault(tmp_path)) as opened:
        opened.add("patients", write_patients(tmp_path / "rows.csv"), card(PATIENTS_CARD))
        opened.enrol("spare", "researchers")
        (tmp_path / "anchors" / "anchor").unlink()
        for route in VERBS:
            row = MATRIX[route.name]
            code = code_of(opened, route.name, {**row.places, **(row.body or {})})
            assert code in {"", *route.refusals, *COMMON}, route.name
            said |= {route.name} if code == "anchor-missing" else set()
    assert {"ask", "make-token", "invite", "set-cap", "dp-twin"} <= said


def test_half_a_letter_signs_nobody_in(vault: OpenVault) -> None:
    with pytest.raises(Refused) as refused:
        vault.house.desk.done("sign-in", None, {"user": "\ud800", "password": "x" * 20}, "here")
    assert refused.value.code == "not-signed-in"
