"""Progress of training runs, read from this site's ledger; reads no row.

Loss and accuracy are of the model at the start of a round, on public rows. The convener reports
them, and also what the other sites have paid. The ledger stores these reports with the round, and
the site verifies none of them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.features.federated.training_release import KIND as TRAINING
from sfumato.features.federated.training_release import ROUND
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ledger_entries import Entry, LedgerHead

MAX_RUNS: Final = 20  # the most training runs that are shown, the newest first
MAX_KEPT: Final = 64  # the most cache entries, by (data set, user)
LOOKED_AT: Final = 2000  # the number of newest charges among which training runs are searched
_LAST: Final = 2**62
SECONDS: Final = 19  # characters of a timestamp, up to seconds
_COPIED: Final = ("says", "guarantee", "against", "bounding", "version")


class ProgressCache:
    """A cache of training progress, valid while the ledger has not grown.

    A page polls twice a second for up to an hour, and each read scans the ledger.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, str | None], tuple[LedgerHead, str]] = {}

    def lessons(self, ledger: Ledger, data_set: str, user: str | None) -> Json:
        """Return a data set's training runs, recomputed only after a new ledger entry."""
        head, key = ledger.store.head(), (data_set, user)
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None and before[0] == head:
                self._entries[key] = before
                return dict(json.loads(before[1]))
        found = lessons_of(ledger, data_set, user)
        with self._lock:
            while len(self._entries) >= MAX_KEPT:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = head, json.dumps(found)
        return found


def lessons_of(ledger: Ledger, data_set: str, user: str | None) -> Json:
    """Return a data set's newest training runs, at most 20 (MAX_RUNS): of all users, or of one."""
    paid = [one for one in _charges(ledger, data_set) if user in (None, one[1]["user"])][:MAX_RUNS]
    rounds = _rounds(ledger, data_set, paid[-1][0].seq) if paid else {}
    found = [_shown(entry, body, rounds.get(str(body["op"]), [])) for entry, body in paid]
    is_open = any(one["used"] < one["rounds"] for one in found)
    used = sum(one["used"] for one in found)
    return {"lessons": found, "state": f"{len(found)}-{used}" if is_open else "done"}


def _charges(ledger: Ledger, data_set: str) -> list[tuple[Entry, Mapping[str, Any]]]:
    """Return a data set's ledger entries that charge for training runs, with parsed bodies."""
    charges = ledger.store.charges(_LAST, LOOKED_AT, data_set=data_set)
    read = ((entry, json.loads(entry.body)) for entry in charges if entry.kind == "charged")
    return [(entry, body) for entry, body in read if TRAINING in body["body"]]


def _rounds(ledger: Ledger, data_set: str, after: int) -> dict[str, list[Json]]:
    """Return a data set's training rounds whose ledger entries come after number `after`.

    They are grouped by the ledger operation that paid for the training run.
    """
    found: dict[str, list[Json]] = {}
    for entry in ledger.store.notes(ROUND, after):
        body = json.loads(entry.body)
        if body["data_set"] == data_set:
            paid = {"paid": body["paid"]} if "paid" in body else {}
            told: Json = {"round": body["round"], **body.get("told", {}), **paid}
            found.setdefault(str(body["op"]), []).append(told)
    return found


def _shown(entry: Entry, body: Mapping[str, Any], rounds: list[Json]) -> dict[str, Any]:
    said, terms = body["body"], body["body"][TRAINING]
    return {
        "lesson": terms["lesson"]["name"],
        "by": body["user"],
        "begun": entry.at[:SECONDS],
        "federation": terms["federation"]["name"],
        "sites": sorted(terms["federation"]["sites"]),
        "rounds": terms["lesson"]["rounds"],
        "used": len(rounds),
        "told": rounds,
        "epsilon": float(Fraction(said["epsilon"])),
        "delta": float(Fraction(said["delta"])),
        **{name: said[name] for name in _COPIED},
    }
