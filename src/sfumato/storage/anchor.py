"""The anchor: a small file outside the vault that shows whether the ledger was rolled back.

The anchor holds a mark: the newest ledger head (last entry) that was made durable. Two slots, each
in its own sector and with a checksum, are written in turn, so that a torn write leaves the previous
mark. Writers take a file lock, so an older head never overwrites a newer one. Concurrent marks
share one sync (group commit): only the newest is written.

After the slots come records of what accounts have spent (`anchor_sums.py`). After a restore, the
records show exactly which debits are missing. A slot states which bytes hold its records; slots of
older versions hold only a mark. A record and its slot share one sync. When the records have grown,
they are folded into one record, in bytes that no slot in use points to.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.storage.anchor_sums import read, record, snapshot
from sfumato.system.durable_files import make_folder, sync
from sfumato.system.group_commit import GroupCommit
from sfumato.vault.hash_chain import canonical
from sfumato.vault.ledger_entries import (
    Account,
    AnchoredAccount,
    AnchorMark,
    AnchorSums,
    ChainPosition,
    LedgerHead,
)

SLOTS: Final = (0, 4096)  # offsets that lie in different sectors, of 512 or of 4096 bytes
SLOT_BYTES: Final = 1024
FIRST_RECORD: Final = 8192  # offset of the records, after both slots
FOLD_BYTES: Final = 131_072  # records are folded when they have grown to this many bytes,
FOLD_TIMES: Final = 4  # or to this many times their folded size, whichever is larger
_DOMAIN: Final = b"sfumato-anchor/1\n"


@dataclass(frozen=True)
class _Slot:
    """One of the anchor file's two slots: a ledger position, and where the spending records are."""

    mark: AnchorMark
    # start, end, and the end beyond which they are folded into one
    sums: tuple[int, int, int] | None = None
    turn: int = 0  # the slot with the larger number is the later of two with the same mark

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Return the sort key that orders slots by age: the newest slot has the largest key."""
        return self.mark.epoch, self.mark.seq, self.turn


@dataclass(frozen=True)
class _Step:
    """One write to the anchor: ledger heads, in order, and what accounts had spent.

    Each account has a ledger position of its own: its sums contain every debit up to there, and no
    later one.
    """

    heads: tuple[LedgerHead, ...]
    accounts: tuple[AnchoredAccount, ...]

    @property
    def head(self) -> LedgerHead:
        """Return the newest ledger head of this write."""
        return self.heads[-1]

    @property
    def position(self) -> tuple[int, int]:
        """Return the epoch and sequence number of the newest ledger head of this write."""
        return self.head.epoch, self.head.seq


class FileAnchor:
    """Anchor file, which shows whether a ledger was rolled back; several processes may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._synced: AnchorMark | None = None  # the last mark that this process made durable
        self._synced_accounts: dict[
            str, tuple[int, int]
        ] = {}  # the last durable state of accounts: name -> position
        self._has: Callable[[AnchorMark], bool] = lambda _: True
        self._steps: GroupCommit[_Step, None] = GroupCommit(self._advanced, self._all_at_once)

    def check_with(self, has: Callable[[AnchorMark], bool]) -> None:
        """Set `has`, which checks that the ledger contains the anchor file's present position.

        Two copies of a ledger may share one anchor, and both may read the same position. The first
        copy to advance succeeds. `advance` refuses the other copy, because its ledger lacks the new
        position.
        """
        self._has = has

    def read(self) -> AnchorMark | None:
        """Return the newest ledger position in the anchor file; None if it holds none.

        `missing` returns the reason for None.
        """
        newest = _newest(self._slots())
        return None if newest is None else newest.mark

    def missing(self) -> str | None:
        """Return why the anchor file holds no ledger position; None if it holds one."""
        slots = self._slots()
        if not slots:
            return "there is no anchor file"
        return None if _newest(slots) is not None else "both slots of the anchor file are damaged"

    def sums(self) -> AnchorSums | None:
        """Return what each account had spent at the newest ledger position in the anchor.

        Return None if the anchor's records are missing or damaged.
        """
        found: AnchorSums | None = None
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
                newest = _newest(_read_slots(file))
                if newest is not None and newest.sums is not None:
                    found = _sums_of(file, newest.sums)
            finally:
                os.close(file)
        return found

    def keep_sums(self, accounts: Sequence[Account], head: LedgerHead, mark: AnchorMark) -> bool:
        """Write the anchor's first record: what all accounts have spent at a ledger head.

        Return False and write nothing if `mark` is no longer the newest position. An older version
        of the program, which writes no records, may have charged since. Also return False if the
        file can't be written.
        """
        with contextlib.suppress(OSError), _locked(self._path) as file:
            slots = _read_slots(file)
            newest = _newest(slots)
            if newest is None or newest.mark != mark:
                return False
            place = ChainPosition(head.epoch, head.seq, head.hash)
            marks = sorted({ChainPosition(mark.epoch, mark.seq, mark.hash), place})
            known = tuple(AnchoredAccount(place, account) for account in accounts)
            at = max(FIRST_RECORD, os.fstat(file).st_size)
            kept = _keep(file, AnchorSums(known, tuple(marks)), at)
            _write(file, SLOTS[_older(slots)], _Slot(mark, kept, newest.turn + 1))
            return True
        return False

    def advance(
        self, head: LedgerHead, accounts: Sequence[Account] = (), before: Sequence[LedgerHead] = ()
    ) -> None:
        """Write a new ledger head to the anchor file, durably; never go back to an older head.

        The same write records what accounts have spent at that head. It also records the earlier
        heads in `before`, because receipts name them.
        """
        place = ChainPosition(head.epoch, head.seq, head.hash)
        known = tuple(AnchoredAccount(place, account) for account in accounts)
        step = _Step((*before, head), known)
        if not self._is_covered(step):
            self._steps.run(step)

    def _is_covered(self, step: _Step) -> bool:
        """Say whether the anchor file already has a head and accounts at least as new as these."""
        mark = AnchorMark(step.head.ledger, *step.position, step.head.hash)
        return _is_covered(mark, self._synced) and all(
            self._synced_accounts.get(one.account.name, (0, 0))
            >= (one.position.epoch, one.position.seq)
            for one in step.accounts
        )

    def _all_at_once(self, steps: Sequence[_Step]) -> None:
        """Write the steps of several threads to the anchor file by one write (group commit)."""
        ordered = sorted(steps, key=lambda step: step.position)
        last = {one.account.name: one for step in ordered for one in step.accounts}
        heads = tuple(head for step in ordered for head in step.heads)
        self._advanced(_Step(heads, tuple(last.values())))

    def _advanced(self, step: _Step) -> None:
        if self._is_covered(step):
            return
        is_written = False
        with contextlib.suppress(OSError), _locked(self._path) as file:
            slots = _read_slots(file)
            newest = _newest(slots)
            if newest is not None and newest.mark != self._synced and not self._has(newest.mark):
                raise _frozen("The ledger's history differs from the one that the anchor saw.")
            slot = _next_slot(file, newest, step)
            if slot == newest:
                os.fdatasync(file)  # the process that wrote it may have been killed before its sync
            else:
                _write(file, SLOTS[_older(slots)], slot)
            is_written = True
            self._synced = slot.mark
            for one in step.accounts:
                place = one.position.epoch, one.position.seq
                self._synced_accounts[one.account.name] = max(
                    place, self._synced_accounts.get(one.account.name, place)
                )
        if not is_written:
            raise Refused(
                "anchor-missing",
                "The ledger's anchor could not be written.",
                "Check that the disk with the anchor file is writable and has free space.",
            )

    def _slots(self) -> list[_Slot | None]:
        """Read both slots of the anchor file; return an empty list if there is no file."""
        slots: list[_Slot | None] = []
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                slots = _read_slots(file)
                # a write is in progress, or a slot is damaged: take the lock and read again
                if None in slots:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    slots = _read_slots(file)
            finally:
                os.close(file)
        return slots


def _next_slot(file: int, newest: _Slot | None, step: _Step) -> _Slot:
    """Append a step's record to the anchor file; return the slot that includes the record.

    If the file has no records of spending (an older version wrote it), append none.
    """
    mark = AnchorMark(step.head.ledger, *step.position, step.head.hash)
    is_news = _is_news(None if newest is None else newest.mark, mark)
    if newest is None:
        return _Slot(mark)
    if newest.sums is None:
        return _Slot(mark) if is_news else newest
    sums = _added(file, newest.sums, step)
    return _Slot(mark if is_news else newest.mark, sums, newest.turn + 1)


def _added(file: int, sums: tuple[int, int, int], step: _Step) -> tuple[int, int, int] | None:
    begin, end, most = sums
    line = record(step.heads, step.accounts)
    _put(file, line, end)
    end += len(line)
    if end < most:
        return begin, end, most
    known = _sums_of(file, (begin, end, most))
    if known is None:
        return None  # damaged; the next process that opens the vault writes new sums
    size = len(snapshot(known))
    return _keep(file, known, FIRST_RECORD if FIRST_RECORD + size <= begin else end)


def _keep(file: int, sums: AnchorSums, at: int) -> tuple[int, int, int]:
    """Write what all accounts have spent as one record; return where the record is.

    The result is the record's start and end, and a limit: when later records pass it, all records
    are folded into one again.
    """
    line = snapshot(sums)
    _put(file, line, at)
    return at, at + len(line), at + max(FOLD_BYTES, FOLD_TIMES * len(line))


def _sums_of(file: int, sums: tuple[int, int, int]) -> AnchorSums | None:
    begin, end, _ = sums
    return read(os.pread(file, end - begin, begin))


def _put(file: int, content: bytes, at: int) -> None:
    if os.pwrite(file, content, at) != len(content):
        raise OSError("short write")


def _is_covered(mark: AnchorMark, synced: AnchorMark | None) -> bool:
    """Say whether the synced ledger position is this one, or a newer one of the same ledger."""
    if synced is None or synced.ledger != mark.ledger:
        return False
    return mark == synced or (mark.epoch, mark.seq) < (synced.epoch, synced.seq)


def _is_news(old: AnchorMark | None, new: AnchorMark) -> bool:
    if old is None:
        return True
    if old.ledger != new.ledger:
        raise _frozen("The anchor belongs to another ledger.")
    if (old.epoch, old.seq) == (new.epoch, new.seq) and old.hash != new.hash:
        raise _frozen("The ledger's history differs from the one that the anchor saw.")
    return (new.epoch, new.seq) > (old.epoch, old.seq)


def _frozen(cause: str) -> Refused:
    return Refused(
        "ledger-frozen", cause, "Ask the owner to check the ledger and acknowledge the gap."
    )


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        make_folder(path.parent)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    sync(path.parent)
    return file


def _read_slots(file: int) -> list[_Slot | None]:
    found = os.pread(file, SLOTS[-1] + SLOT_BYTES, 0)
    return [_slot_in(found[offset : offset + SLOT_BYTES]) for offset in SLOTS]


def _newest(slots: list[_Slot | None]) -> _Slot | None:
    there = [slot for slot in slots if slot is not None]
    return max(there, key=lambda slot: slot.sort_key, default=None)


def _older(slots: list[_Slot | None]) -> int:
    """Return the index of the slot to overwrite: never the one with the newest position."""
    newest = _newest(slots)
    return 1 if newest is not None and slots[0] == newest else 0


def _write(file: int, offset: int, slot: _Slot) -> None:
    mark = slot.mark
    fields = {"ledger": mark.ledger, "epoch": mark.epoch, "seq": mark.seq, "hash": mark.hash}
    more = {} if slot.sums is None else {"sums": list(slot.sums), "turn": slot.turn}
    text = canonical({**fields, **more}).encode("ascii")
    try:
        _put(file, (_checksum(text) + text).ljust(SLOT_BYTES, b"\n"), offset)
        os.fdatasync(file)
    except OSError:
        os.pwrite(file, bytes(SLOT_BYTES), offset)  # erase a mark that was never synced
        raise


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + text).hexdigest().encode("ascii")


@lru_cache(maxsize=8)
def _slot_in(slot: bytes) -> _Slot | None:
    """Parse a slot of the anchor file; return None if the slot is empty, torn or altered."""
    checksum, text = slot[:64], slot[64:].rstrip(b"\n")
    if checksum != _checksum(text):
        return None
    found = json.loads(text)
    mark = AnchorMark(found["ledger"], found["epoch"], found["seq"], found["hash"])
    if "sums" not in found:
        return _Slot(mark)
    begin, end, most = found["sums"]
    return _Slot(mark, (begin, end, most), found["turn"])
