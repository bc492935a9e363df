"""Records of what each account has spent, in the anchor file: appended, then folded into one.

A record holds a position in the ledger, and the sums at that position of the accounts that were
debited since the previous record. Sums only grow, so records may have any order: for each account,
the latest position and the largest sum count. Past marks show which entries a ledger shares with
the anchor.
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
    ChainPosition,
    LedgerHead,
)

MARKS: Final = 1024  # past marks that folding keeps; it keeps fewer of the older ones
_DOMAIN: Final = b"sfumato-anchor-sums/1\n"
_CHECK: Final = 16  # hex digits of a record's checksum; it detects torn writes, not forgery


def record(heads: Sequence[LedgerHead], accounts: Iterable[AnchoredAccount]) -> bytes:
    """Return one record of the anchor file: ledger heads, and what accounts had spent.

    Each account has a ledger position of its own, at which its sums are valid.
    """
    return _line([ChainPosition(head.epoch, head.seq, head.hash) for head in heads], accounts)


def snapshot(sums: AnchorSums) -> bytes:
    """Return one record of the anchor file that replaces all its other records."""
    return _line(_thinned(sums.marks), sums.accounts)


def _line(marks: Sequence[ChainPosition], accounts: Iterable[AnchoredAccount]) -> bytes:
    record = {
        "at": [[mark.epoch, mark.seq, mark.hash] for mark in marks],
        "of": {one.account.name: _numbers(one) for one in accounts},
    }
    text = canonical(record).encode("ascii")
    return _checksum(text) + text + b"\n"


def _numbers(one: AnchoredAccount) -> list[object]:
    position, account = one.position, one.account
    return [
        position.epoch,
        position.seq,
        position.hash,
        *cap_list(account.cap),
        *debt_list(account.spent),
    ]


def read(region: bytes) -> AnchorSums | None:
    """Merge all records in these bytes of the anchor file; return None if one is damaged."""
    marks: list[ChainPosition] = []
    known: dict[str, AnchoredAccount] = {}
    for line in region.split(b"\n")[:-1]:
        record = _record_of(line)
        if record is None:
            return None
        marks += [ChainPosition(*mark) for mark in record["at"]]
        for name, (epoch, seq, digest, *sums) in record["of"].items():
            account = Account(name, Cap(*sums[:4]), PrivacyCost(*sums[4:]))
            one = AnchoredAccount(ChainPosition(epoch, seq, digest), account)
            known[name] = one if name not in known else _later(known[name], one)
    if not region.endswith(b"\n"):
        return None
    return AnchorSums(tuple(known.values()), tuple(sorted(marks)))


def _later(one: AnchoredAccount, other: AnchoredAccount) -> AnchoredAccount:
    """Return the later of two records of one account, with the larger of each sum spent."""
    last = max(one, other, key=lambda known: known.position)
    pairs = zip(debt_list(one.account.spent), debt_list(other.account.spent), strict=True)
    spent = PrivacyCost(*(max(pair) for pair in pairs))
    return AnchoredAccount(last.position, Account(last.account.name, last.account.cap, spent))


def _thinned(marks: Sequence[ChainPosition]) -> list[ChainPosition]:
    """Reduce the past ledger positions to at most 1024 (MARKS): keep fewer of the older ones.

    While there are too many, every second one of the older half is dropped.
    """
    thinned = list(marks)
    while len(thinned) > MARKS:
        half = len(thinned) // 2
        thinned = thinned[:half:2] + thinned[half:]
    return thinned


def _record_of(line: bytes) -> dict[str, Any] | None:  # Any: parsed JSON with a valid checksum
    checksum, text = line[:_CHECK], line[_CHECK:]
    if checksum != _checksum(text):
        return None
    with contextlib.suppress(ValueError):
        record: dict[str, Any] = json.loads(text)
        return record
    return None


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + text).hexdigest()[:_CHECK].encode("ascii")
