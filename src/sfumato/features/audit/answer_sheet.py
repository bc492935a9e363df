"""The answer sheet: the signed record of one release, for data protection officers and auditors.

It contains the release's ledger entries, so that anyone with the vault's public key can verify it
without the vault (`sheet_verification.py`). It has no answer. The only field that depends on rows
is whether the query failed, which the ledger has, too.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from sfumato.dp.json_values import Json
from sfumato.query.expression import canonical_json
from sfumato.release.accounts import people_account, spent_json
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.budget_windows import parts_of
from sfumato.vault.ledger_entries import Entry

FORMAT: Final = "sheet/1"
REVIEWED: Final = "reviewed-sheet/1"  # files that left after output checking, without noise
EARLIER: Final = 200  # earlier releases that a sheet lists
OF_REVIEWED: Final = (
    "data_set", "version", "people", "guarantee", "request", "author", "reviewers", "by", "files",
    "seal",
)  # fmt: skip
ACCOUNTANT: Final = (
    "a release is accepted while the sums of epsilon and delta, or the sums of rho and its delta, "
    "stay within the cap; all sums in whole units, rounded up, debited before any row is read"
)
REVIEWER: Final = "none: the mechanism is what protects; no person chose what was released"


def sheet(ledger: Ledger, charge: Entry) -> Json:
    """Return the signed record (answer sheet) of one charged query, as the ledger is now."""
    said: dict[str, Any] = json.loads(charge.body)  # Any: JSON of the ledger
    body = said["body"]
    past = ledger.store.past_of(said["user"], said["op"])
    ended = None if past is None or past.ended == charge else past.ended
    head = ledger.store.head()
    made: Json = {
        "format": FORMAT,
        "ledger": head.ledger,
        "head": {"epoch": head.epoch, "seq": head.seq, "hash": head.hash},
        "entries": [entry_json(entry) for entry in (charge, ended) if entry is not None],
        "outcome": charge.kind if charge.kind == "repeated" else _outcome(ended),
        "asked_by": said["user"],
        "question": body["says"],
        "data_set": body["data_set"],
        "version": body["version"],
        "guarantee": body["guarantee"],
        "relation": body["relation"],
        "unit": body["unit"],
        "people": body["people"],
        "epsilon": body["epsilon"],
        "delta": body["delta"],
        "bounding": body.get("bounding"),
        **({"timing": body["timing"]} if "timing" in body else {}),  # of a program's blocks
        "mechanism": body.get("mechanism"),
        "noise": body["noise"],
        "selection": body.get("selection"),
        "accountant": ACCOUNTANT,
        "debits": said["debits"],
        "code": body.get("code"),
        "reviewer": REVIEWER,
        "earlier": _earlier(ledger, charge, body["people"]),
        "spent_since": _spent(ledger, body["people"]),
        **_window(said["debits"], body["people"]),
    }
    return _signed(ledger, made)


def _window(debits: Json, people: str) -> Json:
    """Return the budget window (a month, say) of a charge, as a field of the answer sheet.

    Return {} if the people's account has no windows.
    """
    found = (parts_of(name) for name in debits)
    own = [parts for parts in found if parts is not None and parts[2] == people_account(people)]
    return {"window": {"per": own[0][0], "in": own[0][1]}} if own else {}


def reviewed_sheet(ledger: Ledger, released: Entry) -> Json:
    """Return the signed record (sheet) of files that left the airlock (output checking).

    The sheet names the reviewers, and has the hashes of the files.
    """
    body: dict[str, Any] = json.loads(released.body)  # Any: JSON of the ledger
    head = ledger.store.head()
    made: Json = {
        "format": REVIEWED,
        "ledger": head.ledger,
        "head": {"epoch": head.epoch, "seq": head.seq, "hash": head.hash},
        "entries": [entry_json(entry) for entry in (released, *_words(ledger, released, body))],
        "outcome": "released",
        "asked_by": body["author"],
        "question": body["says"],
        **{name: body[name] for name in OF_REVIEWED},
        "epsilon": None,  # no epsilon holds for files without noise
        "delta": None,
        "reviewer": ", ".join(body["reviewers"]),
        "earlier": _earlier(ledger, released, body["people"]),
        "spent_since": _spent(ledger, body["people"]),
    }
    return _signed(ledger, made)


def _words(ledger: Ledger, released: Entry, body: dict[str, Any]) -> list[Entry]:
    """Return the ledger entries that explain a release of reviewed files.

    They are the entries of the program's run, and of the reviewers' votes on the files.
    """
    found = []
    for kind in ("airlock-run", "airlock-vote"):
        for entry in ledger.store.notes(kind, 0, released.seq):
            said = json.loads(entry.body)
            if (
                said["request"] == body["request"]
                and said.get("seal", body["seal"]) == body["seal"]
            ):
                found.append(entry)
    return found


def _signed(ledger: Ledger, made: Json) -> Json:
    digest = hashlib.sha256(canonical_json(made).encode()).hexdigest()
    return {**made, "proof": ledger.sign({"sheet": made["format"], "sha256": digest})}


def _earlier(ledger: Ledger, charge: Entry, people: str) -> Json:
    """Return the earlier releases about these people, and how many had no differential privacy.

    The list has at most 200 charges (EARLIER). The number of releases without differential privacy
    counts releases after this one, too.
    """
    found = ledger.store.charges(charge.seq, EARLIER + 1, people=people)
    return {
        "releases": [_brief(entry) for entry in found[:EARLIER] if entry.kind == "charged"],
        "there_are_more": len(found) > EARLIER,
        "not_dp": ledger.not_dp(people),
    }


def _outcome(ended: Entry | None) -> str:
    return "unfinished" if ended is None else ended.kind


def _brief(entry: Entry) -> Json:
    body = json.loads(entry.body)["body"]
    keys = ("data_set", "epsilon", "delta", "guarantee")
    return {"entry": entry.seq, "at": entry.at, **{key: body[key] for key in keys}}


def _spent(ledger: Ledger, people: str) -> Json | None:
    account = ledger.store.account(people_account(people))
    return None if account is None else spent_json(account)


def entry_json(entry: Entry) -> Json:
    """Return all fields of a ledger entry as JSON, so that its hash can be recomputed."""
    keys = ("seq", "epoch", "at", "kind", "body", "prev", "hash")
    return {key: getattr(entry, key) for key in keys}
