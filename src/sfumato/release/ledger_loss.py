"""Measure what a restored ledger has lost, by its anchor (decision 0011)."""

from __future__ import annotations

import json
from itertools import takewhile

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.vault.hash_chain import (
    MEASURABLE,
    NOT_STANDING,
    SEEN,
    Verdict,
    debt_list,
    disagreement,
    verify,
)
from sfumato.vault.ledger_entries import (
    Account,
    AnchoredAccount,
    AnchorMark,
    AnchorSums,
    ChainPlace,
    Loss,
)
from sfumato.vault.ports import Anchor, LedgerStore

UNKNOWN_RECEIPT = "receipt-unknown"  # the kind of entry of a true receipt that does not stand


def measured_loss(store: LedgerStore, anchor: Anchor) -> Loss | None:
    """Return what was debited and is missing, by account; None where the anchor cannot tell.

    The anchor's sums are what was spent by its mark. What ledger and anchor share ends at the last
    mark that both have; all that the anchor saw since then is added to what the ledger has now. So
    nothing is counted too little, also where both went on after that mark.

    It cannot tell if its records are damaged or older than sums, if the ledger's own chain does not
    hold or is of another epoch, if a receipt names what the anchor never saw, or if the ledger is
    frozen for a reason that is none of these.
    """
    mark, sums, verdict = anchor.read(), anchor.sums(), store.verify()
    if mark is None or sums is None or verdict.fault is not None:
        return None
    if (mark.ledger, mark.epoch) != (verdict.head.ledger, verdict.head.epoch):
        return None
    is_lost = disagreement(mark, verdict.head, store.entry(mark.seq)) is not None
    if not _is_explained(store, verdict, sums, is_lost=is_lost):
        return None
    return _loss_since_common(store, mark, sums)


def _is_explained(store: LedgerStore, verdict: Verdict, sums: AnchorSums, *, is_lost: bool) -> bool:
    """Say whether all that is wrong with the ledger is what the anchor saw and it lacks."""
    if verdict.frozen is not None and verdict.frozen not in MEASURABLE:
        return False
    if not is_lost:  # all that the anchor saw is there: only a move is explained by that
        return verdict.frozen not in (NOT_STANDING, SEEN) and not _unknown(store, verdict)
    return _unknown(store, verdict) <= set(sums.marks)


def _unknown(store: LedgerStore, verdict: Verdict) -> set[ChainPlace]:
    """Return what receipts named in this epoch that the ledger lacked."""
    found = (
        json.loads(e.body) for e in store.notes(UNKNOWN_RECEIPT) if e.epoch == verdict.head.epoch
    )
    return {ChainPlace(said["epoch"], said["seq"], said["head"]) for said in found}


def _loss_since_common(store: LedgerStore, mark: AnchorMark, sums: AnchorSums) -> Loss | None:
    common = next((place for place in reversed(sums.marks) if _stands(store, place)), None)
    if common is None:
        return None
    shared = verify(takewhile(lambda entry: entry.seq <= common.seq, store.entries()))
    if shared.fault is not None:
        return None
    then = {account.name: account.spent for account in shared.accounts}
    lost = [_lost(one, then.get(one.account.name, PrivacyCost())) for one in sums.accounts]
    since = frozenset(one.account.name for one in sums.accounts if one.place > common)
    return Loss(
        mark=ChainPlace(mark.epoch, mark.seq, mark.hash),
        common=common,
        accounts=tuple(one for one in lost if one.name in since or any(debt_list(one.spent))),
        lowered=since,
    )


def _stands(store: LedgerStore, place: ChainPlace) -> bool:
    entry = store.entry(place.seq)
    return entry is not None and (entry.epoch, entry.hash) == (place.epoch, place.hash)


def _lost(one: AnchoredAccount, then: PrivacyCost) -> Account:
    pairs = zip(debt_list(one.account.spent), debt_list(then), strict=True)
    missing = PrivacyCost(*(max(0, last - first) for last, first in pairs))
    return Account(one.account.name, one.account.cap, missing)
