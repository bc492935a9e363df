"""What many ask at once is charged and written in one go, and is what each would be told alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.queries.schema import Ask
from sfumato.query.measure import Cells, Measure
from sfumato.release.ledger_guard import Ledger
from sfumato.release.release_order import PaidOrder
from sfumato.server.dispatch import Dispatcher
from sfumato.server.ipc.call_metrics import CallMetrics, to_nowhere
from sfumato.server.ipc.door_server import DoorEnd
from sfumato.server.ipc.query_batches import begun, ended
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.key_files import ReceiptKey
from sfumato.vault.ledger_entries import (
    Account,
    AnchorMark,
    AnchorSums,
    AnswerToStore,
    Charged,
    LedgerHead,
)
from sfumato.vault.sealed import Sealed
from sfumato.vault.users import Caller
from sfumato.wire.query_json import Json
from sfumato.wire.verb import read_request
from support import ledger_stores
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

SQL = "SELECT SUM(age) AS years FROM patients WHERE age > 30"
USERS = ("ada", "bob", "eve")
OWNER = Caller("owner", frozenset({"read", "ask", "own", "operate", "audit"}))
PASSWORD = "soft edges, no outline"  # noqa: S105  # of nobody but these tests
BODY = {"data_set": "patients", "sql": SQL, "epsilon": Decimal("0.1")}


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    """Return a vault of patients that three people may ask."""
    folder = make_vault(tmp_path)
    with sfumato.open(folder) as opened:
        opened.add("patients", write_patients(tmp_path / "p.csv"), card(PATIENTS_CARD))
        for name in USERS:
            opened.enrol(name, "researchers")
        yield opened
        assert opened.house.ledger.verified()["ok"]


@pytest.fixture
def tokens(vault: OpenVault) -> dict[str, str]:
    """Return a token of each of them."""
    access = vault.house.desk.access
    found = {}
    for name in USERS:
        invited = access.invite(OWNER, name, ["researcher"])
        found[name] = str(access.take_up(str(invited["invitation"]), PASSWORD, name)["token"])
    return found


def alone(vault: OpenVault, token: str, **changes: object) -> dict[str, object]:
    desk = vault.house.desk
    return desk.done("ask", desk.admitted("ask", token), {**BODY, **changes})


def asked_again(desk: Dispatcher, several: Sequence[tuple[str, Json]]) -> list[Any]:
    """Return what each is told, where nobody's rows are read."""
    told = begun(desk, several)
    assert not [one for one in told if isinstance(one, PaidOrder | Exception)]
    return told


def length(vault: OpenVault) -> int:
    return vault.house.ledger.store.head().seq


def spent(vault: OpenVault, user: str) -> object:
    account = vault.house.ledger.store.account(f"user:patients/{user}")
    return None if account is None else account.spent


def test_each_is_told_what_they_would_have_been_told_alone(
    vault: OpenVault, tokens: dict[str, str]
) -> None:
    first = alone(vault, tokens["ada"])
    told = asked_again(vault.house.desk, [(tokens[name], BODY) for name in ("bob", "eve", "bob")])
    bob, eve, again = told
    assert bob is not None
    assert eve is not None
    assert again is not None
    same = {key: value for key, value in first.items() if key != "receipt"}
    assert [{k: v for k, v in one.items() if k != "receipt"} for one in (bob, eve, again)] == [
        same
    ] * 3
    receipts = [dict(one["receipt"]) for one in (bob, eve, again)]
    assert [one["free"] for one in receipts] == [False, False, True]
    assert spent(vault, "bob") == spent(vault, "eve") == spent(vault, "ada")
    assert receipts[2]["left"] == alone(vault, tokens["bob"])["receipt"]["left"]  # type: ignore[index]
    for one in receipts:
        assert vault.house.ledger.has_receipt(one)


def test_what_was_not_answered_yet_is_read(vault: OpenVault, tokens: dict[str, str]) -> None:
    desk = vault.house.desk
    fresh = {**BODY, "fresh": True}
    several = [(tokens["ada"], BODY), (tokens["ada"], fresh), (tokens["ada"], BODY)]
    paid = begun(desk, several)
    assert [type(one) for one in paid] == [
        PaidOrder,
        PaidOrder,
        type(None),
    ]  # the third is being read
    assert vault.house.ledger.store.head().seq > 0
    before = spent(vault, "ada")
    read = [(one, desk.queries.read(one)) for one in paid if isinstance(one, PaidOrder)]
    first, other = ended(desk, read)
    assert isinstance(first, dict)
    assert isinstance(other, dict)
    assert spent(vault, "ada") == before  # paid before a row was read, and once
    assert first["rows"] == asked_again(desk, [(tokens["bob"], BODY)])[0]["rows"]
    assert first["rows"] == alone(vault, tokens["ada"])["rows"]
    assert not dict(first["receipt"])["free"]  # type: ignore[call-overload]
    assert vault.house.ledger.has_receipt(dict(other["receipt"]))  # type: ignore[call-overload]


class Watched:
    """An engine that notes what its asker had paid when rows were looked at."""

    def __init__(self, vault: OpenVault) -> None:
        self.vault = vault
        self.paid: list[object] = []

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        self.paid.append(spent(self.vault, "ada"))
        return self.vault.house.desk.queries.door.engine.measure(table, measure)


def test_no_row_is_read_before_all_have_paid(vault: OpenVault, tokens: dict[str, str]) -> None:
    queries, engine = vault.house.desk.queries, Watched(vault)
    door = replace(queries.door, engine=engine)  # type: ignore[arg-type]  # what it is asked here
    desk = replace(vault.house.desk, queries=replace(queries, door=door))
    (paid,) = begun(desk, [(tokens["ada"], BODY)])
    assert engine.paid == []
    assert isinstance(paid, PaidOrder)
    desk.queries.read(paid)
    assert engine.paid == [spent(vault, "ada")]
    assert engine.paid != [None]


def test_a_question_whose_rows_cannot_be_read_is_nobody_elses(
    vault: OpenVault, tokens: dict[str, str]
) -> None:
    desk = vault.house.desk
    other = {**BODY, "sql": "SELECT COUNT(*) AS n FROM patients"}
    one, two = begun(desk, [(tokens["ada"], BODY), (tokens["bob"], other)])
    assert isinstance(one, PaidOrder)
    assert isinstance(two, PaidOrder)
    gone = replace(one, order=replace(one.order, table="no_such_table"))
    with pytest.raises(Refused) as refused:
        desk.queries.read(gone)
    assert refused.value.code == "question-failed"
    assert isinstance(ended(desk, [(two, desk.queries.read(two))])[0], dict)
    told = ended(desk, [(one, desk.queries.read(one))])  # it has failed for good, and stays paid
    assert isinstance(told[0], Exception)
    assert spent(vault, "ada") is not None


def test_each_is_looked_at_by_themselves(vault: OpenVault, tokens: dict[str, str]) -> None:
    desk = vault.house.desk
    alone(vault, tokens["ada"])
    poor = vault.house.ledger.store.account("user:patients/ada")
    assert poor is not None
    vault.house.ledger.store.open_account("user:patients/eve", type(poor.cap)(1, 0, 0, 0))
    elsewhere = {**BODY, "data_set": "nobody's"}
    told = asked_again(
        desk,
        [
            (tokens["bob"], BODY),
            (tokens["eve"], BODY),  # cannot pay
            ("no token", BODY),
            (tokens["bob"], elsewhere),
            (tokens["bob"], {**BODY, "sql": "SELECT"}),
            (tokens["ada"], BODY),
        ],
    )
    assert [one is not None for one in told] == [True, False, False, False, False, True]
    with pytest.raises(Refused) as refused:
        alone(vault, tokens["eve"])
    assert refused.value.code == "budget-exceeded"


def test_an_answer_that_cannot_be_shown_is_its_askers_alone(
    vault: OpenVault, tokens: dict[str, str]
) -> None:
    desk, ledger = vault.house.desk, vault.house.ledger
    (paid,) = begun(desk, [(tokens["ada"], BODY)])
    assert isinstance(paid, PaidOrder)
    ledger.settle("ada", paid.charge.op, "{}")  # damaged, or of a release that we read no more
    end = DoorEnd(desk, quantum_s=0, tally=CallMetrics(to_nowhere))
    fresh = {**BODY, "fresh": True}  # without an operation id: asked twice, it pays twice
    other = {**BODY, "sql": "SELECT COUNT(*) AS n FROM patients"}

    async def began() -> list[Any]:
        asked = ((tokens["bob"], BODY), (tokens["eve"], fresh), (tokens["ada"], other))
        return await asyncio.gather(*map(end._begins.done, asked), return_exceptions=True)

    async def over(*read: tuple[PaidOrder, str]) -> list[Any]:
        return await asyncio.gather(*map(end._ends.done, read), return_exceptions=True)

    before = ledger.store.accounts()
    bob, eve, ada = asyncio.run(began())
    assert isinstance(bob, KeyError)
    assert [one.outcome.paid_before for one in (eve, ada)] == [False, False]
    kinds = [entry.kind for entry in ledger.store.entries(paid.outcome.seq)]
    assert kinds.count("charged") == 2
    assert len(before) + 2 == len(ledger.store.accounts())
    told = asyncio.run(over((paid, "{}"), (eve, desk.queries.read(eve))))
    assert isinstance(told[0], KeyError)
    assert not json.loads(told[1])["receipt"]["free"]


def test_nobody_waits_for_a_long_answer_to_another(
    vault: OpenVault, tokens: dict[str, str]
) -> None:
    """Neither for its noise, nor for its telling: whoever asks it again and again pays nothing."""
    of = "SELECT FLOOR(salary / {0}) AS k, zip, COUNT(*) AS n, SUM(age) AS s FROM patients"
    by = " GROUP BY FLOOR(salary / {0}), zip"
    short, long = ({**BODY, "sql": (of + by).format(width)} for width in (1000, 500))
    private = "SELECT age, COUNT(*) AS n FROM patients GROUP BY age"
    keys = {**BODY, "sql": private, "delta": Decimal("1e-8")}  # nobody knows how many before
    asked = [(tokens["bob"], body) for body in (short, long, keys)]
    assert [type(one) for one in begun(vault.house.desk, asked)] == [
        PaidOrder,
        type(None),
        type(None),
    ]
    for body in (long, keys):
        alone(vault, tokens["bob"], **body)
    assert asked_again(vault.house.desk, asked[1:]) == [None, None]


def test_a_freeze_and_a_lost_right_hold_at_once(vault: OpenVault, tokens: dict[str, str]) -> None:
    desk = vault.house.desk
    alone(vault, tokens["ada"])
    desk.policy.freeze(OWNER, "patients")
    assert asked_again(desk, [(tokens["bob"], BODY)]) == [None]
    desk.policy.thaw(OWNER, "patients")
    desk.access.change(OWNER, "bob", ["researcher"], True)
    before = length(vault)
    assert asked_again(desk, [(tokens["bob"], BODY)]) == [None]
    assert length(vault) == before
    assert asked_again(desk, [(tokens["eve"], BODY)]) != [None]


@pytest.mark.parametrize("act", ["freeze", "revoke"])
@pytest.mark.parametrize("way", ["charge", "charge_all"])
def test_what_an_owner_does_while_a_question_is_planned_holds(
    vault: OpenVault,
    tokens: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    act: str,
) -> None:
    """It was let in and priced; then it is refused all the same, and has paid nothing."""
    desk, policy = vault.house.desk, vault.house.desk.policy
    desk.access.invite(OWNER, "zoe", ["researcher"])
    policy.grant(OWNER, "patients", "zoe", "researchers")
    zoe = Caller("zoe", frozenset({"read", "ask"}))
    plain, asked = getattr(Ledger, way), read_request(Ask, BODY)

    def late(ledger: Ledger, charges: Any) -> object:  # Any: one or several
        monkeypatch.setattr(Ledger, way, plain)
        if act == "freeze":
            policy.freeze(OWNER, "patients")
        else:
            policy.revoke_grant(OWNER, "patients", "zoe")
        return plain(ledger, charges)

    monkeypatch.setattr(Ledger, way, late)
    if way == "charge":
        with pytest.raises(Refused) as refused:
            desk.queries.ask(zoe, asked)
        told: object = refused.value
    else:
        (told,) = desk.queries.begin([(zoe, asked)])
    code = "data-set-frozen" if act == "freeze" else "unknown-data-set"
    assert getattr(told, "code", told) == code
    assert spent(vault, "zoe") is None
    policy.thaw(OWNER, "patients")
    policy.grant(OWNER, "patients", "zoe", "researchers")
    assert isinstance(desk.queries.begin([(zoe, asked)])[0], PaidOrder)


def test_a_token_that_may_not_ask_is_told_nothing(vault: OpenVault, tokens: dict[str, str]) -> None:
    access = vault.house.desk.access
    alone(vault, tokens["ada"])
    bob = vault.house.desk.admitted("ask", tokens["bob"])
    assert bob is not None
    for scope in ({"actions": ["read"]}, {"data_sets": ["elsewhere"]}):
        narrow = {"label": "narrow", "actions": None, "data_sets": None, "days": 1, **scope}
        made = str(access.make_token(bob, **narrow)["token"])  # type: ignore[arg-type]
        assert asked_again(vault.house.desk, [(made, BODY)]) == [None]
    assert spent(vault, "bob") is None


def test_an_amended_card_is_another_question(
    vault: OpenVault, tokens: dict[str, str], tmp_path: Path
) -> None:
    alone(vault, tokens["ada"])
    halved = PATIENTS_CARD.replace("upper = 110", "upper = 55").replace("2026-11", "2026-12")
    vault.add("patients", tmp_path / "p.csv", card(halved))
    (paid,) = begun(vault.house.desk, [(tokens["bob"], BODY)])
    assert isinstance(paid, PaidOrder)
    assert paid.order.card.version == "2026-12"


def test_the_door_tells_it_without_a_thread_that_may_read(
    vault: OpenVault, tokens: dict[str, str]
) -> None:
    """The threads that read are not asked once the answer stands, and are before."""
    end = DoorEnd(vault.house.desk, quantum_s=0, tally=CallMetrics(to_nowhere))
    first = alone(vault, tokens["ada"])
    sent = json.dumps({"sql": SQL, "epsilon": 0.1}).encode()

    async def told(user: str) -> object:
        return await end._begins.done((tokens[user], {"data_set": "patients", **json.loads(sent)}))

    async def all_of() -> list[object]:
        return list(await asyncio.gather(*(told(name) for name in USERS)))

    found = [json.loads(one) for one in asyncio.run(all_of()) if isinstance(one, str)]
    assert len(found) == 3
    assert {json.dumps(one["rows"]) for one in found} == {json.dumps(first["rows"], default=float)}


class Stuck:
    """An anchor that is read, and cannot be written any more."""

    def __init__(self, anchor: FileAnchor) -> None:
        self._anchor = anchor

    def read(self) -> AnchorMark | None:
        return self._anchor.read()

    def sums(self) -> AnchorSums | None:
        return self._anchor.sums()

    def keep_sums(self, accounts: Sequence[Account], head: LedgerHead, mark: AnchorMark) -> bool:
        return self._anchor.keep_sums(accounts, head, mark)

    def advance(
        self, head: LedgerHead, accounts: Sequence[Account] = (), before: Sequence[LedgerHead] = ()
    ) -> None:
        raise Refused("anchor-missing", "The disk is gone.", "Look at it.")


def test_nothing_is_told_that_the_anchor_does_not_hold(tmp_path: Path) -> None:
    store = ledger_stores.new_place("sqlite", tmp_path, None).create()
    store.charge(ledger_stores.asked("first"))
    store.settle("ann", "first", "42")
    anchor = FileAnchor(tmp_path / "anchor")
    anchor.advance(store.head())
    signer = ReceiptKey(bytes(range(32)))
    ledger = Ledger(store, Stuck(anchor), signer)
    with pytest.raises(Refused, match="disk is gone"):
        ledger.charge_all(
            [ledger_stores.asked("2", user="bob"), ledger_stores.asked("2", user="eve")]
        )
    told = Ledger(store, anchor, signer).charge_all([ledger_stores.asked("3", user="bob")])
    assert [getattr(one, "debited", None) for one in told] == [()]  # paid, though not told
    assert anchor.read() == mark_of(store.head())
    (new,) = Ledger(store, anchor, signer).charge_all([ledger_stores.asked("4", "new")])
    assert isinstance(new, Charged)
    with pytest.raises(Refused, match="disk is gone"):
        ledger.settle_all([AnswerToStore("ann", "4", "43", ())])
    store.close()


def mark_of(head: LedgerHead) -> AnchorMark:
    return AnchorMark(head.ledger, head.epoch, head.seq, head.hash)
