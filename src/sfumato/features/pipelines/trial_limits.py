"""Limits of a person's trials: one at a time, and so many seconds of a processor in an hour.

A trial uses synthetic people alone, but it holds the sandbox, for which others wait. It counts by
the time that its runs held a processor, until all that they left had ended: by the clock, because
ending a program can take long. It counts at least the time that as many blocks of a paid run have.
Each process of a service counts for itself.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.ports import Clock

# seconds by the clock for which the runs of one person's trials hold a processor in an hour
MOST_S: Final = 2700
HOUR: Final = timedelta(hours=1)


@dataclass
class Counted:
    """A trial and the seconds that it counts, which grow if its runs took longer."""

    at: datetime
    seconds: float

    def took(self, seconds: float) -> None:
        """Count so many seconds, if they are more than the trial was to count at least."""
        self.seconds = max(self.seconds, seconds)


class TrialLimits:
    """The trials of the last hour, by person, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: defaultdict[str, deque[Counted]] = defaultdict(deque)
        self._running: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, user: str, seconds: float) -> Iterator[Counted]:
        """Count a trial of at least so many seconds, and run the block as the person's only one.

        Refuse at once if another trial of the person runs, or if those of the last hour leave too
        little. A trial that needs more than an hour's seconds is one that needs all of them.
        """
        with self._lock:
            needed = min(seconds, MOST_S)
            self._check(user, needed)
            counted = Counted(self._now(), needed)
            self._begun[user].append(counted)
            self._running.add(user)
        try:
            yield counted
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
        while begun and begun[0].at <= now - HOUR:
            begun.popleft()
        spent = sum(one.seconds for one in begun)
        if spent + seconds <= MOST_S:
            return
        minutes = math.ceil((self._free_at(begun, seconds) - now) / timedelta(minutes=1))
        raise Refused(
            "too-many",
            f"The runs of your trials may take {MOST_S:,} seconds of a processor together in an "
            f"hour, by the clock. Those of the last hour took {spent:,.0f}, and this one needs "
            f"{math.ceil(seconds):,}.",
            f"Repeat this in {minutes} minutes. Or try fewer numbers of blocks (blocks), or give "
            "less processor time (cpu_s).",
        )

    def _free_at(self, begun: deque[Counted], seconds: float) -> datetime:
        """Return when a trial of so many seconds may begin: when enough earlier ones are old."""
        left = sum(one.seconds for one in begun)
        for one in begun:
            left -= one.seconds
            if left + seconds <= MOST_S:
                return one.at + HOUR
        return self._now() + HOUR

    def _now(self) -> datetime:
        return datetime.fromisoformat(self._clock.now())
