"""The ledger only grows, so nobody adds to it without end, not even by what is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import DAY_S, EntryQuota, Ledger
from sfumato.storage.anchor import FileAnchor
from sfumato.storage.key_files import ReceiptKey
from support import ledger_stores


def ledger_with(place: Path, quota: EntryQuota) -> Ledger:
    store = ledger_stores.new_place("sqlite", place, None).create()
    anchor = FileAnchor(place / "anchor")
    anchor.advance(store.head())
    return Ledger(store, anchor, ReceiptKey(bytes(range(32))), quota)


def refused(ledger: Ledger, op: str, user: str = "ann") -> str:
    with pytest.raises(Refused) as found:
        ledger.charge(ledger_stores.asked(op, user=user))
    return found.value.code


def test_free_repeats_end_for_a_day_and_nobody_elses_do(tmp_path: Path) -> None:
    now = [0.0]
    ledger = ledger_with(tmp_path, EntryQuota(4, lambda: now[0]))
    ledger.charge(ledger_stores.asked("first"))
    ledger.settle("ann", "first", "42")
    for op in ("second", "third"):  # two entries are the debit's and its answer's
        ledger.charge(ledger_stores.asked(op))
    seq = ledger.store.head().seq
    assert refused(ledger, "fourth") == "too-many"
    assert ledger.charge_all([ledger_stores.asked("fifth")]) == [None]
    assert ledger.store.head().seq == seq
    ledger.charge(ledger_stores.asked("first", user="bob"))
    now[0] = DAY_S
    ledger.charge(ledger_stores.asked("fourth"))


def test_a_retry_of_what_is_answered_is_let_in_and_adds_nothing(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, EntryQuota(2, lambda: 0.0))
    ledger.charge(ledger_stores.asked("first"))
    ledger.settle("ann", "first", "42")
    seq = ledger.store.head().seq
    assert refused(ledger, "second") == "too-many"
    again = ledger.charge(ledger_stores.asked("first"))
    assert (getattr(again, "answer", None), ledger.store.head().seq) == ("42", seq)


def test_those_of_a_batch_are_counted_each_for_itself(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, EntryQuota(2, lambda: 0.0))
    first = [ledger_stores.asked("1"), ledger_stores.asked("1", "other", user="bob")]
    assert None not in ledger.charge_all(first)
    over = ledger.charge_all(
        [ledger_stores.asked("2", "new"), ledger_stores.asked("1", "third", user="eve")]
    )
    assert over[0] is None
    assert over[1] is not None
