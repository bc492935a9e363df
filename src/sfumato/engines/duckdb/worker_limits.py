"""What a worker of the embedded engine may use: a function of card and machine alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

_DEADLINE_S: Final = 60.0
_DAY_S: Final = 86_400.0
_ROW_S: Final = 0.5e-6  # of the slowest question, lower.py's windows, on one slow core
_MEMORY_MB: Final = 4096
_ROW_B: Final = 100  # of the same question
_MACHINE: Final = 0.75  # the share of the machine's memory that a worker may grow to


@dataclass(frozen=True)
class Limits:
    """What a worker may use: memory, threads, and time for a question or a preparation.

    Without limits of its own, a question has ten times what the slowest would take on as many rows
    as the card lets in, and never less than a minute and 4 GB (soundness rule 13); but never more
    than three quarters of the machine's memory.
    """

    memory_mb: int | None = None
    threads: int = max(1, os.cpu_count() or 1)
    deadline_s: float | None = None
    prepare_deadline_s: float = 4 * 3600.0
    idle_s: float = 300.0  # without a question, after which a worker is let go

    def deadline_of(self, rows: int, row_s: float = _ROW_S) -> float:
        """Return how long a question of so many rows may take; a function of the card alone.

        What is learnt may take longer a row than any question; but never more than a day.
        """
        if self.deadline_s is not None:
            return self.deadline_s
        usual = max(_DEADLINE_S, 10 * _ROW_S * rows)
        return max(usual, min(10 * row_s * rows, _DAY_S))

    def memory_of(self, rows: int) -> int:
        """Return how many megabytes a worker may use; a function of card and machine alone."""
        if self.memory_mb is not None:
            return self.memory_mb
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        wanted = max(_MEMORY_MB, 10 * _ROW_B * rows >> 20)
        return max(_MEMORY_MB, min(wanted, int(_MACHINE * machine)))
