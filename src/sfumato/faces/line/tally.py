"""What is counted and logged of the door's work: verbs and how they ended, nothing else.

What became of a question once rows were read is told to its asker alone: here it counts as
answered, whatever came of it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from sfumato.wire import Json

FIELDS: Final = ("at", "verb", "user", "outcome", "code")  # a log line has no others
AFTER_ROWS: Final = frozenset(
    {"question-failed", "question-frozen", "stream-failed", "stream-lost"}
)
# Of these no line is written: when a ballot came, and after which, is nobody's business.
UNWRITTEN: Final = frozenset({"survey-token", "survey-report", "survey-sheet", "survey"})


class Tally:
    """Counts since the process began, and a line for each call."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._began = time.time()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def note(self, verb: str, user: str, code: object) -> None:
        """Count a call that ended, and write its line."""
        shown = code if code not in AFTER_ROWS else None
        outcome = "answered" if shown is None else "fault" if shown == "fault" else "refused"
        with self._lock:
            self._counts[verb, outcome] += 1
        if self._write is to_nowhere or verb in UNWRITTEN:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values = (at, verb, user, outcome, shown)
        self._write(json.dumps(dict(zip(FIELDS, values, strict=True))) + "\n")

    def counts(self) -> Json:
        """Return what was counted."""
        with self._lock:
            found = sorted(self._counts.items())
        calls = [{"verb": verb, "outcome": how, "count": n} for (verb, how), n in found]
        return {"began": self._began, "calls": calls}


def to_standard_error(line: str) -> None:
    """Write a line where the operator's journal takes it."""
    sys.stderr.write(line)
    sys.stderr.flush()


def to_nowhere(_line: str) -> None:
    """Write nothing."""
