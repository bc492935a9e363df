"""Charges that wait at once are written in one commit, each paid or refused by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Refused
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.database import DatabaseLink, Fault
from sfumato.storage.ledger_transaction import LedgerTransaction
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import (
    AnchorMark,
    Charge,
    Charged,
    Debtor,
    Exceeded,
    LedgerHead,
    Outcome,
    Reused,
)
from support import ledger_stores
from support.ledger_stores import CAP, DEBT, Place, asked

WAIT_S = 30
TWO = Cap(epsilon=20, delta=20, rho=20, rho_delta=20)  # twice the debt of a test's charge


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlLedger]:
    """Return a fresh ledger whose chain and sums must hold when the test is over."""
    kind: str = request.param
    server = request.getfixturevalue("server") if kind == "postgres" else None
    made = _place(kind, tmp_path, server).create()
    yield made
    assert made.verify().fault is None
    made.close()


def _place(kind: str, folder: Path, server: Any) -> Place:  # Any: pg.Server, slow to import
    return ledger_stores.new_place(kind, folder, server)


def _together(store: SqlLedger, *acts: Callable[[], object]) -> list[Future[Any]]:
    """Let the acts wait, in their order, behind an open transaction; then let it end."""
    gate, is_open = threading.Event(), threading.Event()

    def hold(_work: LedgerTransaction) -> None:
        is_open.set()
        assert gate.wait(WAIT_S)

    with ThreadPoolExecutor(len(acts) + 1) as pool:
        held = pool.submit(store._acts.run, hold)
        assert is_open.wait(WAIT_S)
        told = []
        for place, act in enumerate(acts):
            told.append(pool.submit(act))
            _wait_for(store, place + 1)
        gate.set()
        held.result(WAIT_S)
    return told


def _wait_for(store: SqlLedger, waiting: int) -> None:
    until = time.monotonic() + WAIT_S
    while len(store._acts._queue) < waiting:
        assert time.monotonic() < until
        time.sleep(0.001)


def _charging(
    store: SqlLedger, *charges: Charge, mark: AnchorMark | None = None
) -> list[Callable[[], Outcome]]:
    return [lambda charge=charge: store.charge(charge, mark) for charge in charges]  # type: ignore[misc]


def _spent(store: SqlLedger, account: str) -> PrivacyCost:
    found = store.account(account)
    return found.spent if found is not None else PrivacyCost()


def _times(count: int) -> PrivacyCost:
    return PrivacyCost(count * DEBT.epsilon, count * DEBT.delta, count * DEBT.rho, 0)


def _of(op: str, user: str, cap: Cap = CAP) -> Charge:
    debtors = (Debtor("people", TWO if cap is TWO else CAP), Debtor(f"user {user}", CAP))
    return asked(op, f"q{op}", user=user, debtors=debtors)


def test_charges_that_wait_cost_one_commit(
    store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[str] = []
    link = store._writing.connected()
    commit = link.commit

    def counted() -> None:
        commits.append("one")
        commit()

    monkeypatch.setattr(link, "commit", counted)
    told = _together(store, *_charging(store, *(asked(str(n), f"q{n}") for n in range(6))))
    outcomes = [one.result() for one in told]
    assert all(isinstance(outcome, Charged) for outcome in outcomes)
    assert len(commits) == 2  # of what held them up, and of all six
    assert _spent(store, "people") == _times(6)
    seqs = [outcome.seq for outcome in outcomes]
    assert seqs == sorted(set(seqs))


def test_what_is_written_together_is_marked_once(store: SqlLedger) -> None:
    marked: list[LedgerHead] = []
    store.mark_with(lambda head, *_: marked.append(head))
    charges = [asked(str(n), f"q{n}") for n in range(6)]
    told = _together(store, *_charging(store, *charges, mark=_mark(store)))
    assert all(isinstance(one.result(), Charged) for one in told)
    assert marked == [store.head()]


def test_where_the_mark_is_refused_each_who_paid_is_told_so(
    store: SqlLedger, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    anchor = FileAnchor(tmp_path / "file" / "anchor")  # which cannot be written
    store.mark_with(anchor.advance)
    mark = _mark(store)

    def paying(charge: Charge) -> None:
        outcome = store.charge(charge, mark)
        assert isinstance(outcome, Charged)
        anchor.advance(outcome.head)

    told = _together(store, *(partial(paying, asked(str(n), f"q{n}")) for n in range(4)))
    refused = [one.exception() for one in told]
    assert [getattr(one, "code", one) for one in refused] == ["anchor-missing"] * 4
    assert _spent(store, "people") == _times(4)


def test_what_looks_for_no_mark_is_not_marked(store: SqlLedger) -> None:
    marked: list[LedgerHead] = []
    store.mark_with(lambda head, *_: marked.append(head))
    acts = [partial(store.open_account, f"people:{n}", CAP) for n in range(3)]
    _together(store, *acts, *_charging(store, asked("1")))
    assert marked == []
    assert isinstance(store.charge(asked("held", "held"), _mark(store)), Charged)
    _together(store, *(partial(store.note, "enrolled", {"n": n}) for n in range(3)))
    assert marked == []  # though a charge before them had found it
    head = store.head()
    elsewhere = AnchorMark(head.ledger, head.epoch, head.seq + 100, head.hash)
    lost = _together(store, *acts, lambda: store.charge(asked("2", "r"), elsewhere))
    assert getattr(lost[-1].exception(), "code", None) == "ledger-frozen"
    _together(store, *(partial(store.open_account, f"group:{n}", CAP) for n in range(3)))
    assert marked == []


def _mark(store: SqlLedger) -> AnchorMark:
    """Return the mark of an anchor that has seen all of it."""
    head = store.head()
    return AnchorMark(head.ledger, head.epoch, head.seq, head.hash)


def test_a_charge_that_is_refused_leaves_the_others_and_nothing_of_its_own(
    store: SqlLedger,
) -> None:
    users = ("ann", "bob", "zoe")
    told = _together(store, *_charging(store, *(_of(user, user, TWO) for user in users)))
    kinds = [type(one.result()) for one in told]
    assert kinds == [Charged, Charged, Exceeded]
    assert _spent(store, "people") == _times(2)
    assert store.account("user zoe") is None  # opened, and undone
    assert store.past_of("zoe", "zoe") is None


def test_what_comes_after_a_refused_charge_is_paid(store: SqlLedger) -> None:
    never = Cap(epsilon=5, delta=0, rho=5, rho_delta=0)
    poor = asked("1", "q1", user="zoe", debtors=(Debtor("people", CAP), Debtor("user zoe", never)))
    told = _together(store, *_charging(store, poor, asked("2", "q2"), asked("3", "q3")))
    assert [type(one.result()) for one in told] == [Exceeded, Charged, Charged]
    assert _spent(store, "people") == _times(2)
    assert store.verify().fault is None


def test_the_same_operation_twice_in_one_commit_pays_once(store: SqlLedger) -> None:
    told = _together(store, *_charging(store, asked("1"), asked("1"), asked("1", "other")))
    first, again, reused = (one.result() for one in told)
    assert isinstance(first, Charged)
    assert not first.paid_before
    assert isinstance(again, Charged)
    assert again.paid_before
    assert reused == Reused("1")
    assert _spent(store, "people") == _times(1)


def test_a_freeze_among_them_stops_those_behind_it(store: SqlLedger) -> None:
    before, after = _charging(store, asked("1", "q1"), asked("2", "q2"))
    told = _together(store, before, lambda: store.freeze("a test says so"), after)
    assert isinstance(told[0].result(), Charged)
    error = told[2].exception()
    assert isinstance(error, Refused)
    assert error.code == "ledger-frozen"
    assert store.frozen() == "a test says so"
    assert _spent(store, "people") == _times(1)


class Flawed:
    """A connection that fails once, where it is told to; all else is a real one's."""

    def __init__(self, link: DatabaseLink, *, at_commit: int = 0) -> None:
        self._link, self._commits = link, at_commit

    def __getattr__(self, name: str) -> Any:  # Any: of the real one
        return getattr(self._link, name)

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        if not self._commits and "INTO ledger_operations" in sql and "flaw" in values:
            self._commits = -1  # no more faults
            raise Fault("lost")
        return self._link.change(sql, values)

    def commit(self) -> None:
        self._commits -= 1
        if self._commits == 0:
            self._commits = -1
            self._link.rollback()
            raise Fault("lost")
        self._link.commit()


def test_a_database_error_in_one_undoes_all_and_each_is_done_again_alone(store: SqlLedger) -> None:
    store._writing.link = Flawed(store._writing.connected())
    flawed = asked("flaw", "flaw")
    told = _together(store, *_charging(store, asked("1", "q1"), flawed, asked("3", "q3")))
    assert [type(one.result()) for one in told] == [Charged] * 3
    assert not any(one.result().paid_before for one in told)
    assert _spent(store, "people") == _times(3)


def test_a_commit_that_fails_is_told_to_all_and_a_retry_pays_once(store: SqlLedger) -> None:
    charges = [asked(str(n), f"q{n}") for n in range(3)]
    link = Flawed(store._writing.connected(), at_commit=2)
    store._writing.link = link
    told = _together(store, *_charging(store, *charges))
    assert [one.exception().code for one in told] == ["ledger-unavailable"] * 3  # type: ignore[union-attr]  # a refusal
    assert _spent(store, "people") == PrivacyCost()
    assert all(isinstance(store.charge(charge), Charged) for charge in charges)
    assert _spent(store, "people") == _times(3)
