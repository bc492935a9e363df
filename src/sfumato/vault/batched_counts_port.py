"""Counts of a table's rows that are read in one pass, each with a number of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sfumato.query.measure import Cells, Measure
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.sealed import Sealed


@runtime_checkable
class LookingEngine(Protocol):
    """An engine that counts for many in one pass over the rows."""

    def look(
        self, wanted: Sequence[tuple[str, Measure]]
    ) -> Sequence[Sealed[Cells] | EngineStopped]:
        """Return what each count of a table's rows is, as `measure` would; or what stopped it."""
        ...
