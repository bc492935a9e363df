"""Whether an answer sheet holds; without the vault, by its public key alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sfumato.core.chain import entry_hash
from sfumato.core.expression import spelled
from sfumato.services.audit.sheet import FORMAT

Sheet = Mapping[str, Any]  # Any: a stranger's JSON; whatever does not fit is a fault
_SAME = ("data_set", "version", "guarantee", "relation", "unit", "people", "epsilon", "delta",
         "noise", "selection", "bounding", "mechanism", "code")  # fmt: skip


def check_sheet(sheet: Sheet, key: str | None = None) -> tuple[str, ...]:
    """Return what does not hold, or nothing; `key` is the vault's, if it is known."""
    try:
        return tuple(_faults(sheet, key))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return ("it is no answer sheet",)


def _faults(sheet: Sheet, key: str | None) -> list[str]:
    if sheet["format"] != FORMAT:
        return ["it is of a format that this version does not know"]
    found = []
    proof = sheet["proof"]
    said = {name: value for name, value in sheet.items() if name != "proof"}
    digest = hashlib.sha256(spelled(said).encode()).hexdigest()
    if proof["signed"] != {"sheet": FORMAT, "sha256": digest}:
        found.append("it was changed after it was signed")
    if not _is_signed(proof):
        found.append("its signature is not that of its key")
    if key is not None and proof["key"] != key:
        found.append("it was signed by another key than the vault's")
    return found + _of_entries(sheet)


def _of_entries(sheet: Sheet) -> list[str]:
    entries = sheet["entries"]
    found = [
        f"entry {e['seq']} is not what its hash says"
        for e in entries
        if e["hash"] != entry_hash(e["prev"], e["seq"], e["epoch"], e["at"], e["kind"], e["body"])
    ]
    charge = json.loads(entries[0]["body"])
    body = charge["body"]
    if any(sheet[name] != body.get(name) for name in _SAME) or sheet["question"] != body["says"]:
        found.append("it says other things than the entry that was charged")
    if sheet["debits"] != charge["debits"] or sheet["asked_by"] != charge["user"]:
        found.append("it says other things than the entry that was charged")
    if len(entries) > 1 and json.loads(entries[1]["body"])["charge"] != entries[0]["seq"]:
        found.append("its second entry ends another charge")
    return found


def _is_signed(proof: Mapping[str, Any]) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(proof["key"]))
    try:
        key.verify(bytes.fromhex(proof["signature"]), spelled(proof["signed"]).encode())
    except InvalidSignature:
        return False
    return True
