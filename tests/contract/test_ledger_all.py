"""Questions are paid, and answers written, in one go: each by itself, as it would be alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Bug, Refused
from sfumato.storage.database import Fault
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import (
    AnchorMark,
    AnswerToStore,
    Charge,
    Charged,
    Debtor,
    LedgerHead,
    OperationState,
    Paid,
    Settled,
)
from support import ledger_stores
from support.ledger_stores import CAP, DEBT, asked

NEVER = Cap(epsilon=5, delta=0, rho=5, rho_delta=0)  # less than one debt


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlLedger]:
    """Return a ledger in which one answer stands that ann has paid for."""
    kind: str = request.param
    server = request.getfixturevalue("server") if kind == "postgres" else None
    made = ledger_stores.new_place(kind, tmp_path, server).create()
    made.charge(asked("first"))
    made.settle("ann", "first", "42")
    yield made
    assert made.verify().fault is None
    made.close()


def mark(store: SqlLedger) -> AnchorMark:
    head = store.head()
    return AnchorMark(head.ledger, head.epoch, head.seq, head.hash)


def charged(store: SqlLedger, *charges: Charge) -> list[Paid]:
    return store.charge_all(charges, mark(store))


def standing(store: SqlLedger, *charges: Charge) -> list[OperationState]:
    """Return what all of them are told, who ask for what stands."""
    told = charged(store, *charges)
    assert all(isinstance(one, OperationState) for one in told)
    return [one for one in told if isinstance(one, OperationState)]


def spent(store: SqlLedger, account: str) -> PrivacyCost:
    found = store.account(account)
    return found.spent if found is not None else PrivacyCost()


def poor(op: str, user: str) -> Charge:
    return asked(op, user=user, debtors=(Debtor("people", CAP), Debtor(f"user {user}", NEVER)))


def test_each_pays_once_in_one_commit(store: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[str] = []
    link = store._writing.connected()
    commit = link.commit

    def counted() -> None:
        commits.append("one")
        commit()

    monkeypatch.setattr(link, "commit", counted)
    users = ("bob", "zoe", "bob", "ann")
    told = standing(store, *(asked(f"op{n}", user=user) for n, user in enumerate(users)))
    assert commits == ["one"]
    assert [(one.answer, one.debited) for one in told] == [
        ("42", ("user bob",)),
        ("42", ("user zoe",)),
        ("42", ()),  # bob has paid just now
        ("42", ()),
    ]
    assert [spent(store, f"user {name}") for name in ("ann", "bob", "zoe")] == [DEBT] * 3
    assert spent(store, "people") == DEBT
    seqs = [one.seq for one in told]
    assert seqs == sorted(set(seqs))
    assert told[-1].head == store.head()


def test_it_is_what_a_charge_would_have_been(store: SqlLedger) -> None:
    for question, other in (
        ("q", "q"),
        ("new", "newer"),
    ):  # one that stands, and one that is paid and read
        (told,) = charged(store, asked("2" + question, question, user="bob"))
        alone = store.charge(asked("2" + question, other, user="zoe"))
        assert type(told) is type(alone)
        assert isinstance(told, Charged | OperationState)
        assert isinstance(alone, Charged | OperationState)
        bob, zoe = (store.entry(one.seq) for one in (told, alone))
        assert bob is not None
        assert zoe is not None
        assert bob.kind == zoe.kind
        again = store.charge(asked("2" + question, question, user="bob"))  # a retry
        assert isinstance(again, Charged | OperationState)
        assert again.seq == told.seq
    assert spent(store, "user bob") == PrivacyCost(20, 20, 20, 0)


def test_what_is_paid_together_is_paid_once(store: SqlLedger) -> None:
    bobs = asked("2", "new", user="bob", wait_limit_s=10**6)
    told = charged(store, asked("1", "new"), asked("1", "new"), bobs)
    first, again, waits = told
    assert isinstance(first, Charged)
    assert isinstance(again, Charged)
    assert (first.paid_before, again.paid_before) == (False, True)
    assert waits is None  # ann reads it just now
    assert spent(store, "user bob") == PrivacyCost()


def test_what_is_left_to_a_charge_changes_nothing(store: SqlLedger) -> None:
    store.charge(asked("held", "held"))
    store.fail("ann", "held", "question-failed", "shape held")  # a frozen shape
    store.charge(asked("read", "read", wait_limit_s=10**6))  # is being read
    before, accounts = store.head(), store.accounts()
    told = charged(
        store,
        asked("first", "another question"),  # an operation that is known
        asked("held", "held"),  # and failed
        asked("3", "held", user="bob"),
        asked("4", "read", user="bob", wait_limit_s=10**6),
        poor("5", "bob"),
    )
    assert told == [None] * 5
    assert (store.head(), store.accounts()) == (before, accounts)


def test_a_frozen_shape_tells_nobody_what_stands(store: SqlLedger) -> None:
    store.charge(asked("other", answer_key="another key"))
    store.fail("ann", "other", "question-failed", "shape q")
    assert charged(store, asked("2", user="bob")) == [None]
    store.thaw_shape("shape q")
    assert standing(store, asked("2", user="bob"))[0].debited == ("user bob",)


def test_who_cannot_pay_hinders_nobody(store: SqlLedger) -> None:
    told = charged(store, asked("1", user="bob"), poor("1", "zoe"), asked("1", user="eve"))
    assert [one is not None for one in told] == [True, False, True]
    assert store.account("user zoe") is None  # opened, and undone
    assert store.past_of("zoe", "1") is None
    assert [spent(store, f"user {name}") for name in ("bob", "eve")] == [DEBT] * 2


def test_a_frozen_ledger_takes_nothing(store: SqlLedger) -> None:
    store.freeze("a test")
    before = store.head()
    (told,) = charged(store, asked("2", user="bob"))
    assert isinstance(told, Refused)
    assert told.code == "ledger-frozen"
    assert store.head() == before


def test_nobody_pays_into_another_history(store: SqlLedger) -> None:
    lost = replace(mark(store), hash="0" * 64)
    before = store.head()
    assert store.charge_all([asked("2", user="bob")], lost) == [None]
    assert store.head() == before
    with pytest.raises(Refused, match="frozen"):  # whoever asks next finds it out
        store.charge(asked("2", user="bob"), lost)
    assert store.frozen() is not None


def test_another_history_is_never_marked_as_the_one_that_was_seen(store: SqlLedger) -> None:
    charged(store, asked("held", "held"))  # the anchor's mark was found once
    marked: list[LedgerHead] = []
    store.mark_with(lambda head, *_: marked.append(head))
    lost = replace(mark(store), hash="0" * 64)  # what another door wrote, and is not here any more
    store.note("grown", {})  # past the mark
    assert store.charge_all([asked("2", user=user) for user in ("bob", "zoe")], lost) == [None] * 2
    (told,) = store.settle_all([AnswerToStore("ann", "held", "43", ())], lost)
    assert getattr(told, "code", told) == "ledger-frozen"
    assert store.answer_of("ann", "held") is None
    store.settle_all([AnswerToStore("ann", "held", "43", ())], None)
    assert marked == []  # else the anchor would agree with it from now on


def test_they_are_marked_once_before_they_are_told(store: SqlLedger) -> None:
    marked: list[LedgerHead] = []
    store.mark_with(lambda head, *_: marked.append(head))
    charged(store, *(asked("2", user=user) for user in ("bob", "zoe", "eve")))
    assert marked == [store.head()]


def test_a_commit_that_fails_tells_nobody(
    store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = store._writing.connected()

    def broken() -> None:
        raise Fault("full")

    monkeypatch.setattr(link, "commit", broken)
    told = charged(store, asked("2", user="bob"), asked("2", "new", user="zoe"))
    assert [getattr(one, "code", one) for one in told] == ["ledger-unavailable"] * 2
    assert [spent(store, f"user {name}") for name in ("bob", "zoe")] == [PrivacyCost()] * 2
    assert standing(store, asked("3", user="bob"))


def test_answers_are_written_in_one_go(store: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bob", "zoe", "eve"):
        store.charge(asked("1", f"q {name}", user=name))
    store.charge(asked("2", "q bob", user="bob"))
    store.fail("eve", "1", "question-failed", None)
    commits: list[str] = []
    link = store._writing.connected()
    commit = link.commit

    def counted() -> None:
        commits.append("one")
        commit()

    monkeypatch.setattr(link, "commit", counted)
    marked: list[LedgerHead] = []
    store.charge_all([asked("held", "held")], mark(store))
    store.mark_with(lambda head, *_: marked.append(head))
    answers = [("bob", "1", "43"), ("zoe", "1", "44"), ("eve", "1", "45"), ("bob", "2", "46")]
    commits.clear()
    told = store.settle_all(
        [AnswerToStore(*one, (f"user {one[0]}",)) for one in answers], mark(store)
    )
    assert commits == ["one"]
    assert marked == [store.head()]
    assert [getattr(one, "answer", None) for one in told] == ["43", "44", None, "43"]
    assert isinstance(told[2], Bug | Refused)  # it had failed
    first = told[0]
    assert isinstance(first, Settled)
    assert [account.name for account in first.accounts] == ["user bob"]
    assert store.answer_of("eve", "1") is None


def test_no_answer_is_told_when_the_commit_fails(
    store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.charge(asked("1", "new"))
    link = store._writing.connected()

    def broken() -> None:
        raise Fault("full")

    monkeypatch.setattr(link, "commit", broken)
    (told,) = store.settle_all([AnswerToStore("ann", "1", "43", ())], None)
    assert getattr(told, "code", told) == "ledger-unavailable"
    assert store.answer_of("ann", "1") is None
    assert store.settle("ann", "1", "44").answer == "44"
