"""Readiness check: whether the service can charge, read rows and write to disk; reads no row."""

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

LEDGER_S: Final = 1.0  # the lifetime in seconds of the cached results for ledger and disks
# the lifetime in seconds of the engine's result, because its check may start a process
ENGINE_S: Final = 30.0
FREE: Final = 256 << 20  # a disk with fewer free bytes counts as full
STARTING, NO_ENGINE, DISK = "starting", "engine-unavailable", "disk"


@dataclass
class _Seen:
    """The cached result of a check.

    While one thread runs the check, all others get the old result.
    """

    found: tuple[str, ...] = (STARTING,)
    at: float = -1e9
    looking: threading.Lock = field(default_factory=threading.Lock)

    def told(self, for_s: float, look: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
        """Return the cached result of the check `look`, or a new one.

        If the result is older than `for_s` seconds and no other thread runs the check, run it
        first.
        """
        if time.monotonic() - self.at > for_s and self.looking.acquire(blocking=False):
            try:
                self.found = look()
                self.at = time.monotonic()
            finally:
                self.looking.release()
        return self.found


@dataclass
class Readiness:
    """Checks whether the service is ready, and which of its parts are missing; caches results.

    Attributes:
        ledger: the ledger, which gets the same check as before each charge.
        catalogue: the catalogue, with the frozen data sets.
        can_read: returns whether an engine process is running or can be started.
        folders: the folders of the vault and its anchor, by the names to show.
    """

    ledger: Ledger
    catalogue: Catalogue
    can_read: Callable[[], bool]
    folders: Mapping[str, Path]
    _charges: _Seen = field(default_factory=_Seen)
    _reads: _Seen = field(default_factory=_Seen)

    def missing(self) -> tuple[str, ...]:
        """Return the codes of what keeps the service from being ready; () if it is ready.

        All codes come from a fixed list.
        """
        found = (*self._charges.told(LEDGER_S, self._look), *self._reads.told(ENGINE_S, self._read))
        return tuple(dict.fromkeys(found))

    def measures(self) -> Json:
        """Return the metrics for operators: ledger, anchor, frozen data sets, free disk space."""
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
        """Return the code with which the ledger would refuse a charge now; None if it would not."""
        try:
            refused = self.ledger.history_fault()
        except Refused as error:  # the ledger's database can't be reached
            return error.code
        return None if refused is None else refused.code

    def _read(self) -> tuple[str, ...]:
        return () if self.can_read() else (NO_ENGINE,)


def _free(folder: Path) -> int:
    """Return the free bytes of a folder's disk; 0 if it is read-only or can't be read."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return 0
    return 0 if disk.f_flag & os.ST_RDONLY else disk.f_bavail * disk.f_frsize


def _rounded(size: int) -> int:
    """Round a size down to a power of two, so that a query hardly changes the metric."""
    return 1 << (size.bit_length() - 1) if size else 0
