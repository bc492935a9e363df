"""Limit the ledger entries of one user per day: free answers add entries, too."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.vault.ledger_entries import Charge, Charged, OperationState, Outcome, Paid

MOST_A_DAY: Final = 100_000  # entries; some 300 MB
DAY_S: Final = 86_400.0


class EntryQuota:
    """What each user has added since the process began, or since the last day of it; has state.

    A restart begins anew: this bounds how fast a ledger grows, and takes part in no price.
    """

    def __init__(self, most: int = MOST_A_DAY, now: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing added.

        Args:
            most: The entries that a user may add in a day.
            now: Seconds of a clock that never goes back.
        """
        self._most, self._now = most, now
        self._lock = threading.Lock()
        self._day = -1
        self._added: Counter[str] = Counter()

    def is_used_up(self, charge: Charge) -> bool:
        """Say whether its user may add no more today; ballots have limits of their own."""
        with self._lock:
            self._turn_day()
            return not charge.by_day and self._added[charge.user] >= self._most

    def add(self, charge: Charge, outcome: Paid | Outcome) -> None:
        """Count what the outcome of a charge adds: the debit and its end, or a repeat."""
        entries = 0
        if isinstance(outcome, Charged) and not outcome.paid_before:
            entries = 2
        elif isinstance(outcome, OperationState) and outcome.seq == outcome.head.seq:
            entries = 1
        with self._lock:
            self._turn_day()
            if entries:
                self._added[charge.user] += entries

    def refusal(self) -> Refused:
        """Return the refusal of one entry more."""
        return Refused(
            "too-many",
            f"The ledger takes {self._most:,} entries of one user in a day, and yours are used up.",
            "Ask again tomorrow. An answer that you have is read by its operation, free.",
        )

    def _turn_day(self) -> None:
        day = int(self._now() // DAY_S)
        if day != self._day:
            self._day = day
            self._added.clear()
