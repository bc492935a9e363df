"""Check whether the service can charge, read rows and write to its disks; read no row for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ports import Catalogue

LEDGER_S: Final = 1.0  # for which what was found of ledger and disks is told again
ENGINE_S: Final = 30.0  # and of the engine, of which a process may have to be started for it
FREE: Final = 256 << 20  # bytes; with less, a disk is full for whoever depends on it
STARTING, NO_ENGINE, DISK = "starting", "engine-unavailable", "disk"


@dataclass
class _Seen:
    """The last finding and its time; those who ask while one looks are told this."""

    found: tuple[str, ...] = (STARTING,)
    at: float = -1e9
    looking: threading.Lock = field(default_factory=threading.Lock)

    def told(self, for_s: float, look: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Return what was found lately; look again if that is old and nobody else does."""
        if time.monotonic() - self.at > for_s and self.looking.acquire(blocking=False):
            try:
                self.found = look()
                self.at = time.monotonic()
            finally:
                self.looking.release()
        return self.found


@dataclass
class Readiness:
    """What is missing for the service to do its work; has state.

    Attributes:
        ledger: which is looked at as before each charge.
        catalogue: of the data sets that owners have frozen.
        can_read: says whether a process that reads rows is there or can be started.
        folders: where the vault and its anchor lie, by the names that are told.
    """

    ledger: Ledger
    catalogue: Catalogue
    can_read: Callable[[], bool]
    folders: Mapping[str, Path]
    _charges: _Seen = field(default_factory=_Seen)
    _reads: _Seen = field(default_factory=_Seen)

    def missing(self) -> tuple[str, ...]:
        """Return what is missing, each by a code or a word of a closed list; nothing if ready."""
        found = (*self._charges.told(LEDGER_S, self._look), *self._reads.told(ENGINE_S, self._read))
        return tuple(dict.fromkeys(found))

    def measures(self) -> Json:
        """Return what an operator may measure: of the ledger, its anchor, freezes and disks."""
        head, mark = self.ledger.store.head(), self.ledger.anchor.read()
        names = self.catalogue.names()
        return {
            "missing": list(self.missing()),
            "ledger": {"frozen": self.ledger.store.frozen() is not None},
            "anchor": {
                "there": mark is not None,
                "behind": None if mark is None else max(0, head.seq - mark.seq),
            },
            "data_sets": {
                "all": len(names),
                "frozen": sum(self.catalogue.is_frozen(name) for name in names),
            },
            "disks": [
                {"place": place, "free": _rounded(_free(folder))}
                for place, folder in sorted(self.folders.items())
            ],
        }

    def _look(self) -> tuple[str, ...]:
        refused = self._refusal()
        is_full = any(_free(folder) < FREE for folder in self.folders.values())
        return (*(() if refused is None else (refused,)), *((DISK,) if is_full else ()))

    def _refusal(self) -> str | None:
        """Return the code of what keeps the ledger from a charge, or None."""
        try:
            refused = self.ledger.history()
        except Refused as error:  # it cannot be reached
            return error.code
        return None if refused is None else refused.code

    def _read(self) -> tuple[str, ...]:
        return () if self.can_read() else (NO_ENGINE,)


def _free(folder: Path) -> int:
    """Return the bytes that can be written there; none where nothing may be."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return 0
    return 0 if disk.f_flag & os.ST_RDONLY else disk.f_bavail * disk.f_frsize


def _rounded(size: int) -> int:
    """Return a power of two that is no more: what a run writes for a while moves it hardly ever."""
    return 1 << (size.bit_length() - 1) if size else 0
