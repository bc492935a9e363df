"""An engine whose reading is a test's own; it is asked through the same port as a real one."""

from __future__ import annotations

from collections.abc import Callable

from sfumato.query.measure import Cells, Measure
from sfumato.vault.engine_port import (
    Described,
    EngineStopped,
    FolderDraft,
    Prepared,
    PrepareOrder,
)
from sfumato.vault.sealed import Sealed

Reading = Callable[[Measure], Sealed[Cells]]


class ScriptedEngine:
    """An engine whose reading is the test's own; it is asked through the same port."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.reads = 0

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        self.reads += 1
        return self.reading(measure)

    def prepare(self, order: PrepareOrder) -> Prepared:
        raise EngineStopped

    def describe(self, source: str, inner_table: str | None) -> Described:
        return Described(())

    def draft_folder(self, folder: str) -> Sealed[FolderDraft]:
        raise EngineStopped

    def forget(self, table: str) -> None:
        """Nothing is kept."""

    def self_test(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        """Nothing is held."""
