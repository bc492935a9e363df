"""The chain alone: no two entries share a hash, and a replay finds every break."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.refusal import Bug
from sfumato.vault.hash_chain import (
    GENESIS,
    KINDS,
    MAX_SUM,
    add,
    canonical,
    disagreement,
    entry_hash,
    next_entry,
    verify,
)
from sfumato.vault.ledger_entries import AnchorMark, Entry, LedgerHead

TEXT = st.text(max_size=12)
FIELDS = st.tuples(TEXT, st.integers(0, 99), st.integers(0, 9), TEXT, TEXT, TEXT)
AMOUNTS = st.integers(0, MAX_SUM)
DEBTS = st.builds(PrivacyCost, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
ONE = [1, 1, 1, 1]


def _chain(*said: tuple[str, dict[str, object]]) -> list[Entry]:
    head = LedgerHead("a", 1, 0, GENESIS)
    made = []
    for kind, body in (("ledger-created", {"ledger": "a", "origin": "here"}), *said):
        epoch = head.epoch + (kind == "acknowledged")
        entry = next_entry(head, epoch=epoch, at="now", kind=kind, body=canonical(body))
        head = LedgerHead("a", epoch, entry.seq, entry.hash)
        made.append(entry)
    return made


Said = tuple[str, dict[str, object]]
OPENED: Said = ("account-opened", {"account": "people", "cap": [2, 2, 0, 0]})
CHARGED: Said = ("charged", {"debits": {"people": ONE}})


def test_the_hash_is_what_the_format_says() -> None:
    text = 'sfumato-ledger-entry/1\n["p",7,1,"t","note","{}"]'
    assert entry_hash("p", 7, 1, "t", "note", "{}") == hashlib.sha256(text.encode()).hexdigest()


@given(FIELDS, FIELDS)
def test_two_entries_have_one_hash_only_if_they_are_the_same(
    one: tuple[str, int, int, str, str, str], other: tuple[str, int, int, str, str, str]
) -> None:
    assert (entry_hash(*one) == entry_hash(*other)) == (one == other)


def test_letters_that_move_to_the_next_field_change_the_hash() -> None:
    assert entry_hash("p", 1, 1, "t", "ab", "c") != entry_hash("p", 1, 1, "t", "a", "bc")
    assert entry_hash("p", 11, 1, "t", "a", "") != entry_hash("p", 1, 11, "t", "a", "")


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.none(), st.lists(TEXT))))
def test_canonical_text_is_read_back_as_it_was(value: dict[str, object]) -> None:
    assert json.loads(canonical(value)) == value
    assert canonical(json.loads(canonical(value))) == canonical(value)
    assert canonical(value).isascii()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_is_not_plain_json_is_a_bug(value: object) -> None:
    with pytest.raises(Bug):
        canonical({"value": value})


@given(DEBTS, DEBTS, DEBTS)
def test_sums_held_at_the_most_do_not_depend_on_the_order(
    a: PrivacyCost, b: PrivacyCost, c: PrivacyCost
) -> None:
    assert add(add(a, b), c) == add(a, add(b, c)) == add(add(c, b), a)


def test_a_whole_chain_gives_its_sums() -> None:
    verdict = verify(iter(_chain(OPENED, CHARGED, CHARGED)))
    assert verdict.fault is None
    assert verdict.accounts[0].spent == PrivacyCost(2, 2, 2, 2)
    assert verdict.counts.operations == 2


def test_a_debit_past_both_tests_is_a_fault_though_every_hash_holds() -> None:
    assert verify(_chain(OPENED, CHARGED, CHARGED, CHARGED)).fault is not None


@pytest.mark.parametrize(
    "said",
    [
        ("charged", {"debits": {"nobody": ONE}}),
        ("charged", {}),
        ("charged", {"debits": {"people": [1, 2]}}),
        ("cap-set", {"account": "nobody", "cap": ONE}),
        OPENED,
        ("ledger-created", {"ledger": "b", "origin": "here"}),
    ],
)
def test_an_entry_that_makes_no_sense_is_a_fault(said: tuple[str, dict[str, object]]) -> None:
    assert verify(_chain(OPENED, said)).fault is not None


def test_an_epoch_begins_with_an_acknowledgement_alone() -> None:
    body: dict[str, object] = {"why": "w", "origin": "o", "debits": {"people": ONE}}
    chain = _chain(OPENED, ("acknowledged", body))
    assert verify(chain).head.epoch == 2
    late = next_entry(verify(chain).head, epoch=3, at="now", kind="note", body="{}")
    assert verify([*chain, late]).fault == "entry 4: its epoch does not follow"


def test_a_chain_that_is_empty_or_begins_late_is_a_fault() -> None:
    assert verify([]).fault is not None
    assert verify(_chain(OPENED)[1:]).fault is not None


@given(st.integers(0, 3), st.sampled_from(["seq", "epoch", "at", "kind", "body", "prev", "hash"]))
def test_every_changed_field_breaks_the_chain(place: int, name: str) -> None:
    chain = _chain(OPENED, CHARGED, CHARGED)
    old = getattr(chain[place], name)
    new = old + 1 if isinstance(old, int) else old + " "
    changed: dict[str, Any] = {name: new}  # Any: of the field's own type
    chain[place] = replace(chain[place], **changed)
    assert verify(chain).fault is not None


def test_the_kinds_that_move_something_are_known() -> None:
    assert len(KINDS) == 12


def test_a_move_says_where_the_ledger_is_and_moves_no_sum() -> None:
    verdict = verify(_chain(OPENED, CHARGED, ("moved", {"origin": "there"})))
    assert (verdict.fault, verdict.origin) == (None, "there")
    assert verdict.accounts == verify(_chain(OPENED, CHARGED)).accounts


def test_a_mark_is_held_against_the_entry_it_names() -> None:
    chain = _chain(OPENED, CHARGED)
    head = LedgerHead("a", 1, 3, chain[2].hash)
    mark = AnchorMark("a", 1, 2, chain[1].hash)
    assert disagreement(mark, head, chain[1]) is None
    assert disagreement(mark, head, None) is not None
    assert disagreement(replace(mark, hash="0"), head, chain[1]) is not None
    assert disagreement(replace(mark, ledger="b"), head, chain[1]) is not None
    assert disagreement(replace(mark, epoch=2), head, chain[1]) is not None
    assert disagreement(mark, replace(head, epoch=2), None) is None
