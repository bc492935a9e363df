"""Verify an answer sheet or a receipt offline, with the vault's public key alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from sfumato.features.audit.answer_sheet import FORMAT, OF_REVIEWED, REVIEWED
from sfumato.query.expression import canonical_json
from sfumato.release.ledger_guard import NOT_DP
from sfumato.vault.hash_chain import entry_hash

Sheet = Mapping[str, Any]  # Any: JSON from outside; a value of a wrong type counts as a fault
_SAME = ("data_set", "version", "guarantee", "relation", "unit", "people", "epsilon", "delta",
         "noise", "selection", "bounding", "mechanism", "code")  # fmt: skip
_AMOUNT: Final = re.compile(r"[0-9]{1,700}(/[0-9]{1,700})?")  # integer or fraction
OTHER_KEY: Final = "another key than the vault's signed it"


def check_sheet(sheet: Sheet, key: str | None = None) -> tuple[str, ...]:
    """Verify an answer sheet offline; return its faults as sentences, () if there are none.

    `key` is the vault's public key, if known.
    """
    try:
        return tuple(_faults(sheet, key))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        return ("it is not an answer sheet",)


def check_receipt(receipt: Sheet, key: str | None = None) -> tuple[str, ...]:
    """Verify a receipt without the vault; return its faults as sentences, () if there are none.

    The signature covers the charged accounts, the price, the operation and the ledger's head. It
    does not cover the question and the answer.
    """
    try:
        return tuple(_of_receipt(receipt, key))
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
        return ("it is not a receipt",)


def check_files(sheet: Sheet, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Compare files with the hashes on a sheet; return a sentence for each fault.

    A fault is a file that differs, is missing, or is not on the sheet.
    """
    sums = {path: hashlib.sha256(file).hexdigest() for path, file in files.items()}
    named: Mapping[str, str] = sheet.get("files") or {}
    return tuple(
        f"{path!r} is not the file that was released"
        for path in sorted({*sums, *named})
        if sums.get(path) != named.get(path)
    )


def _faults(sheet: Sheet, key: str | None) -> list[str]:
    form = sheet["format"]
    if form not in (FORMAT, REVIEWED):
        return ["this version does not know its format"]
    found = []
    proof = sheet["proof"]
    said = {name: value for name, value in sheet.items() if name != "proof"}
    digest = hashlib.sha256(canonical_json(said).encode()).hexdigest()
    if proof["signed"] != {"sheet": form, "sha256": digest}:
        found.append("it was changed after it was signed")
    if not _is_signed(proof):
        found.append("its signature is not that of its key")
    if key is not None and proof["key"] != key:
        found.append(OTHER_KEY)
    of_entries = _of_entries if form == FORMAT else _of_reviewed
    return found + _of_hashes(sheet["entries"]) + of_entries(sheet)


def _of_receipt(receipt: Sheet, key: str | None) -> list[str]:
    signed: Sheet = receipt["signed"]
    found: list[str] = []
    if not _is_signed(receipt):
        return ["its signature is not that of its key"]
    if key is not None and receipt["key"] != key:
        found.append(OTHER_KEY)
    said = {name: receipt[name] for name in ("op", "files") if name in signed}
    for name in ("epsilon", "delta"):
        if name in signed:
            said[name] = receipt[name]
            signed = {**signed, name: _amount(signed[name])}
    if "charged" in signed:
        said["charged"] = sorted(receipt["charged"])
    if any(signed[name] != value for name, value in said.items()):
        found.append("its text differs from what was signed")
    return found


def _amount(text: str) -> float:
    """Convert a receipt's signed amount to a float; raise ValueError for "inf" or "1e999".

    The text may come from an attacker, who can sign a forged receipt with a key of their own.
    """
    if _AMOUNT.fullmatch(text) is None:
        raise ValueError
    return float(Fraction(text))


def _of_hashes(entries: Sequence[Sheet]) -> list[str]:
    return [
        f"the hash of entry {e['seq']} does not match the entry"
        for e in entries
        if e["hash"] != entry_hash(e["prev"], e["seq"], e["epoch"], e["at"], e["kind"], e["body"])
    ]


def _of_reviewed(sheet: Sheet) -> list[str]:
    """Return the faults of a sheet of files that left the airlock (output checking).

    The sheet is compared with the release entry, and the reviewers with the votes.
    """
    released, *words = sheet["entries"]
    body, found = json.loads(released["body"]), []
    said = {"asked_by": body["author"], "question": body["says"], "epsilon": None, "delta": None}
    same = {**{name: body[name] for name in OF_REVIEWED}, **said}
    if released["kind"] != NOT_DP or any(sheet[name] != value for name, value in same.items()):
        found.append("it differs from the ledger entry by which the files were released")
    votes = [json.loads(one["body"]) for one in words if one["kind"] == "airlock-vote"]
    last = {one["by"]: one for one in votes if one["request"] == body["request"]}
    want = {user for user, one in last.items() if (one["says"], one["seal"]) == _yes(body)}
    if body["author"] in body["reviewers"] or not set(body["reviewers"]) <= want:
        found.append("a reviewer that it names did not approve these files")
    return found


def _yes(body: Sheet) -> tuple[str, object]:
    return "release", body["seal"]


def _of_entries(sheet: Sheet) -> list[str]:
    entries = sheet["entries"]
    found: list[str] = []
    charge = json.loads(entries[0]["body"])
    body = charge["body"]
    said = {name: sheet[name] for name in _SAME} | {"timing": sheet.get("timing")}
    is_same = all(body.get(name) == value for name, value in said.items())
    if not is_same or sheet["question"] != body["says"]:
        found.append("it differs from the ledger entry that was charged")
    if sheet["debits"] != charge["debits"] or sheet["asked_by"] != charge["user"]:
        found.append("it differs from the ledger entry that was charged")
    if len(entries) > 1 and json.loads(entries[1]["body"])["charge"] != entries[0]["seq"]:
        found.append("its second entry ends another charge")
    return found


def _is_signed(proof: Mapping[str, Any]) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(proof["key"]))
    try:
        key.verify(bytes.fromhex(proof["signature"]), canonical_json(proof["signed"]).encode())
    except InvalidSignature:
        return False
    return True
