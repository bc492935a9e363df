"""Records of what each account has spent, in the anchor file: appended, then folded into one.

A record has a place in the ledger, and the sums there of the accounts that were debited since the
record before. Sums only grow, so records may have any order: the latest place and the largest sum
count for each account. Past marks show which entries a ledger shares with the anchor.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.vault.hash_chain import canonical, cap_list, debt_list
from sfumato.vault.ledger_entries import (
    Account,
    AnchoredAccount,
    AnchorSums,
    Cap,
    ChainPlace,
    LedgerHead,
)

MARKS: Final = 1024  # past marks that are kept when records are folded; fewer of the older ones
_DOMAIN: Final = b"sfumato-anchor-sums/1\n"
_CHECK: Final = 16  # hex digits of a record's checksum; it detects torn writes, not forgery


def record(heads: Sequence[LedgerHead], accounts: Iterable[AnchoredAccount]) -> bytes:
    """Return one record: past heads, and accounts, each with its sums at its own place."""
    return _line([ChainPlace(head.epoch, head.seq, head.hash) for head in heads], accounts)


def snapshot(sums: AnchorSums) -> bytes:
    """Return one record that replaces all others."""
    return _line(_thinned(sums.marks), sums.accounts)


def _line(marks: Sequence[ChainPlace], accounts: Iterable[AnchoredAccount]) -> bytes:
    said = {
        "at": [[mark.epoch, mark.seq, mark.hash] for mark in marks],
        "of": {one.account.name: _numbers(one) for one in accounts},
    }
    text = canonical(said).encode("ascii")
    return _checksum(text) + text + b"\n"


def _numbers(one: AnchoredAccount) -> list[object]:
    place, account = one.place, one.account
    return [place.epoch, place.seq, place.hash, *cap_list(account.cap), *debt_list(account.spent)]


def read(region: bytes) -> AnchorSums | None:
    """Merge all records of a region, or return None if one of them is damaged."""
    marks: list[ChainPlace] = []
    known: dict[str, AnchoredAccount] = {}
    for line in region.split(b"\n")[:-1]:
        said = _said(line)
        if said is None:
            return None
        marks += [ChainPlace(*mark) for mark in said["at"]]
        for name, (epoch, seq, digest, *sums) in said["of"].items():
            account = Account(name, Cap(*sums[:4]), PrivacyCost(*sums[4:]))
            one = AnchoredAccount(ChainPlace(epoch, seq, digest), account)
            known[name] = one if name not in known else _later(known[name], one)
    if not region.endswith(b"\n"):
        return None
    return AnchorSums(tuple(known.values()), tuple(sorted(marks)))


def _later(one: AnchoredAccount, other: AnchoredAccount) -> AnchoredAccount:
    """Return the later of two states of an account, with the larger of each sum."""
    last = max(one, other, key=lambda known: known.place)
    pairs = zip(debt_list(one.account.spent), debt_list(other.account.spent), strict=True)
    spent = PrivacyCost(*(max(pair) for pair in pairs))
    return AnchoredAccount(last.place, Account(last.account.name, last.account.cap, spent))


def _thinned(marks: Sequence[ChainPlace]) -> list[ChainPlace]:
    """Thin the marks to at most MARKS: drop every second one of the older half, repeatedly."""
    kept = list(marks)
    while len(kept) > MARKS:
        half = len(kept) // 2
        kept = kept[:half:2] + kept[half:]
    return kept


def _said(line: bytes) -> dict[str, Any] | None:  # Any: parsed JSON with a valid checksum
    checksum, text = line[:_CHECK], line[_CHECK:]
    if checksum != _checksum(text):
        return None
    with contextlib.suppress(ValueError):
        said: dict[str, Any] = json.loads(text)
        return said
    return None


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + text).hexdigest()[:_CHECK].encode("ascii")
