"""List airlock releases (output checking) from the ledger, next to the charged releases."""

from __future__ import annotations

import json
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.release.ledger_guard import NOT_DP
from sfumato.vault.ledger_entries import Entry
from sfumato.vault.ports import LedgerStore

SHOWN: Final = ("data_set", "version", "people", "says", "epsilon", "delta", "guarantee", "unit")


def is_reviewed(entry: Entry) -> bool:
    """Return True if a ledger entry releases files from the airlock."""
    return entry.kind == NOT_DP and "request" in _body(entry)


def reviewed_releases(store: LedgerStore, before: int, data_set: str | None) -> list[Entry]:
    """Return the airlock releases before the ledger entry number `before`, in ledger order.

    They are those of one data set, or of all.
    """
    return [
        entry
        for entry in store.notes(NOT_DP)
        if entry.seq < before
        and is_reviewed(entry)
        and data_set in (None, _body(entry)["data_set"])
    ]


def reviewed_json(store: LedgerStore, entry: Entry) -> Json:
    """Return an airlock release as JSON: author, program, files and reviewers.

    A release of reviewed files charges no account, so its field `charged` is empty.
    """
    body = _body(entry)
    return {
        "entry": entry.seq,
        "at": entry.at,
        "user": body["author"],
        "charged": [],
        "repeated": False,
        "reviewed": {
            "request": body["request"],
            "program": _program_of(store, entry, body["request"]),
            "approved_by": body["reviewers"],
            "let_out_by": body["by"],
            "files": body["files"],
        },
        # the files have no noise, so these fields have no epsilon
        **{key: body.get(key) for key in SHOWN},
    }


def _program_of(store: LedgerStore, released: Entry, request: str) -> str | None:
    """Return the digest of the program that made the released files, from the entry of its run.

    Return None if the ledger has no entry of a run for the request.
    """
    for entry in store.notes("airlock-run", 0, released.seq):
        if _body(entry)["request"] == request:
            return str(_body(entry)["digest"])
    return None


def _body(entry: Entry) -> dict[str, Any]:  # Any: JSON of the ledger
    said: dict[str, Any] = json.loads(entry.body)
    return said
