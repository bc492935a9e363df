"""The lock of `reviewed (not DP)`: files that leave because people looked at them and said so.

No noise is on them. What reviewers see before is real and labelled so; what leaves is written into
the ledger first, hash by hash, for the record of everybody whose rows are in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.features.airlock.model import AirlockFiles, Held, Request, changed, seal_of, sum_of
from sfumato.release.ledger_guard import NOT_DP, Ledger
from sfumato.release.locks.k_anonymity import beside_dp
from sfumato.release.payment import stands_at
from sfumato.release.unseal import unseal
from sfumato.vault.ledger_entries import Entry
from sfumato.vault.sealed import Sealed

GUARANTEE: Final = "reviewed (not DP)"
REVIEWERS_ONLY: Final = "reviewers-only: computed from real rows without noise; show it to nobody"


def keep(store: AirlockFiles, found: Sealed[Held]) -> str:
    """Keep what a program has left where only the door reads; return its place."""
    return store.put(unseal(found))


def release_files(ledger: Ledger, request: Request, held: Held, findings: str) -> Json:
    """Write down what leaves, by its hashes, and at whose word; return where it stands, durable.

    It costs no epsilon, since no epsilon would be true of it. A request leaves once.
    """
    ledger.check_history()
    if noted(ledger, request.id) is None:
        seal = seal_of(held, findings)
        body: Json = {
            "guarantee": GUARANTEE,
            "people": request.people,
            "data_set": request.data_set,
            "version": request.version,
            "by": request.ended_by,
            "says": f"files of request {request.id}: {', '.join(sorted(held.files))}",
            "request": request.id,
            "author": request.author,
            "reviewers": list(request.approvals(seal)),
            "files": sums_of(held),
            "seal": seal,
        }
        ledger.note(NOT_DP, body)
    return receipt(ledger, request)


def noted(ledger: Ledger, request: str) -> tuple[Entry, Mapping[str, Any]] | None:
    """Return the entry by which a request's files have left, and what it says; or None."""
    for entry in ledger.store.notes(NOT_DP, 0):
        body: Mapping[str, Any] = json.loads(entry.body)  # Any: JSON of our own ledger
        if body.get("request") == request:
            return entry, body
    return None


def released(ledger: Ledger, request: Request, held: Held | None) -> Mapping[str, bytes]:
    """Return the files if they are, byte for byte, what the ledger says has left; or refuse."""
    found = noted(ledger, request.id)
    if found is None or held is None or sums_of(held) != found[1]["files"]:
        raise changed()
    return held.files


def receipt(ledger: Ledger, request: Request) -> Json:
    """Return the signed record of files that have left."""
    found = noted(ledger, request.id)
    if found is None:
        raise changed()
    entry, body = found
    signed: Json = {
        **stands_at(ledger.store.head().ledger, entry),
        "request": request.id,
        "files": body["files"],
    }
    return {
        "guarantee": GUARANTEE,
        **{key: body[key] for key in ("data_set", "version", "people", "reviewers", "files")},
        "request": request.id,
        "seq": entry.seq,
        "not_dp": beside_dp(ledger.not_dp(request.people)),
        **ledger.sign(signed),
    }


def sums_of(held: Held) -> Json:
    """Return each file's SHA-256."""
    return {path: sum_of(file) for path, file in sorted(held.files.items())}
