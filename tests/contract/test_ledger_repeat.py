"""Answers that stand are paid in one go: each by itself; what is not paid changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import ledgers
from ledgers import CAP, DEBT, asked
from sfumato.core.account import AnchorMark, Charge, Debtor, Head, Standing
from sfumato.core.filters import Cap
from sfumato.core.loss import Debt
from sfumato.core.refusal import Refused
from sfumato.stores.ledger_sql import SqlLedger
from sfumato.stores.link import Fault

NEVER = Cap(epsilon=5, delta=0, rho=5, rho_delta=0)  # less than one debt


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlLedger]:
    """Return a ledger in which one answer stands that ann has paid for."""
    kind: str = request.param
    server = request.getfixturevalue("server") if kind == "postgres" else None
    made = ledgers.new_place(kind, tmp_path, server).create()
    made.charge(asked("first"))
    made.settle("ann", "first", "42")
    yield made
    assert made.verify().fault is None
    made.close()


def mark(store: SqlLedger) -> AnchorMark:
    head = store.head()
    return AnchorMark(head.ledger, head.epoch, head.seq, head.hash)


def repeat(store: SqlLedger, *charges: Charge) -> list[Standing | None]:
    return store.repeat(charges, mark(store))


def spent(store: SqlLedger, account: str) -> Debt:
    found = store.account(account)
    return found.spent if found is not None else Debt()


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
    told = repeat(store, *(asked(f"op{n}", user=user) for n, user in enumerate(users)))
    assert commits == ["one"]
    assert [one and (one.answer, one.debited) for one in told] == [
        ("42", ("user bob",)),
        ("42", ("user zoe",)),
        ("42", ()),  # bob has paid just now
        ("42", ()),
    ]
    assert [spent(store, f"user {name}") for name in ("ann", "bob", "zoe")] == [DEBT] * 3
    assert spent(store, "people") == DEBT
    seqs = [one.seq for one in told if one is not None]
    assert len(seqs) == 4
    assert seqs == sorted(set(seqs))
    assert all(one is not None and one.head == store.head() for one in told[-1:])


def test_it_is_what_a_charge_would_have_been(store: SqlLedger) -> None:
    (told,) = repeat(store, asked("2", user="bob"))
    charged = store.charge(asked("2", user="zoe"))
    assert isinstance(told, Standing)
    assert isinstance(charged, Standing)
    bob, zoe = (store.entry(one.seq) for one in (told, charged))
    assert bob is not None
    assert zoe is not None
    assert bob.kind == zoe.kind
    assert bob.body.replace("bob", "zoe") == zoe.body
    assert store.answer_of("bob", "2") == store.answer_of("zoe", "2") == "42"
    again = store.charge(asked("2", user="bob"))  # a retry of what was told
    assert isinstance(again, Standing)
    assert (again.seq, again.debited) == (told.seq, ())


def test_what_cannot_be_told_so_changes_nothing(store: SqlLedger) -> None:
    store.charge(asked("held", "held"))
    store.fail("ann", "held", "question-failed", "shape held")  # a frozen shape
    store.charge(asked("read", "read"))  # is being read
    before, accounts = store.head(), store.accounts()
    told = repeat(
        store,
        asked("2", "another question"),
        asked("first"),  # an operation that is known
        asked("first", "another question"),
        asked("3", "held", user="bob"),
        asked("4", "read", user="bob"),
        poor("5", "bob"),
    )
    assert told == [None] * 6
    assert (store.head(), store.accounts()) == (before, accounts)


def test_a_frozen_shape_tells_nobody_what_stands(store: SqlLedger) -> None:
    store.charge(asked("other", answer_key="another key"))
    store.fail("ann", "other", "question-failed", "shape q")
    assert repeat(store, asked("2", user="bob")) == [None]
    store.thaw_shape("shape q")
    assert repeat(store, asked("2", user="bob")) != [None]


def test_who_cannot_pay_hinders_nobody(store: SqlLedger) -> None:
    told = repeat(store, asked("1", user="bob"), poor("1", "zoe"), asked("1", user="eve"))
    assert [one is not None for one in told] == [True, False, True]
    assert store.account("user zoe") is None  # opened, and undone
    assert store.past_of("zoe", "1") is None
    assert [spent(store, f"user {name}") for name in ("bob", "eve")] == [DEBT] * 2


def test_a_frozen_ledger_takes_nothing(store: SqlLedger) -> None:
    store.freeze("a test")
    before = store.head()
    assert repeat(store, asked("2", user="bob")) == [None]
    assert store.head() == before


def test_nobody_pays_into_another_history(store: SqlLedger) -> None:
    lost = replace(mark(store), hash="0" * 64)
    before = store.head()
    assert store.repeat([asked("2", user="bob")], lost) == [None]
    assert store.head() == before
    with pytest.raises(Refused, match="frozen"):  # whoever asks next finds it out
        store.charge(asked("2", user="bob"), lost)
    assert store.frozen() is not None


def test_they_are_marked_once_before_they_are_told(store: SqlLedger) -> None:
    marked: list[Head] = []
    store.mark_with(marked.append)
    repeat(store, *(asked("2", user=user) for user in ("bob", "zoe", "eve")))
    assert marked == [store.head()]


def test_a_commit_that_fails_tells_nobody(
    store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = store._writing.connected()

    def broken() -> None:
        raise Fault("full")

    monkeypatch.setattr(link, "commit", broken)
    assert repeat(store, asked("2", user="bob"), asked("2", user="zoe")) == [None, None]
    assert spent(store, "user bob") == Debt()
    assert [one is not None for one in repeat(store, asked("3", user="bob"))] == [True]
