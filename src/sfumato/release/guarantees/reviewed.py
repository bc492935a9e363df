"""The release step of `reviewed (not DP)`: files that leave after output checking by people.

The files have no noise, and carry a label that says so. Reviewers see the real files. Before files
leave, the ledger records their hashes for all people whose rows are in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.features.airlock.model import (
    AirlockFiles,
    DraftFiles,
    Request,
    changed,
    seal_of,
    sum_of,
)
from sfumato.release.guarantees.k_anonymity import warning_beside_dp
from sfumato.release.ledger_guard import NOT_DP, Ledger
from sfumato.release.payment import stands_at
from sfumato.release.unseal import unseal
from sfumato.vault.ledger_entries import Entry
from sfumato.vault.sealed import Sealed

GUARANTEE: Final = "reviewed (not DP)"
REVIEWERS_ONLY: Final = "reviewers-only: computed from real rows without noise; show it to nobody"


def keep(store: AirlockFiles, found: Sealed[DraftFiles]) -> str:
    """Store a program's output files for output checking (airlock); return their storage place."""
    return store.put(unseal(found))


def release_files(ledger: Ledger, request: Request, held: DraftFiles, findings: str) -> Json:
    """Record in the ledger which files and approvers a request has; return the signed receipt.

    It costs no epsilon, because it has no DP guarantee. A second call for the same request records
    nothing new.
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
    """Return the ledger entry that released the files of a request, with its body; or None."""
    for entry in ledger.store.notes(NOT_DP, 0):
        body: Mapping[str, Any] = json.loads(entry.body)  # Any: JSON of our own ledger
        if body.get("request") == request:
            return entry, body
    return None


def released(ledger: Ledger, request: Request, held: DraftFiles | None) -> Mapping[str, bytes]:
    """Return the reviewed files if their hashes equal those in the ledger; otherwise refuse."""
    found = noted(ledger, request.id)
    if found is None or held is None or sums_of(held) != found[1]["files"]:
        raise changed()
    return held.files


def receipt(ledger: Ledger, request: Request) -> Json:
    """Return the signed receipt of a request's files; refuse if the ledger has no entry of them."""
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
        "not_dp": warning_beside_dp(ledger.not_dp(request.people)),
        **ledger.sign(signed),
    }


def sums_of(held: DraftFiles) -> Json:
    """Return the SHA-256 of each output file, by path."""
    return {path: sum_of(file) for path, file in sorted(held.files.items())}
