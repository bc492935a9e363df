"""The anchor: one small file, kept away from the ledger, by which a rolled-back ledger is noticed.

Two slots, each in a sector of its own and with its own checksum, are written in turn, so that a
torn write leaves the mark before it. Writers take a file lock: an older head never covers a newer.
Marks that wait at once cost one sync: the newest of them is made durable, and it stands for all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

from sfumato.core.account import AnchorMark, Head
from sfumato.core.chain import canonical
from sfumato.core.refusal import Refused
from sfumato.durable import make_folder, sync
from sfumato.together import Together

SLOTS: Final = (0, 4096)  # a sector each, whether sectors have 512 or 4096 bytes
SLOT_BYTES: Final = 1024
_DOMAIN: Final = b"sfumato-anchor/1\n"


class FileAnchor:
    """An Anchor in a file; safe for several processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._synced: AnchorMark | None = None  # the last that was made durable from here
        self._marks: Together[AnchorMark, None] = Together(self._advanced, self._newest_first)

    def read(self) -> AnchorMark | None:
        """Return the last mark, or None if no slot holds one (`missing` says why)."""
        return _newest(self._slots())

    def missing(self) -> str | None:
        """Return why there is no mark, or None if there is one."""
        slots = self._slots()
        if not slots:
            return "there is no anchor file"
        return None if _newest(slots) is not None else "both slots of the anchor file are damaged"

    def advance(self, head: Head) -> None:
        """Make the mark durable; a mark never goes back within an epoch, nor to an earlier one."""
        mark = AnchorMark(head.ledger, head.epoch, head.seq, head.hash)
        if not _is_covered(mark, self._synced):
            self._marks.done(mark)

    def _newest_first(self, marks: Sequence[AnchorMark]) -> None:
        """Make the newest durable; then the others, each by itself, have nothing left to do."""
        self._advanced(max(marks, key=_place_of))

    def _advanced(self, mark: AnchorMark) -> None:
        if _is_covered(mark, self._synced):
            return
        is_written = False
        with contextlib.suppress(OSError), _locked(self._path) as file:
            slots = _read_slots(file)
            if _is_news(_newest(slots), mark):
                _write(file, SLOTS[_older(slots)], mark)
            else:
                os.fdatasync(file)  # a newer mark's writer may have been killed before its sync
            is_written = True
            self._synced = mark
        if not is_written:
            raise Refused(
                "anchor-missing",
                "The ledger's anchor could not be written.",
                "Look at the disk that holds it.",
            )

    def _slots(self) -> list[AnchorMark | None]:
        """Return what the slots hold; nothing at all if there is no file."""
        slots: list[AnchorMark | None] = []
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


def _place_of(mark: AnchorMark) -> tuple[int, int]:
    return mark.epoch, mark.seq


def _is_covered(mark: AnchorMark, synced: AnchorMark | None) -> bool:
    """Say whether a mark that we have made durable says all that this one would."""
    if synced is None or synced.ledger != mark.ledger:
        return False
    return mark == synced or _place_of(mark) < _place_of(synced)


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


def _read_slots(file: int) -> list[AnchorMark | None]:
    read = os.pread(file, SLOTS[-1] + SLOT_BYTES, 0)
    return [_mark_in(read[place : place + SLOT_BYTES]) for place in SLOTS]


def _newest(slots: list[AnchorMark | None]) -> AnchorMark | None:
    marks = [mark for mark in slots if mark is not None]
    return max(marks, key=_place_of, default=None)


def _older(slots: list[AnchorMark | None]) -> int:
    """Return the slot to write: never the one that holds the newest mark."""
    newest = _newest(slots)
    return 1 if newest is not None and slots[0] == newest else 0


def _write(file: int, place: int, mark: AnchorMark) -> None:
    said = {"ledger": mark.ledger, "epoch": mark.epoch, "seq": mark.seq, "hash": mark.hash}
    text = canonical(said).encode("ascii")
    slot = (_checksum(text) + text).ljust(SLOT_BYTES, b"\n")
    try:
        if os.pwrite(file, slot, place) != len(slot):
            raise OSError("short write")
        os.fdatasync(file)
    except OSError:
        os.pwrite(file, bytes(SLOT_BYTES), place)  # a mark that was not synced must not be believed
        raise


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + text).hexdigest().encode("ascii")


@lru_cache(maxsize=8)
def _mark_in(slot: bytes) -> AnchorMark | None:
    """Return the mark, or None if the slot is empty, torn or altered."""
    checksum, text = slot[:64], slot[64:].rstrip(b"\n")
    if checksum != _checksum(text):
        return None
    found = json.loads(text)
    return AnchorMark(found["ledger"], found["epoch"], found["seq"], found["hash"])
