"""Count, time and log calls in the vault process, without revealing anything about rows.

A question that fails after rows were read counts as answered: only its asker learns of the failure.
Only verbs that read no rows are timed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from sfumato.wire.query_json import Json

# the fields of a log line; it has no others
FIELDS: Final = ("at", "verb", "user", "outcome", "code")
AFTER_ROWS: Final = frozenset(
    {"question-failed", "question-frozen", "stream-failed", "stream-lost"}
)
# Only these verbs are timed: they read no row, draw no noise, wait for no read and hash no
# password. The time of any other verb may depend on rows (decision 0013).
TIMED: Final = frozenset(
    {
        "approvals", "begin", "budget", "card", "data-sets", "entries", "frozen-questions",
        "grants", "hello", "me", "policies", "price", "ready", "releases", "sheet", "spending",
        "tokens", "users", "verify-ledger",
    }
)  # fmt: skip
BOUNDS_S: Final = (0.005, 0.025, 0.1, 0.5, 2.0, 10.0)
# These verbs are not logged: the log must not reveal when, or in which order, ballots came.
UNWRITTEN: Final = frozenset({"survey-token", "survey-report", "survey-sheet", "survey"})


class CallMetrics:
    """Counts calls by verb and outcome since the process started, and logs them.

    Calls about a respondent's ballot are counted but not logged.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._began = time.time()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._took: dict[str, _Took] = {}
        self._lock = threading.Lock()

    def note(self, verb: str, user: str, code: object, took_s: float = 0.0) -> None:
        """Count a finished call of a verb, and log it if logging is on and the verb is one to log.

        The duration `took_s` is recorded for the timed verbs only, and never logged.
        """
        shown = code if code not in AFTER_ROWS else None
        outcome = "answered" if shown is None else "fault" if shown == "fault" else "refused"
        with self._lock:
            self._counts[verb, outcome] += 1
            if verb in TIMED:
                self._took.setdefault(verb, _Took()).note(took_s)
        if self._write is to_nowhere or verb in UNWRITTEN:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        values = (at, verb, user, outcome, shown)
        self._write(json.dumps(dict(zip(FIELDS, values, strict=True))) + "\n")

    def counts(self) -> Json:
        """Return the counts of calls and the durations of timed verbs as JSON."""
        with self._lock:
            found = sorted(self._counts.items())
            took = [{"verb": verb, **one.as_json()} for verb, one in sorted(self._took.items())]
        calls = [{"verb": verb, "outcome": how, "count": n} for (verb, how), n in found]
        return {"began": self._began, "calls": calls, "took": took}


class _Took:
    """A histogram of the durations of one verb (API operation), with their number and sum."""

    def __init__(self) -> None:
        self._within = [0] * len(BOUNDS_S)
        self._calls = 0
        self._all_s = 0.0

    def note(self, took_s: float) -> None:
        self._calls += 1
        self._all_s += took_s
        for place, bound_s in enumerate(BOUNDS_S):
            self._within[place] += took_s <= bound_s

    def as_json(self) -> Json:
        within = [[bound, count] for bound, count in zip(BOUNDS_S, self._within, strict=True)]
        return {"within": within, "calls": self._calls, "seconds": self._all_s}


def to_standard_error(line: str) -> None:
    """Write a log line to standard error, for the operator's journal."""
    sys.stderr.write(line)
    sys.stderr.flush()


def to_nowhere(_line: str) -> None:
    """Drop the log line, because logging is off."""
