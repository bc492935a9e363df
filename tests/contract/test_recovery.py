"""After a restore exactly what was lost is charged; where nobody can tell, everything is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato
from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.storage import anchor as anchors
from sfumato.storage.anchor import SLOT_BYTES, SLOTS, FileAnchor
from sfumato.storage.key_files import ReceiptKey
from sfumato.storage.sql_ledger import SqlLedger
from sfumato.vault.ledger_entries import (
    Account,
    AnchorMark,
    AnchorSums,
    AnswerToStore,
    ChainPosition,
    Charged,
    Debtor,
    LedgerHead,
    Settled,
)
from support.ledger_stores import CAP, Place, asked
from support.small_vaults import PATIENTS_CARD, open_with, write_patients

KEY = ReceiptKey(b"k" * 32)


class Disk:
    """A ledger in a file and its anchor, with copies of both as they were at some moments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Place("sqlite", str(folder / "ledger.db"))
        store = self.place.create()
        self.ledger = self._beside(store)
        self.ledger.begin("vault-created", {})

    def _beside(self, store: SqlLedger) -> Ledger:
        anchor = FileAnchor(self.folder / "anchor")
        store.mark_with(anchor.advance)
        ledger = Ledger(store, anchor, KEY)
        anchor.check_with(ledger.has)
        return ledger

    def charge(self, op: str, user: str = "ann", **changes: object) -> Charged:
        outcome = self.ledger.charge(asked(op, op, user, **changes))
        assert isinstance(outcome, Charged)
        return outcome

    def save(self, name: str, *, anchor: bool = False) -> None:
        """Keep a copy, as a backup would."""
        self.ledger.store.close()
        shutil.copy(self.place.where, self.folder / name)
        if anchor:
            shutil.copy(self.folder / "anchor", self.folder / f"{name}-anchor")

    def restore(self, name: str, *, anchor: bool = False) -> Ledger:
        """Put a copy back, and open it as a vault does."""
        self.ledger.store.close()
        for rest in self.folder.glob("ledger.db*"):
            rest.unlink()
        shutil.copy(self.folder / name, self.place.where)
        if anchor:
            shutil.copy(self.folder / f"{name}-anchor", self.folder / "anchor")
        self.ledger = self._beside(self.place.open())
        if self.ledger.history_fault() is None:
            self.ledger.keep_sums()
        return self.ledger

    def spent(self) -> dict[str, PrivacyCost]:
        return {a.name: a.spent for a in self.ledger.store.accounts()}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def times(count: int) -> PrivacyCost:
    return PrivacyCost(10 * count, 10 * count, 10 * count, 0)


def measured(ledger: Ledger) -> bool:
    last = ledger.store.notes("acknowledged")[-1]
    return "measured" in json.loads(last.body)


def test_a_restored_backup_is_charged_exactly_what_it_lacks(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    disk.charge("2")
    disk.charge("3", "bob")
    truth = disk.spent()
    ledger = disk.restore("backup")
    with pytest.raises(Refused, match="frozen"):
        ledger.charge(asked("4"))
    verdict = ledger.verified()
    assert verdict["ok"] is False
    assert "the ledger ends before the anchor's mark" in str(verdict["history"])
    ledger.acknowledge("restored last night's backup")
    assert disk.spent() == truth == {
        "people": times(3), "user ann": times(2), "user bob": times(1),
    }  # fmt: skip
    assert ledger.store.account("user bob") == Account("user bob", CAP, times(1))
    assert measured(ledger)
    assert not ledger.has_lost()
    assert ledger.verified()["ok"] is True
    disk.charge("4")
    assert disk.spent()["people"] == times(4)


class LateAnchor(FileAnchor):
    """An anchor whose mark was read before another process wrote the one that stands."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.seen = super().read()

    def read(self) -> AnchorMark | None:
        return self.seen


@pytest.mark.parametrize("more", [0, 1, 2])
def test_of_two_copies_that_read_one_mark_only_the_first_is_charged(disk: Disk, more: int) -> None:
    disk.charge("1")
    disk.save("copy")
    copy = Place("sqlite", str(disk.folder / "copy")).open()
    late = LateAnchor(disk.folder / "anchor")
    other = Ledger(copy, late, KEY)
    late.check_with(other.has)
    disk.charge("2")
    for number in range(more):  # charged by the other copy alone, and so that its chain is longer
        copy.charge(asked(f"more {number}"), late.seen)
    with pytest.raises(Refused) as refused:
        other.charge(asked("3"))
    assert refused.value.code == "ledger-frozen"
    copy.close()
    disk.charge("4")


def test_a_vault_that_was_copied_is_charged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_patients(tmp_path / "patients.csv")
    with open_with(tmp_path, "clinic", source, PATIENTS_CARD) as vault:
        vault["clinic"].count().ask(epsilon=0.1)
    shutil.copytree(tmp_path / "vault", tmp_path / "copy")
    with sfumato.open(tmp_path / "vault") as vault, sfumato.open(tmp_path / "copy") as copy:
        anchor = copy.house.ledger.anchor
        seen = anchor.read()
        monkeypatch.setattr(anchor, "read", lambda: seen)  # as if both had looked at one moment
        vault["clinic"].count().ask(epsilon=0.2)
        with pytest.raises(Refused, match="ledger-frozen"):
            copy["clinic"].count().ask(epsilon=0.3)
        assert seen is not None
        assert copy.house.ledger.store.head().seq == seen.seq + 1  # the charge: nothing was read


def test_several_processes_on_one_ledger_advance_over_each_others_marks(disk: Disk) -> None:
    disk.charge("1")
    late = LateAnchor(disk.folder / "anchor")
    other = Ledger(disk.place.open(), late, KEY)
    late.check_with(other.has)
    disk.charge("2")
    assert isinstance(other.charge(asked("3")), Charged)
    disk.charge("4")
    other.store.close()


def test_a_backup_that_lacks_nothing_goes_on_by_itself(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    ledger = disk.restore("backup")
    assert ledger.history_fault() is None
    disk.charge("2")
    assert disk.spent()["people"] == times(2)


def test_it_can_be_restored_again_and_again(disk: Disk) -> None:
    disk.charge("1")
    for turn in range(2, 5):
        disk.save(f"backup {turn}")
        disk.charge(str(turn))
        disk.restore(f"backup {turn}").acknowledge("again")
        assert disk.spent()["people"] == times(turn)


def test_an_account_past_its_cap_is_debited_past_it(disk: Disk) -> None:
    disk.save("backup")
    most = PrivacyCost(epsilon=900, delta=0, rho=10_000, rho_delta=0)
    disk.charge("1", debt=most)  # one of the two tests is far past its cap
    truth = disk.spent()
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert disk.spent() == truth
    assert ledger.verified()["ok"] is True


def test_a_cap_that_was_lowered_in_the_lost_part_is_lowered_again(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    lower = Cap(20, 20, 20, 20)
    disk.ledger.set_cap("people", lower)
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert ledger.store.account("people") == Account("people", lower, times(1))


def test_a_cap_that_was_raised_in_the_lost_part_is_not_raised(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    disk.ledger.set_cap("people", replace(CAP, epsilon=5000))
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert ledger.store.account("people") == Account("people", CAP, times(1))


def test_a_receipt_of_the_lost_part_changes_nothing(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    head = disk.charge("2").head
    receipt = disk.ledger.sign({"seq": head.seq, "epoch": head.epoch, "head": head.hash})
    ledger = disk.restore("backup")
    assert ledger.has_receipt(receipt) is False
    ledger.acknowledge("restored")
    assert measured(ledger)
    assert disk.spent()["people"] == times(2)


def test_a_receipt_that_the_anchor_never_saw_spends_everything(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup", anchor=True)
    head = disk.charge("2").head
    receipt = disk.ledger.sign({"seq": head.seq, "epoch": head.epoch, "head": head.hash})
    ledger = disk.restore("backup", anchor=True)  # together: the anchor knows nothing of it
    assert ledger.history_fault() is None
    assert ledger.has_receipt(receipt) is False
    ledger.acknowledge("restored")
    assert not measured(ledger)
    assert ledger.has_lost()
    assert disk.spent()["people"] == PrivacyCost(1000, 1000, 1000, 1000)


def test_two_histories_are_both_charged(disk: Disk) -> None:
    disk.charge("1")
    disk.save("night", anchor=True)
    for op in ("2", "3", "4"):
        disk.charge(op)
    disk.save("newest")
    disk.restore("night", anchor=True)
    disk.charge("5")
    disk.restore("newest").acknowledge("the newest disk was found")
    assert disk.spent()["people"] == times(5)  # 1, then 2 to 4 here, then 5 there


def test_an_anchor_without_sums_spends_everything(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    disk.charge("2")
    _as_older_versions_wrote_it(disk.folder / "anchor")
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert not measured(ledger)
    assert disk.spent()["people"] == PrivacyCost(1000, 1000, 1000, 1000)


def test_an_anchor_of_an_older_version_begins_to_hold_sums_when_it_is_opened(disk: Disk) -> None:
    disk.charge("1")
    _as_older_versions_wrote_it(disk.folder / "anchor")
    disk.save("backup")
    ledger = disk.restore("backup")
    assert ledger.history_fault() is None
    disk.charge("2", "bob")
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert disk.spent() == {"people": times(2), "user ann": times(1), "user bob": times(1)}


def test_what_an_older_version_charged_meanwhile_is_not_forgotten(disk: Disk) -> None:
    disk.charge("1")
    disk.save("backup")
    outcome = disk.ledger.store.charge(asked("2"), disk.ledger.anchor.read())
    assert isinstance(outcome, Charged)
    _write_as_older_versions_do(disk.folder / "anchor", outcome.head)
    assert disk.ledger.anchor.sums() is None
    disk.charge("3")
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert not measured(ledger)


@pytest.mark.parametrize("back", [1, 5, 40, 90])
def test_a_record_that_is_damaged_tells_nothing(disk: Disk, back: int) -> None:
    disk.charge("1")
    disk.save("backup")
    disk.charge("2")
    path = disk.folder / "anchor"
    content = bytearray(path.read_bytes())
    content[-back] ^= 1
    path.write_bytes(content)
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    assert not measured(ledger)


def test_a_damaged_record_is_healed_where_the_ledger_is_whole(disk: Disk) -> None:
    disk.charge("1")
    disk.charge("2")
    path = disk.folder / "anchor"
    path.write_bytes(path.read_bytes()[:-9])
    disk.save("now")
    disk.restore("now")
    sums = disk.ledger.anchor.sums()
    assert sums is not None
    assert {one.account.name: one.account.spent for one in sums.accounts} == disk.spent()


def test_a_freeze_for_another_reason_spends_everything(disk: Disk) -> None:
    disk.charge("1")
    disk.ledger.store.freeze("somebody looked at the disk")
    disk.ledger.acknowledge("nobody knows")
    assert not measured(disk.ledger)
    assert disk.spent()["people"] == PrivacyCost(1000, 1000, 1000, 1000)


def test_a_chain_that_does_not_hold_spends_everything(disk: Disk) -> None:
    import apsw

    disk.charge("1")
    disk.save("backup")
    disk.charge("2")
    ledger = disk.restore("backup")
    link = apsw.Connection(disk.place.where)
    link.execute("UPDATE ledger_accounts SET spent_epsilon = 0")
    link.close()
    ledger.acknowledge("restored")
    assert not measured(ledger)


def test_records_are_folded_and_nothing_of_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchors, "FOLD_BYTES", 2000)
    monkeypatch.setattr("sfumato.storage.anchor_sums.MARKS", 8)
    disk = Disk(tmp_path)
    disk.charge("0")
    disk.save("backup")
    disk.restore("backup")
    sizes = []
    small = PrivacyCost(1, 1, 1, 0)
    for turn in range(60):
        disk.charge(f"op {turn}", f"user {turn % 3}", debt=small)
        sums = disk.ledger.anchor.sums()
        assert sums is not None
        known = {one.account.name: one.account.spent for one in sums.accounts}
        assert known == disk.spent()
        sizes.append((disk.folder / "anchor").stat().st_size)
        assert _sums_by_the_older_slot(disk) is not None  # if the newest is torn, that is read
    assert sizes[-1] < 8192 + 12_000  # what 60 records take without folding is twice that
    truth = disk.spent()
    ledger = disk.restore("backup")
    ledger.acknowledge("restored")
    spent = disk.spent()["people"]  # of the few places that are kept none is the backup's own:
    assert truth["people"].epsilon < spent.epsilon <= truth["people"].epsilon + 10  # twice, then


ACTS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.integers(1, 9), st.booleans()), max_size=8
)


@settings(max_examples=25, deadline=None)
@given(before=ACTS, after=ACTS, settled=st.booleans())
def test_whatever_was_charged_is_charged_after_a_restore(
    tmp_path_factory: pytest.TempPathFactory,
    before: Sequence[tuple[str, int, bool]],
    after: Sequence[tuple[str, int, bool]],
    settled: bool,
) -> None:
    disk = Disk(tmp_path_factory.mktemp("disk"))
    charged = [*before, *after]
    for turn, (user, amount, ends) in enumerate(charged):
        if turn == len(before):
            disk.save("backup")
        disk.charge(f"{turn}", user, debt=PrivacyCost(amount, 0, amount, 0))
        if ends or settled:
            disk.ledger.settle(user, f"{turn}", "an answer")
    if not after:
        disk.save("backup")
    truth = disk.spent()
    ledger = disk.restore("backup")
    if ledger.history_fault() is not None:
        ledger.acknowledge("restored")
        assert measured(ledger)
    assert disk.spent() == truth


def _sums_by_the_older_slot(disk: Disk) -> AnchorSums | None:
    content = bytearray((disk.folder / "anchor").read_bytes())
    turns = [json.loads(content[at + 64 : at + SLOT_BYTES].rstrip(b"\n"))["turn"] for at in SLOTS]
    newest = SLOTS[turns.index(max(turns))]
    content[newest : newest + SLOT_BYTES] = bytes(SLOT_BYTES)
    (disk.folder / "torn").write_bytes(content)
    return FileAnchor(disk.folder / "torn").sums()


def _as_older_versions_wrote_it(path: Path) -> None:
    """Leave the newest mark alone, without sums."""
    mark = FileAnchor(path).read()
    assert mark is not None
    path.unlink()
    FileAnchor(path).advance(LedgerHead(mark.ledger, mark.epoch, mark.seq, mark.hash))


def _write_as_older_versions_do(path: Path, head: LedgerHead) -> None:
    """Write a head into the slot that does not hold the newest, as a version without sums does."""
    other = path.parent / "other"
    FileAnchor(other).advance(head)
    slot = other.read_bytes()[:SLOT_BYTES]
    content = bytearray(path.read_bytes())
    seqs = [_seq_in(content[place + 64 : place + SLOT_BYTES]) for place in SLOTS]
    place = SLOTS[seqs.index(min(seqs))]
    content[place : place + SLOT_BYTES] = slot
    path.write_bytes(content)


def _seq_in(text: bytes | bytearray) -> int:
    stripped = bytes(text).strip(b"\n\x00")
    return int(json.loads(stripped)["seq"]) if stripped else -1


def test_what_is_written_together_is_known_to_the_anchor_whole(disk: Disk) -> None:
    disk.charge("0")
    disk.save("backup")
    tight = (Debtor("tight", Cap(5, 5, 5, 5)),)
    charges = [asked(f"{n}", f"{n}", f"user {n}") for n in range(5)]
    refused = asked("no", "no", "zoe", debtors=(*charges[0].debtors, *tight))
    paid = disk.ledger.charge_all([*charges[:2], refused, *charges[2:]])
    assert [one is None for one in paid] == [False, False, True, False, False, False]
    settled = disk.ledger.settle_all(
        [AnswerToStore(f"user {n}", f"{n}", "x", ()) for n in range(5)]
    )
    heads = [one.head for one in (*paid, *settled) if isinstance(one, Charged | Settled)]
    sums = disk.ledger.anchor.sums()
    assert sums is not None
    assert {one.account.name: one.account.spent for one in sums.accounts} == disk.spent()
    assert {ChainPosition(head.epoch, head.seq, head.hash) for head in heads} <= set(sums.marks)
    truth = disk.spent()
    disk.restore("backup").acknowledge("restored")
    assert disk.spent() == truth


def test_a_receipt_of_another_history_than_the_anchors_spends_everything(disk: Disk) -> None:
    disk.charge("1")
    disk.save("night", anchor=True)
    disk.charge("2")
    disk.charge("3")
    head = disk.charge("4").head
    receipt = disk.ledger.sign({"seq": head.seq, "epoch": head.epoch, "head": head.hash})
    disk.restore("night", anchor=True)
    for op in ("5", "6", "7", "8"):
        disk.charge(op)
    ledger = disk.restore("night")  # the anchor knows what is lost of this history, not of that
    assert ledger.has_receipt(receipt) is False
    ledger.acknowledge("restored twice")
    assert not measured(ledger)
    assert disk.spent()["people"] == PrivacyCost(1000, 1000, 1000, 1000)
