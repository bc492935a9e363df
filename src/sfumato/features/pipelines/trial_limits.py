"""Limits of a person's trials: one at a time, and so many processor seconds in an hour.

A trial uses synthetic people alone, but it holds the sandbox, for which others wait. It counts by
the processor seconds that its runs may have together, whatever they use. Each process counts for
itself.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.ports import Clock

# processor seconds of one person's trials in an hour: three of the longest plans
MOST_S: Final = 1800
HOUR: Final = timedelta(hours=1)


class TrialLimits:
    """The trials of the last hour, by person, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: defaultdict[str, deque[tuple[datetime, float]]] = defaultdict(deque)
        self._running: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, user: str, seconds: float) -> Iterator[None]:
        """Count a trial of so many processor seconds, and run the block as the person's only one.

        Refuse at once if another trial of the person runs, or if those of the last hour leave too
        little.
        """
        with self._lock:
            self._check(user, seconds)
            self._begun[user].append((self._now(), seconds))
            self._running.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(user)

    def _check(self, user: str, seconds: float) -> None:
        if user in self._running:
            raise Refused(
                "too-many",
                "Another trial of yours is running, and everybody has one at a time.",
                "Wait until it has ended, and repeat this.",
            )
        now, begun = self._now(), self._begun[user]
        while begun and begun[0][0] <= now - HOUR:
            begun.popleft()
        spent = sum(each for _, each in begun)
        if spent + seconds <= MOST_S:
            return
        minutes = math.ceil((self._free_at(begun, seconds) - now) / timedelta(minutes=1))
        raise Refused(
            "too-many",
            f"The runs of your trials may have {MOST_S:,} processor seconds together in an hour. "
            f"Those of the last hour had {spent:,g}, and this one needs {seconds:,g}.",
            f"Repeat this in {minutes} minutes. Or try fewer numbers of blocks (blocks), or give "
            "less processor time (cpu_s).",
        )

    def _free_at(self, begun: deque[tuple[datetime, float]], seconds: float) -> datetime:
        """Return when a trial of so many seconds may begin: when enough earlier ones are old."""
        left = sum(each for _, each in begun)
        for at, each in begun:
            left -= each
            if left + seconds <= MOST_S:
                return at + HOUR
        return self._now() + HOUR

    def _now(self) -> datetime:
        return datetime.fromisoformat(self._clock.now())
