"""The anchor's mark is looked for within the charge, and a store knows what it wrote itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ledgers
from ledgers import Place, asked
from sfumato.core.account import AnchorMark, Charged, Entry, Head, Standing
from sfumato.core.refusal import Refused
from sfumato.stores import rows
from sfumato.stores.ledger_sql import SqlLedger
from sfumato.stores.own import Own

NOTE = "card-signed"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return where a fresh ledger lies."""
    kind: str = request.param
    server: Any = request.getfixturevalue("server") if kind == "postgres" else None  # Any: slow
    return ledgers.new_place(kind, tmp_path, server)


@pytest.fixture
def store(place: Place) -> Iterator[SqlLedger]:
    """Return that ledger, whose chain and sums must hold when the test is over."""
    made = place.create()
    yield made
    assert made.verify().fault is None
    made.close()


def mark_of(head: Head) -> AnchorMark:
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
        assert isinstance(standing, Standing)
        names = [debtor.account for debtor in charge.debtors]
        assert standing.accounts == store.accounts_of(names)


def test_notes_are_looked_for_wherever_one_may_stand(
    place: Place, store: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = rows.entries_of

    def entries_of(link: Any, kind: str, after: int) -> tuple[Entry, ...]:  # Any: either's link
        looks.append(after)
        return real(link, kind, after)

    monkeypatch.setattr(rows, "entries_of", entries_of)
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
    one, two, three = (Head("a", 1, seq, str(seq)) for seq in (1, 2, 3))
    run = Own().grown(one, two, has_notes=False).grown(two, three, has_notes=False)
    assert run.covers(1, 3)
    assert not run.covers(0, 3)
    assert not run.covers(1, 4)
    assert not run.grown(three, three, has_notes=True).covers(1, 3)


@pytest.mark.parametrize(
    ("begun", "end"),
    [
        (Head("a", 1, 3, "3"), Head("a", 1, 4, "4")),  # another wrote the third
        (Head("a", 1, 2, "not 2"), Head("a", 1, 4, "4")),  # another history
        (Head("a", 1, 2, "2"), Head("a", 2, 4, "4")),  # a new epoch
    ],
    ids=["another's", "another history", "a new epoch"],
)
def test_a_run_begins_anew_where_it_was_not_gone_on_with(begun: Head, end: Head) -> None:
    run = Own().grown(Head("a", 1, 1, "1"), Head("a", 1, 2, "2"), has_notes=False)
    assert not run.grown(begun, end, has_notes=False).covers(1, 4)
