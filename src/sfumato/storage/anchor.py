"""The anchor: one small file, kept away from the ledger, by which a rolled-back ledger is noticed.

Two slots, each in a sector of its own and with its own checksum, are written in turn, so that a
torn write leaves the mark before it. Writers take a file lock: an older head never covers a newer.
Marks that wait at once cost one sync: the newest of them is made durable, and it stands for all.

Behind the slots are records of what accounts have spent (`anchor_sums.py`), so that after a restore
exactly what is missing can be charged. A slot says which bytes hold them; one that says nothing, as
older versions write it, holds a mark alone. A record and its slot are made durable by one sync.
When records have grown, they are folded into one, in bytes that no slot in use points to.
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
    ChainPlace,
    LedgerHead,
)

SLOTS: Final = (0, 4096)  # a sector each, whether sectors have 512 or 4096 bytes
SLOT_BYTES: Final = 1024
FIRST_RECORD: Final = 8192  # where the records begin, behind both slots
FOLD_BYTES: Final = 131_072  # records are folded when there are this many bytes of them,
FOLD_TIMES: Final = 4  # or this many times what they are when they are folded
_DOMAIN: Final = b"sfumato-anchor/1\n"


@dataclass(frozen=True)
class _Slot:
    """What a slot holds: a mark, and the region of the records that belong to it."""

    mark: AnchorMark
    sums: tuple[int, int, int] | None = None  # from, to, and where they are to be folded
    turn: int = 0  # which of two slots with one mark was written later

    @property
    def place(self) -> tuple[int, int, int]:
        """Return what tells the later of two slots."""
        return self.mark.epoch, self.mark.seq, self.turn


@dataclass(frozen=True)
class _Step:
    """Heads to be marked, the last of them the newest, and accounts, each as it stood somewhere.

    An account keeps its own place: of what was debited behind it, it says nothing.
    """

    heads: tuple[LedgerHead, ...]
    accounts: tuple[AnchoredAccount, ...]

    @property
    def head(self) -> LedgerHead:
        """Return the newest head."""
        return self.heads[-1]

    @property
    def place(self) -> tuple[int, int]:
        """Return how far the chain has come."""
        return self.head.epoch, self.head.seq


class FileAnchor:
    """An Anchor in a file; safe for several processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._synced: AnchorMark | None = None  # the last that was made durable from here
        self._told: dict[str, tuple[int, int]] = {}  # accounts that were, and as of which place
        self._has: Callable[[AnchorMark], bool] = lambda _: True
        self._steps: GroupCommit[_Step, None] = GroupCommit(self._advanced, self._all_at_once)

    def check_with(self, has: Callable[[AnchorMark], bool]) -> None:
        """Refuse to advance over a mark that another process wrote and that the ledger lacks.

        Two copies of a ledger may share one anchor, and each may have read the mark before the
        other wrote its own: the first to advance goes on, the other is refused.
        """
        self._has = has

    def read(self) -> AnchorMark | None:
        """Return the last mark, or None if no slot holds one (`missing` says why)."""
        newest = _newest(self._slots())
        return None if newest is None else newest.mark

    def missing(self) -> str | None:
        """Return why there is no mark, or None if there is one."""
        slots = self._slots()
        if not slots:
            return "there is no anchor file"
        return None if _newest(slots) is not None else "both slots of the anchor file are damaged"

    def sums(self) -> AnchorSums | None:
        """Return what accounts had spent by the last mark, or None if not all of it is known."""
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
        """Begin to hold what accounts have spent: all of them, as they stand at that head.

        Nothing is done, and False returned, if the mark is not the last one any more: somebody who
        knows of no sums may have charged since.
        """
        with contextlib.suppress(OSError), _locked(self._path) as file:
            slots = _read_slots(file)
            newest = _newest(slots)
            if newest is None or newest.mark != mark:
                return False
            place = ChainPlace(head.epoch, head.seq, head.hash)
            marks = sorted({ChainPlace(mark.epoch, mark.seq, mark.hash), place})
            known = tuple(AnchoredAccount(place, account) for account in accounts)
            at = max(FIRST_RECORD, os.fstat(file).st_size)
            kept = _keep(file, AnchorSums(known, tuple(marks)), at)
            _write(file, SLOTS[_older(slots)], _Slot(mark, kept, newest.turn + 1))
            return True
        return False

    def advance(
        self, head: LedgerHead, accounts: Sequence[Account] = (), before: Sequence[LedgerHead] = ()
    ) -> None:
        """Make the mark durable; a mark never goes back within an epoch, nor to an earlier one.

        With it goes how accounts stand at that head, and which heads receipts name `before` it.
        """
        place = ChainPlace(head.epoch, head.seq, head.hash)
        known = tuple(AnchoredAccount(place, account) for account in accounts)
        step = _Step((*before, head), known)
        if not self._is_covered(step):
            self._steps.done(step)

    def _is_covered(self, step: _Step) -> bool:
        """Say whether what we have made durable says all that this step would."""
        mark = AnchorMark(step.head.ledger, *step.place, step.head.hash)
        return _is_covered(mark, self._synced) and all(
            self._told.get(one.account.name, (0, 0)) >= (one.place.epoch, one.place.seq)
            for one in step.accounts
        )

    def _all_at_once(self, steps: Sequence[_Step]) -> None:
        """Make all steps durable with one write; later each has nothing left to do."""
        ordered = sorted(steps, key=lambda step: step.place)
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
                raise _frozen("The ledger's history is not the one that the anchor saw.")
            slot = _next_slot(file, newest, step)
            if slot == newest:
                os.fdatasync(file)  # its writer may have been killed before its sync
            else:
                _write(file, SLOTS[_older(slots)], slot)
            is_written = True
            self._synced = slot.mark
            for one in step.accounts:
                place = one.place.epoch, one.place.seq
                self._told[one.account.name] = max(place, self._told.get(one.account.name, place))
        if not is_written:
            raise Refused(
                "anchor-missing",
                "The ledger's anchor could not be written.",
                "Look at the disk that holds it.",
            )

    def _slots(self) -> list[_Slot | None]:
        """Return what the slots hold; nothing at all if there is no file."""
        slots: list[_Slot | None] = []
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                slots = _read_slots(file)
                if None in slots:  # it is being written, or damaged: look while nobody writes
                    fcntl.flock(file, fcntl.LOCK_SH)
                    slots = _read_slots(file)
            finally:
                os.close(file)
        return slots


def _next_slot(file: int, newest: _Slot | None, step: _Step) -> _Slot:
    """Add the step's record behind those that are there; return the slot that says so."""
    mark = AnchorMark(step.head.ledger, *step.place, step.head.hash)
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
        return None  # damaged: the next who opens the ledger holds it against the ledger's own
    size = len(snapshot(known))
    return _keep(file, known, FIRST_RECORD if FIRST_RECORD + size <= begin else end)


def _keep(file: int, sums: AnchorSums, at: int) -> tuple[int, int, int]:
    """Write all that is known into one record; return its region, and when to fold again."""
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
    """Say whether a mark that we have made durable says all that this one would."""
    if synced is None or synced.ledger != mark.ledger:
        return False
    return mark == synced or (mark.epoch, mark.seq) < (synced.epoch, synced.seq)


def _is_news(old: AnchorMark | None, new: AnchorMark) -> bool:
    if old is None:
        return True
    if old.ledger != new.ledger:
        raise _frozen("The anchor belongs to another ledger.")
    if (old.epoch, old.seq) == (new.epoch, new.seq) and old.hash != new.hash:
        raise _frozen("The ledger's history is not the one that the anchor saw.")
    return (new.epoch, new.seq) > (old.epoch, old.seq)


def _frozen(cause: str) -> Refused:
    return Refused("ledger-frozen", cause, "Ask the owner to look at it and acknowledge.")


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
    return [_slot_in(found[place : place + SLOT_BYTES]) for place in SLOTS]


def _newest(slots: list[_Slot | None]) -> _Slot | None:
    there = [slot for slot in slots if slot is not None]
    return max(there, key=lambda slot: slot.place, default=None)


def _older(slots: list[_Slot | None]) -> int:
    """Return the slot to write: never the one that holds the newest mark."""
    newest = _newest(slots)
    return 1 if newest is not None and slots[0] == newest else 0


def _write(file: int, place: int, slot: _Slot) -> None:
    mark = slot.mark
    said = {"ledger": mark.ledger, "epoch": mark.epoch, "seq": mark.seq, "hash": mark.hash}
    more = {} if slot.sums is None else {"sums": list(slot.sums), "turn": slot.turn}
    text = canonical({**said, **more}).encode("ascii")
    try:
        _put(file, (_checksum(text) + text).ljust(SLOT_BYTES, b"\n"), place)
        os.fdatasync(file)
    except OSError:
        os.pwrite(file, bytes(SLOT_BYTES), place)  # a mark that was not synced must not be believed
        raise


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + text).hexdigest().encode("ascii")


@lru_cache(maxsize=8)
def _slot_in(slot: bytes) -> _Slot | None:
    """Return what the slot holds, or None if it is empty, torn or altered."""
    checksum, text = slot[:64], slot[64:].rstrip(b"\n")
    if checksum != _checksum(text):
        return None
    found = json.loads(text)
    mark = AnchorMark(found["ledger"], found["epoch"], found["seq"], found["hash"])
    if "sums" not in found:
        return _Slot(mark)
    begin, end, most = found["sums"]
    return _Slot(mark, (begin, end, most), found["turn"])
