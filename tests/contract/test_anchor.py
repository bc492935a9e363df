"""The anchor: never back, never torn, and always able to tell a rolled-back ledger."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.refusal import Refused
from sfumato.storage.anchor import SLOT_BYTES, SLOTS, FileAnchor
from sfumato.vault.ledger_entries import Account, AnchorMark, Cap, LedgerHead
from sfumato.vault.ports import Anchor

ONE = LedgerHead("a", 1, 10, "10")


def _anchor(folder: Path) -> FileAnchor:
    return FileAnchor(folder / "away" / "deep" / "anchor")


def _at(seq: int, epoch: int = 1) -> LedgerHead:
    return LedgerHead("a", epoch, seq, str(seq))


def test_a_mark_is_read_back(tmp_path: Path) -> None:
    port: Anchor = _anchor(tmp_path)
    port.advance(ONE)
    assert port.read() == AnchorMark("a", 1, 10, "10")


def test_no_file_is_no_mark_and_says_so(tmp_path: Path) -> None:
    assert _anchor(tmp_path).read() is None
    assert _anchor(tmp_path).missing() == "there is no anchor file"


def test_a_mark_never_goes_back_within_an_epoch(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    for seq in (10, 12, 11, 3, 13, 9):
        anchor.advance(_at(seq))
    mark = anchor.read()
    assert mark is not None
    assert mark.seq == 13


def test_an_older_head_writes_nothing(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(_at(9))
    anchor.advance(_at(10, epoch=2))
    before = (tmp_path / "away" / "deep" / "anchor").read_bytes()
    for head in (_at(9, epoch=2), _at(10, epoch=2), _at(99)):
        anchor.advance(head)
        assert (tmp_path / "away" / "deep" / "anchor").read_bytes() == before


def test_a_new_epoch_may_begin_below_the_old_mark(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    for head in (_at(10), _at(12), _at(4, epoch=2), _at(99, epoch=1)):
        anchor.advance(head)
    assert anchor.read() == AnchorMark("a", 2, 4, "4")


def test_another_history_of_the_same_length_is_frozen(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)
    with pytest.raises(Refused) as refusal:
        anchor.advance(replace(ONE, hash="another"))
    assert refusal.value.code == "ledger-frozen"


def test_another_ledger_is_frozen(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)
    with pytest.raises(Refused) as refusal:
        anchor.advance(replace(ONE, ledger="b", seq=11))
    assert refusal.value.code == "ledger-frozen"


@pytest.mark.parametrize("last", [20, 21])
def test_a_torn_write_leaves_the_mark_before_it(tmp_path: Path, last: int) -> None:
    anchor = _anchor(tmp_path)
    for seq in range(10, last + 1):
        anchor.advance(_at(seq))
    path = tmp_path / "away" / "deep" / "anchor"
    whole = path.read_bytes()
    place = max(SLOTS, key=lambda slot: whole[slot : slot + SLOT_BYTES].find(b'"seq":%d' % last))
    for cut in range(0, 300, 7):
        torn = whole[: place + cut] + b"\xff" * 40 + whole[place + cut + 40 :]
        path.write_bytes(torn)
        mark = anchor.read()
        assert mark is not None
        assert mark.seq in ({last - 1} if cut < 180 else {last - 1, last})


def test_two_broken_slots_are_no_mark_and_say_so(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)
    path = tmp_path / "away" / "deep" / "anchor"
    path.write_bytes(bytes(len(path.read_bytes())))
    assert anchor.read() is None
    assert anchor.missing() == "both slots of the anchor file are damaged"


def test_the_newest_mark_is_never_the_one_that_is_overwritten(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    path = tmp_path / "away" / "deep" / "anchor"
    anchor.advance(_at(1))
    for seq in range(2, 12):
        before = path.read_bytes()
        anchor.advance(_at(seq))
        after = path.read_bytes()
        kept = [s for s in SLOTS if before[s : s + SLOT_BYTES] == after[s : s + SLOT_BYTES]]
        assert any(b'"seq":%d}' % (seq - 1) in after[slot : slot + SLOT_BYTES] for slot in kept)


def test_a_write_that_is_not_synced_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)

    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Refused) as refusal:
        anchor.advance(_at(11))
    assert refusal.value.code == "anchor-missing"
    assert anchor.read() == AnchorMark("a", 1, 10, "10")


def test_a_mark_that_failed_is_not_held_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)

    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(Refused):
        anchor.advance(_at(11))
    monkeypatch.undo()
    anchor.advance(_at(11))
    assert anchor.read() == AnchorMark("a", 1, 11, "11")


def test_marks_that_wait_at_once_cost_one_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor, gate, sync = _anchor(tmp_path), threading.Event(), os.fdatasync
    syncs: list[int] = []

    def slow(file: int) -> None:
        syncs.append(file)
        assert gate.wait(20)
        sync(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    with ThreadPoolExecutor(6) as pool:
        made = [pool.submit(anchor.advance, _at(11))]
        while not syncs:
            time.sleep(0.001)
        made += [pool.submit(anchor.advance, _at(seq)) for seq in (14, 16, 12, 13, 15)]
        while len(anchor._steps._queue) < 5:
            time.sleep(0.001)
        gate.set()
        for one in made:
            one.result(20)
    assert len(syncs) == 2
    assert anchor.read() == AnchorMark("a", 1, 16, "16")


def test_a_history_that_differs_is_noticed_behind_one_that_was_just_written(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)
    with pytest.raises(Refused) as refusal:
        anchor.advance(LedgerHead(ONE.ledger, ONE.epoch, ONE.seq, "another"))
    assert refusal.value.code == "ledger-frozen"


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    _anchor(tmp_path).advance(ONE)
    for path, mode in (("away", 0o700), ("away/deep", 0o700), ("away/deep/anchor", 0o600)):
        assert (tmp_path / path).stat().st_mode & 0o777 == mode


def test_a_place_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(Refused) as refusal:
        FileAnchor(tmp_path / "file" / "anchor").advance(ONE)
    assert refusal.value.code == "anchor-missing"


def test_many_processes_leave_the_highest_mark(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from sfumato.vault.ledger_entries import LedgerHead\nfrom sfumato.storage.anchor import FileAnchor\n"  # noqa: E501
        "for seq in range(int(sys.argv[2]), 200, 4):\n"
        "    FileAnchor(Path(sys.argv[1])).advance(LedgerHead('a', 1, seq, str(seq)))\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    writers = [subprocess.Popen([*command, str(n)], env={**os.environ}) for n in range(1, 5)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert FileAnchor(path).read() == AnchorMark("a", 1, 199, "199")


def _account(name: str, spent: int) -> Account:
    return Account(name, Cap(1000, 1000, 1000, 1000), PrivacyCost(spent, 0, spent, 0))


def test_a_write_that_was_torn_never_tells_a_wrong_sum(tmp_path: Path) -> None:
    anchor, path = _anchor(tmp_path), tmp_path / "away" / "deep" / "anchor"
    anchor.advance(ONE)
    assert anchor.keep_sums((_account("people", 5),), ONE, AnchorMark("a", 1, 10, "10"))
    anchor.advance(_at(11), (_account("people", 6),))
    before = path.read_bytes()
    anchor.advance(_at(12), (_account("people", 7),))
    after = path.read_bytes()
    old, new = before.ljust(len(after), b"\0"), after
    changed = [place for place in range(len(after)) if old[place] != new[place]]
    for last in (*changed[::7], len(after)):  # what lies before is on the disk, or what lies behind
        for torn in (new[:last] + old[last:], old[:last] + new[last:]):
            path.write_bytes(torn)
            again = FileAnchor(path)
            mark, sums = again.read(), again.sums()
            assert mark is not None
            told = None if sums is None else [one.account.spent.epsilon for one in sums.accounts]
            assert (mark.seq, told) in ((11, [6]), (12, [7]), (12, None))


def test_an_older_place_never_takes_back_what_a_later_one_spent(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)
    anchor.keep_sums((), ONE, AnchorMark("a", 1, 10, "10"))
    other = FileAnchor(tmp_path / "away" / "deep" / "anchor")  # as another process
    other.advance(_at(12), (_account("people", 7),))
    anchor.advance(_at(11), (_account("people", 6), _account("ann", 1)))
    sums = anchor.sums()
    assert sums is not None
    assert {a.account.name: a.account.spent.epsilon for a in sums.accounts} == {
        "people": 7, "ann": 1,
    }  # fmt: skip
    mark = anchor.read()
    assert mark is not None
    assert mark.seq == 12
    begun = os.stat(tmp_path / "away" / "deep" / "anchor").st_size
    anchor.advance(_at(11), (_account("people", 6), _account("ann", 1)))  # nothing that is new
    assert os.stat(tmp_path / "away" / "deep" / "anchor").st_size == begun


def test_who_comes_behind_marks_that_waited_at_once_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stood at 12 was held to be all until 15, where the newest of those that waited was."""
    anchor, gate, sync = _anchor(tmp_path), threading.Event(), os.fdatasync
    anchor.advance(ONE)
    anchor.keep_sums((), ONE, AnchorMark("a", 1, 10, "10"))
    syncs: list[int] = []

    def slow(file: int) -> None:
        syncs.append(file)
        assert gate.wait(20)
        sync(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    with ThreadPoolExecutor(3) as pool:
        made = [pool.submit(anchor.advance, _at(11))]
        while not syncs:
            time.sleep(0.001)
        made += [pool.submit(anchor.advance, _at(12), (_account("people", 1),))]
        made += [pool.submit(anchor.advance, _at(15), (_account("ann", 1),))]
        while len(anchor._steps._queue) < 2:
            time.sleep(0.001)
        gate.set()
        for one in made:
            one.result(20)
    anchor.advance(_at(14), (_account("people", 2),))
    sums = anchor.sums()
    assert sums is not None
    assert {a.account.name: (a.position.seq, a.account.spent.epsilon) for a in sums.accounts} == {
        "people": (14, 2), "ann": (15, 1),
    }  # fmt: skip


def test_sums_do_not_begin_behind_somebody_elses_mark(tmp_path: Path) -> None:
    anchor = _anchor(tmp_path)
    anchor.advance(ONE)
    anchor.advance(_at(11))
    assert not anchor.keep_sums((), ONE, AnchorMark("a", 1, 10, "10"))
    assert anchor.sums() is None
