"""The anchor's mark is looked for within the charge, and a store knows what it wrote itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.storage import ledger_rows
from sfumato.storage.sql_ledger import OwnEntries, SqlLedger
from sfumato.vault.ledger_entries import AnchorMark, Charged, Entry, LedgerHead, OperationState
from support import ledger_stores
from support.ledger_stores import Place, asked

NOTE = "card-signed"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return where a fresh ledger lies."""
    kind: str = request.param
    server: Any = request.getfixturevalue("server") if kind == "postgres" else None  # Any: slow
    return ledger_stores.new_place(kind, tmp_path, server)


@pytest.fixture
def store(place: Place) -> Iterator[SqlLedger]:
    """Return that ledger, whose chain and sums must hold when the test is over."""
    made = place.create()
    yield made
    assert made.verify().fault is None
    made.close()


def mark_of(head: LedgerHead) -> AnchorMark:
    return AnchorMark(head.ledger, head.epoch, head.seq, head.hash)


def test_a_mark_at_the_head_or_behind_it_lets_pay(store: SqlLedger) -> None:
    first = mark_of(store.head())
    assert isinstance(store.charge(asked("1"), first), Charged)
    assert isinstance(store.charge(asked("2", "other"), first), Charged)
    assert isinstance(store.charge(asked("3", "third"), mark_of(store.head())), Charged)


@pytest.mark.parametrize(
    "other",
    [{"hash": "0" * 64}, {"seq": 99}, {"epoch": 2}, {"ledger": "another"}],
    ids=["hash", "seq", "epoch", "ledger"],
)
def test_a_mark_that_does_not_stand_freezes_and_nobody_pays(
    place: Place, other: dict[str, Any]
) -> None:
    store = place.create()
    store.charge(asked("1"))
    mark = replace(mark_of(store.head()), **other)
    before = store.accounts()
    with pytest.raises(Refused) as refused:
        store.charge(asked("2", "other"), mark)
    assert refused.value.code == "ledger-frozen"
    assert store.frozen() is not None
    assert store.accounts() == before
    with pytest.raises(Refused):
        store.charge(asked("3", "third"))
    assert store.verify().fault is None
    store.close()


LOWER = replace(ledger_stores.CAP, epsilon=900)
ACTS: dict[str, Callable[[SqlLedger, AnchorMark], object]] = {
    "settle": lambda store, mark: store.settle("ann", "1", "42", (), mark),
    "open an account": lambda store, mark: store.open_account("new", ledger_stores.CAP, mark),
    "set a cap": lambda store, mark: store.set_cap("people", LOWER, None, mark),
    "thaw a shape": lambda store, mark: store.thaw_shape("shape r", mark),
}


@pytest.mark.parametrize("act", sorted(ACTS))
def test_no_act_is_done_in_another_history(place: Place, act: str) -> None:
    store = place.create()
    store.charge(asked("1"))
    store.charge(asked("2", "r"))
    store.fail("ann", "2", "question-failed", "shape r")
    stands = mark_of(store.head())
    before = _state(store)
    with pytest.raises(Refused) as refused:
        ACTS[act](store, replace(stands, hash="0" * 64))
    assert refused.value.code == "ledger-frozen"
    assert store.frozen() is not None
    assert _state(store) == before
    assert [entry.kind for entry in store.entries(stands.seq)] == ["frozen"]
    ACTS[act](store, stands)
    assert _state(store) != before  # where the mark stands it is done
    assert store.verify().fault is None
    store.close()


def _state(store: SqlLedger) -> tuple[object, ...]:
    return store.accounts(), store.frozen_shapes(), store.answer_of("ann", "1")


def test_whoever_pays_is_looked_at_while_nobody_else_can_write(
    place: Place, store: SqlLedger
) -> None:
    """So what an owner has put into the ledger is seen by every charge that comes after."""
    other, written = place.open(), threading.Event()

    def write() -> None:
        other.note("data-set-frozen", {})
        written.set()

    writing = threading.Thread(target=write)

    def may_still() -> None:
        writing.start()
        assert not written.wait(0.3)

    outcome = store.charge(asked("1", check_access=may_still))
    writing.join(30)
    assert isinstance(outcome, Charged)
    kinds = [entry.kind for entry in store.entries(outcome.seq - 1)]
    assert kinds == ["charged", "data-set-frozen"]
    other.close()


@pytest.mark.parametrize("how", ["alone", "together"])
def test_whoever_may_not_pay_any_more_pays_nothing(store: SqlLedger, how: str) -> None:
    def may_still() -> None:
        raise Refused("data-set-frozen", "It was frozen.", "Wait.")

    mark, before = mark_of(store.head()), store.head()
    late, other = asked("1", check_access=may_still), asked("2", "r", user="bob")
    if how == "alone":
        with pytest.raises(Refused) as refused:
            store.charge(late, mark)
        assert refused.value.code == "data-set-frozen"
        assert store.head() == before
        return
    told = store.charge_all([late, other], mark)
    assert getattr(told[0], "code", told[0]) == "data-set-frozen"
    assert isinstance(told[1], Charged)
    assert store.account("user ann") is None


def test_what_is_settled_comes_with_the_accounts_of_that_moment(store: SqlLedger) -> None:
    charge = asked("1")
    names = [debtor.account for debtor in charge.debtors]
    store.charge(charge)
    store.charge(asked("2", "other"))
    settled = store.settle("ann", "1", "42", names)
    assert settled.accounts == store.accounts_of(names)
    assert store.settle("ann", "1", "42").accounts == ()


def test_a_repeat_comes_with_the_accounts_of_that_moment(store: SqlLedger) -> None:
    store.charge(asked("1"))
    store.settle("ann", "1", "42")
    for user in ("ann", "bob", "bob"):
        charge = asked(f"of {user} {store.head().seq}", user=user)
        standing = store.charge(charge)
        assert isinstance(standing, OperationState)
        names = [debtor.account for debtor in charge.debtors]
        assert standing.accounts == store.accounts_of(names)


def test_notes_are_looked_for_wherever_one_may_stand(
    place: Place, store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = ledger_rows.entries_of

    def entries_of(link: Any, kind: str, after: int) -> tuple[Entry, ...]:  # Any: either's link
        looks.append(after)
        return real(link, kind, after)

    monkeypatch.setattr(ledger_rows, "entries_of", entries_of)
    begun = store.charge(asked("1")).head.seq  # type: ignore[union-attr]  # it is paid
    store.settle("ann", "1", "42")
    assert store.notes(NOTE, begun, store.head().seq) == ()
    assert looks == []  # all of it was written here, and was no note
    assert store.notes(NOTE, 0, store.head().seq) == ()
    assert looks == [0]
    with_note = store.note(NOTE, {"of": "here"})
    assert [entry.seq for entry in store.notes(NOTE, begun, with_note.seq)] == [with_note.seq]
    other = place.open()
    theirs = other.note(NOTE, {"of": "there"})
    other.close()
    last = store.charge(asked("2", "other")).head.seq  # type: ignore[union-attr]  # it is paid
    assert [entry.seq for entry in store.notes(NOTE, with_note.seq, last)] == [theirs.seq]
    assert store.notes(NOTE, theirs.seq, last) == ()


def test_a_note_that_was_undone_is_looked_for_all_the_same() -> None:
    one, two, three = (LedgerHead("a", 1, seq, str(seq)) for seq in (1, 2, 3))
    run = OwnEntries().extended(one, two, has_notes=False).extended(two, three, has_notes=False)
    assert run.covers(1, 3)
    assert not run.covers(0, 3)
    assert not run.covers(1, 4)
    assert not run.extended(three, three, has_notes=True).covers(1, 3)


@pytest.mark.parametrize(
    ("begun", "end"),
    [
        (LedgerHead("a", 1, 3, "3"), LedgerHead("a", 1, 4, "4")),  # another wrote the third
        (LedgerHead("a", 1, 2, "not 2"), LedgerHead("a", 1, 4, "4")),  # another history
        (LedgerHead("a", 1, 2, "2"), LedgerHead("a", 2, 4, "4")),  # a new epoch
    ],
    ids=["another's", "another history", "a new epoch"],
)
def test_a_run_begins_anew_where_it_was_not_gone_on_with(
    begun: LedgerHead, end: LedgerHead
) -> None:
    run = OwnEntries().extended(
        LedgerHead("a", 1, 1, "1"), LedgerHead("a", 1, 2, "2"), has_notes=False
    )
    assert not run.extended(begun, end, has_notes=False).covers(1, 4)
