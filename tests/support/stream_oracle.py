"""Streams for tests: the rule in plain Python, and an engine of the test's own that follows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from sfumato.query.measure import Cells
from sfumato.vault.engine_port import CountPeriodOrder
from sfumato.vault.sealed import Sealed

Day = Mapping[str, int]  # person -> rows of a period, in the version that it was closed on


def taken_by_hand(days: Sequence[Day], most: int) -> list[dict[str, int]]:
    """Return what each person counts with in each period: what is left to them, at most."""
    used: Counter[str] = Counter()
    made = []
    for day in days:
        taken = {who: min(rows, most - used[who]) for who, rows in day.items()}
        used.update(taken)
        made.append(taken)
    return made


class CountedEngine:
    """A StreamEngine over rows that the test hands out, period by period; it keeps the blocks."""

    def __init__(self, day: Callable[[int], Day]) -> None:
        self._day = day
        self._used: Counter[str] = Counter()
        self._totals: list[int] = []
        self.blocks: list[int] = []

    def count_period(self, order: CountPeriodOrder) -> Sealed[Cells]:
        """Return the exact block, counted by hand; each period is asked for once, in order."""
        rows = self._day(order.end)
        taken = {who: min(n, order.rows - self._used[who]) for who, n in rows.items()}
        self._used.update(taken)
        self._totals.append(sum(taken.values()))
        block = sum(self._totals[order.first - 1 : order.end])
        self.blocks.append(block)
        Path(order.target).write_bytes(b"")
        return Sealed(Cells((np.array([block], dtype=np.int64),)))
