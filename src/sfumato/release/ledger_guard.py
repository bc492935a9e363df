"""The guarded ledger: a store of entries, an anchor outside the store, and a key for receipts.

It refuses charges if the anchor shows that the ledger was rolled back to an older state.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.expression import canonical_json
from sfumato.release.accounts import exceeded
from sfumato.vault.budget_windows import (
    UNBOUNDED,
    UNITS,
    is_internal,
    seen_through,
    viewed,
    window_account,
)
from sfumato.vault.hash_chain import (
    MEASURABLE,
    NOT_STANDING,
    SEEN,
    Verdict,
    debt_list,
    disagreement,
    ledger_frozen,
    verify,
)
from sfumato.vault.ledger_entries import (
    Account,
    AnchoredAccount,
    AnchorMark,
    AnchorSums,
    AnswerToStore,
    Cap,
    ChainPosition,
    Charge,
    Charged,
    Debtor,
    Exceeded,
    Failed,
    LedgerHead,
    Loss,
    OperationState,
    Outcome,
    Paid,
    Pending,
    Reused,
    Settled,
    ShapeFrozen,
)
from sfumato.vault.ports import Anchor, LedgerStore, Signer

# --- Measure, by the anchor, what a restored ledger has lost (decision 0011)


UNKNOWN_RECEIPT = "receipt-unknown"  # kind of entry: a valid receipt names an entry that is missing


def measured_loss(store: LedgerStore, anchor: Anchor) -> Loss | None:
    """Compute the debits that a restored ledger has lost, by account; None if they are unknown.

    The anchor is a file outside the ledger. It holds what each account had spent at the newest
    ledger position that it saw. Ledger and anchor agree up to the last position that both have.
    Every debit that the anchor saw after that position is added to what the ledger has now. So no
    debit is missed, even if both grew after that position.

    The loss is unknown if the anchor's records are damaged or have no sums, or if the ledger's hash
    chain is broken or has another epoch. It is also unknown if a receipt names an entry that the
    anchor never saw, or if the ledger is frozen for another reason.
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
    """Say whether a move, or a loss of entries that the anchor file has seen, is the only fault.

    Only then can the loss be measured. A move is one of the ledger to another database.
    """
    if verdict.frozen is not None and verdict.frozen not in MEASURABLE:
        return False
    if not is_lost:  # no entry that the anchor saw is missing, which explains only a move
        return verdict.frozen not in (NOT_STANDING, SEEN) and not _unknown(store, verdict)
    return _unknown(store, verdict) <= set(sums.marks)


def _unknown(store: LedgerStore, verdict: Verdict) -> set[ChainPosition]:
    """Return the ledger positions that signed receipts of this epoch name and the ledger lacks.

    Notes in the ledger record them.
    """
    found = (
        json.loads(e.body) for e in store.notes(UNKNOWN_RECEIPT) if e.epoch == verdict.head.epoch
    )
    return {ChainPosition(said["epoch"], said["seq"], said["head"]) for said in found}


def _loss_since_common(store: LedgerStore, mark: AnchorMark, sums: AnchorSums) -> Loss | None:
    common = next((place for place in reversed(sums.marks) if _stands(store, place)), None)
    if common is None:
        return None
    shared = verify(takewhile(lambda entry: entry.seq <= common.seq, store.entries()))
    if shared.fault is not None:
        return None
    then = {account.name: account.spent for account in shared.accounts}
    lost = [_lost(one, then.get(one.account.name, PrivacyCost())) for one in sums.accounts]
    since = frozenset(one.account.name for one in sums.accounts if one.position > common)
    return Loss(
        mark=ChainPosition(mark.epoch, mark.seq, mark.hash),
        common=common,
        accounts=tuple(one for one in lost if one.name in since or any(debt_list(one.spent))),
        lowered=since,
    )


def _stands(store: LedgerStore, place: ChainPosition) -> bool:
    entry = store.entry(place.seq)
    return entry is not None and (entry.epoch, entry.hash) == (place.epoch, place.hash)


def _lost(one: AnchoredAccount, then: PrivacyCost) -> Account:
    pairs = zip(debt_list(one.account.spent), debt_list(then), strict=True)
    missing = PrivacyCost(*(max(0, last - first) for last, first in pairs))
    return Account(one.account.name, one.account.cap, missing)


# --- Limit the ledger entries of one user per day, because free answers add entries too


MAX_ENTRIES_A_DAY: Final = 100_000  # entries; about 300 MB
DAY_S: Final = 86_400.0


class EntryQuota:
    """Daily quota of ledger entries per user: it counts entries and refuses more.

    The quota bounds how fast the ledger grows and changes no price, so a restart may reset it. A
    monotonic clock measures the day.
    """

    def __init__(
        self, max_entries: int = MAX_ENTRIES_A_DAY, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Create a daily quota of ledger entries; no user has used any of it yet.

        Args:
            max_entries: The entries that a user may add in a day.
            now: A monotonic clock, in seconds.
        """
        self._most, self._now = max_entries, now
        self._lock = threading.Lock()
        self._day = -1
        self._added: Counter[str] = Counter()

    def is_used_up(self, charge: Charge) -> bool:
        """Say whether the charge's user has no ledger entries left today.

        Survey ballots are exempt: they have limits of their own.
        """
        with self._lock:
            self._turn_day()
            return not charge.by_day and self._added[charge.user] >= self._most

    def add(self, charge: Charge, outcome: Paid | Outcome) -> None:
        """Count the ledger entries that a charge adds: two for a debit, one for a repeat."""
        entries = 0
        if isinstance(outcome, Charged) and not outcome.paid_before:
            entries = 2
        elif isinstance(outcome, OperationState) and outcome.seq == outcome.head.seq:
            entries = 1
        with self._lock:
            self._turn_day()
            if entries:
                self._added[charge.user] += entries

    def refusal(self) -> Refused:
        """Return the refusal for a user who may add no more ledger entries today."""
        return Refused(
            "too-many",
            f"The ledger takes {self._most:,} entries of one user in a day, and you have used "
            "all of yours.",
            "Ask again tomorrow. You can still read an earlier answer by its operation id, for "
            "free.",
        )

    def _turn_day(self) -> None:
        day = int(self._now() // DAY_S)
        if day != self._day:
            self._day = day
            self._added.clear()


WAIT_S = 90.0  # how long an asker waits while another operation computes the same answer
PAUSE_S = 0.05  # between two polls for that answer
NOT_DP = "not-dp-release"  # kind of entry: a table or files that were released without noise
_WHOLE = 2**62  # more than any cap; the store debits at most what is left


@dataclass(frozen=True)
class Ledger:
    """The guarded ledger: it charges accounts, and refuses if it was rolled back.

    A method that charges returns when ledger and anchor (a file outside the ledger) are durable.
    """

    store: LedgerStore
    anchor: Anchor
    signer: Signer
    quota: EntryQuota = field(default_factory=EntryQuota, compare=False, repr=False)
    _handed_out: dict[tuple[str, int], tuple[int, Counter[str]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def check_history(self) -> None:
        """Refuse if the ledger is frozen or was rolled back, or if its anchor file is missing."""
        refusal = self.history_fault()
        if refusal is not None:
            raise refusal

    def history_fault(self) -> Refused | None:
        """Return why the ledger accepts no charge, or None; freeze a ledger that was rolled back.

        Opening, verify, budget, health and acknowledge all use this one check. A missing anchor
        file doesn't freeze the ledger, because the file may come back. Until then nothing is
        charged.
        """
        mark = self.anchor.read()  # read before the ledger, which may grow in between
        head, frozen, marked = self.store.standing_with(0 if mark is None else mark.seq)
        if frozen is None:
            if mark is None:
                return _anchor_missing()
            why = disagreement(mark, head, marked)
            if why is None and self.store.is_moved():
                return self._move(mark)
            if why is None:
                return None
            self.store.freeze(why)
            frozen = self.store.frozen() or why
        return ledger_frozen(frozen)

    def has(self, mark: AnchorMark) -> bool:
        """Say whether this ledger has the entry that the anchor names, or has replaced it since.

        An owner's acknowledgement of a loss replaces the entry.
        """
        head, _, marked = self.store.standing_with(mark.seq)
        return disagreement(mark, head, marked) is None

    def _move(self, mark: AnchorMark) -> Refused | None:
        """Accept that the complete ledger was moved to another database, and update the anchor.

        Return the refusal if the move is not accepted, else None.
        """
        refusal: Refused
        try:
            self.anchor.advance(self.store.go_on_here(mark))
            return None
        except Refused as refused:
            refusal = refused
        return refusal

    def keep_sums(self) -> None:
        """Store in the anchor file what all accounts have spent, if it lacks intact sums.

        This runs when a vault is opened, because anchors of older versions hold only a ledger
        position.
        """
        mark = self.anchor.read()
        if mark is not None and self.history_fault() is None and self.anchor.sums() is None:
            head, accounts = self.store.head_and_accounts()
            self.anchor.keep_sums(accounts, head, mark)

    def _mark(self) -> AnchorMark:
        """Return the newest ledger position that the anchor file holds; refuse if it is missing.

        The caller must read it before the ledger, which may grow in between.
        """
        mark = self.anchor.read()
        if mark is not None:
            return mark
        frozen = self.store.frozen()
        raise _anchor_missing() if frozen is None else ledger_frozen(frozen)

    def charge(self, charge: Charge) -> Charged | OperationState | Pending:
        """Debit every account that pays for a question; or return its stored answer, or refuse.

        The debit is durable. If another user's query is computing the same answer, this method
        waits for it. It checks the asker's rights again at each poll. `Pending` means that the
        asker's own earlier operation has paid for this answer and has not ended.
        """
        if self.quota.is_used_up(charge) and self.answer_of(charge.user, charge.op) is None:
            raise self.quota.refusal()
        mark = self._mark()
        outcome = self.store.charge(charge, mark)
        until = time.monotonic() + WAIT_S
        while isinstance(outcome, Pending):  # another operation computes the same answer: wait
            # the asker's own operation has paid; it was perhaps interrupted
            if outcome.user == charge.user:
                return outcome
            if time.monotonic() > until:
                raise _being_answered()
            time.sleep(PAUSE_S)
            outcome = self.store.charge(charge, mark)
        self.quota.add(charge, outcome)
        match outcome:
            case Charged() | OperationState():
                self.anchor.advance(outcome.head, outcome.accounts)
                return self._viewed(outcome, charge.debtors)
            case Failed():
                raise question_failed()
            case Exceeded(account=account):
                raise exceeded(account, charge.debt)
            case Reused():
                raise Refused(
                    "op-reused",
                    "This operation id already belongs to another question of yours.",
                    "Choose a new operation id, or leave it out.",
                )
            case ShapeFrozen():
                raise question_frozen()

    def charge_all(self, charges: Sequence[Charge]) -> list[Paid]:
        """Debit the accounts of several questions in one transaction; return each one's outcome.

        An outcome of None means that nothing was paid, and that the caller should use `charge`. A
        question whose outcome is an error may have been paid.
        """
        is_over = [self.quota.is_used_up(one) for one in charges]
        within = [one for one, over in zip(charges, is_over, strict=True) if not over]
        paid = iter(self.store.charge_all(within, self._mark()) if within else [])
        ended = [None if over else next(paid) for over in is_over]
        for charge, one in zip(charges, ended, strict=True):
            self.quota.add(charge, one)
            if isinstance(one, Charged | OperationState):
                self.anchor.advance(one.head, one.accounts)
        return [
            self._viewed(one, charge.debtors) if isinstance(one, Charged | OperationState) else one
            for charge, one in zip(charges, ended, strict=True)
        ]

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the stored answer of the user's operation, or None."""
        return self.store.answer_of(user, op)

    def is_paid_by(self, answer_key: str, names: Sequence[str]) -> bool:
        """Say whether all of these accounts have paid for the answer stored under the key."""
        return self.store.is_paid_by(answer_key, names)

    def settle(self, user: str, op: str, answer: str, names: Sequence[str] = ()) -> Settled:
        """Store the answer of a charged operation durably.

        Return the stored answer, with the named accounts at the same ledger head.
        """
        settled = self.store.settle(user, op, answer, names, self._mark())
        self.anchor.advance(settled.head)
        return replace(settled, accounts=viewed(settled.accounts))

    def settle_all(self, answers: Sequence[AnswerToStore]) -> list[Settled | Exception]:
        """Store several answers in one transaction; return each stored answer, or its error."""
        ended = self.store.settle_all(answers, self._mark()) if answers else []
        for one in ended:
            if isinstance(one, Settled):
                self.anchor.advance(one.head)
        return [
            replace(one, accounts=viewed(one.accounts)) if isinstance(one, Settled) else one
            for one in ended
        ]

    def fail(self, user: str, op: str, shape: str | None) -> None:
        """Mark an operation as failed; what it paid isn't refunded."""
        head = self.store.fail(user, op, "question-failed", shape).head
        self._check_mark()
        self.anchor.advance(head)

    def open_account(self, account: str, cap: Cap) -> Account:
        """Return a budget account; create it with this cap if it doesn't exist.

        `open_account`, `set_cap` and `thaw_shape` refuse if the ledger was rolled back.
        """
        return self.store.open_account(account, cap, self._mark())

    def set_cap(self, account: str, cap: Cap, before: Cap | None = None) -> Account:
        """Change an account's cap, unless its cap differs from `before`; return the account."""
        made = self.store.set_cap(account, cap, before, self._mark())
        head = self.store.head()
        # Read the accounts after the head, so that no debit up to the head is missing.
        self.anchor.advance(head, self.store.accounts_of([account]))
        return made

    def thaw_shape(self, shape: str) -> None:
        """Unfreeze a question shape (a question without its constants), which had hit a limit."""
        self.store.thaw_shape(shape, self._mark())

    def begin(self, kind: str, body: Json) -> LedgerHead:
        """Write the first entry of a new ledger, and create its anchor file."""
        head = self.store.note(kind, body)
        self.anchor.advance(head)
        self.keep_sums()
        return head

    def note(self, kind: str, body: Json) -> LedgerHead:
        """Append an entry about an owner's act to the ledger; then refuse if it was rolled back.

        The entry is written even then, because it may protect people. But then the anchor isn't
        advanced. Otherwise acts without a charge would make the anchor agree with the older ledger.
        """
        head = self.store.note(kind, body)
        self._check_mark()
        self.anchor.advance(head)
        return head

    def _check_mark(self) -> None:
        """Freeze the ledger and refuse if it was rolled back: if it lacks the entry in the anchor.

        A ledger that is frozen for another reason still accepts an owner's act.
        """
        mark = self._mark()
        head, frozen, marked = self.store.standing_with(mark.seq)
        why = disagreement(mark, head, marked)
        if why is not None:
            self.store.freeze(why)
            raise ledger_frozen(frozen or why)

    def not_dp(self, people: str, head: LedgerHead | None = None) -> int:
        """Count the releases without DP about these people, at least up to the given ledger head.

        Within an epoch the ledger only grows, so the method caches the entries that it has counted.
        Otherwise every receipt would read the whole ledger.
        """
        head = head or self.store.head()
        epoch = (head.ledger, head.epoch)
        seen, counts = self._handed_out.get(epoch, (0, Counter()))
        if seen < head.seq:
            fresh = self.store.notes(NOT_DP, seen, head.seq)
            counts = counts + Counter(str(json.loads(entry.body)["people"]) for entry in fresh)
            seen = max(head.seq, *(entry.seq for entry in fresh)) if fresh else head.seq
            self._handed_out[epoch] = (seen, counts)
        return counts[people]

    def accounts(self, names: tuple[str, ...]) -> dict[str, Account]:
        """Return the named accounts that exist, with their spending in the open budget window."""
        found = self.store.accounts_of(list(dict.fromkeys(names)))
        endless = [account.name for account in found if account.cap == UNBOUNDED]
        if endless:
            day = self.store.window_day()
            opened = [window_account(unit, day, name) for unit in UNITS for name in endless]
            found = (*found, *self.store.accounts_of(opened))
        return {account.name: account for account in viewed(found)}

    def every_account(self) -> tuple[Account, ...]:
        """Return all accounts that users see, sorted by name, with their current budget window."""
        names = (account.name for account in self.store.accounts())
        known = self.accounts(tuple(name for name in names if not is_internal(name)))
        return tuple(known[name] for name in sorted(known))

    def paying(self, debtors: Sequence[Debtor]) -> dict[str, Account]:
        """Return the accounts that pay for a question, by name, in the order of `debtors`.

        An account that doesn't exist yet counts as one that has spent nothing.
        """
        known = self.accounts(tuple(debtor.account for debtor in debtors))
        return {debtor.account: self._standing(debtor, known) for debtor in debtors}

    def _viewed(
        self, outcome: Charged | OperationState, debtors: Sequence[Debtor]
    ) -> Charged | OperationState:
        """Return the outcome of a charge, with each account's spending in its budget window."""
        known = {account.name: account for account in viewed(outcome.accounts)}
        if any(debtor.window for debtor in debtors):
            known |= {one.account: self._standing(one, known) for one in debtors}
        accounts = tuple(known.values())
        if isinstance(outcome, Charged):
            return replace(outcome, accounts=accounts)
        paid = tuple(name for name in outcome.debited if not is_internal(name))
        return replace(outcome, accounts=accounts, debited=paid)

    def _standing(self, debtor: Debtor, known: dict[str, Account]) -> Account:
        found = known.get(debtor.account, Account(debtor.account, debtor.cap, PrivacyCost()))
        if debtor.window is None or debtor.window_cap is None or found.window is not None:
            return found
        name = window_account(debtor.window, self.store.window_day(), debtor.account)
        return seen_through(found, Account(name, debtor.window_cap, PrivacyCost()))

    def confirm_clock(self, by: str, why: str) -> LedgerHead:
        """Record the owner's confirmation that the clock is right, and trust its day.

        Budget windows then follow the clock. Refuse if the ledger has trusted a later day already.
        """
        self.check_history()
        if self.store.trust_day(self._mark()) is None:
            raise Refused(
                "not-allowed",
                "The clock shows an earlier day than one that the ledger has already recorded. "
                "The clock is wrong now, or was wrong then.",
                "Correct the machine's clock. Budget windows that were opened too early stay "
                "open until they end.",
            )
        return self.note("clock-confirmed", {"by": by, "why": why})

    def check_broken(self) -> None:
        """Refuse if the ledger has no fault, because then there is nothing to acknowledge."""
        if self.history_fault() is None:
            raise Refused(
                "not-allowed", "The ledger is not frozen.", "Nothing needs to be acknowledged."
            )

    def acknowledge(self, why: str) -> LedgerHead:
        """Reopen a broken ledger by the owner's decision; count lost debits as spent.

        If the loss can't be measured, every account's whole cap counts as spent.
        """
        self.check_broken()
        loss = measured_loss(self.store, self.anchor)
        if loss is None:
            everything = {a.name: (_WHOLE, _WHOLE, _WHOLE, _WHOLE) for a in self.store.accounts()}
            head = self.store.acknowledge(everything, why)
        else:
            head = self.store.acknowledge_loss(loss, why)
        self.anchor.advance(head, self.store.accounts())
        self.keep_sums()
        return head

    def has_lost(self) -> bool:
        """Say whether the ledger ever lost entries whose debits could not be measured."""
        if self.store.head().epoch == 1:
            return False
        ends = (json.loads(entry.body) for entry in self.store.notes("acknowledged"))
        return not all("measured" in said for said in ends)

    def has_receipt(self, receipt: Json) -> bool:
        """Say whether the ledger still has the entry that a signed receipt names.

        If it lacks an entry of the current epoch, or has another hash there, entries were lost.
        Then the ledger records the receipt's position, because the anchor may not have seen it, and
        is frozen. A receipt that this vault did not sign is refused.
        """
        signed = receipt.get("signed")
        if not isinstance(signed, dict) or not self._is_ours(signed, receipt.get("signature")):
            raise _no_receipt("That receipt was not signed by this vault's key.")
        seq, epoch, digest = signed.get("seq"), signed.get("epoch"), signed.get("head")
        if not isinstance(seq, int) or not isinstance(epoch, int) or not isinstance(digest, str):
            raise _no_receipt("The vault's key signed this file, but it is not a receipt.")
        self.history_fault()  # first, so that a rolled-back ledger is frozen for that reason
        entry = self.store.entry(seq)
        is_there = entry is not None and entry.hash == digest
        if not is_there and epoch >= self.store.head().epoch:
            self._keep_unknown({"seq": seq, "epoch": epoch, "head": digest})
        return is_there

    def _keep_unknown(self, place: Json) -> None:
        """Record once that a signed receipt names a missing ledger entry; freeze the ledger."""
        known = (json.loads(entry.body) for entry in self.store.notes(UNKNOWN_RECEIPT))
        if place not in known:
            self.store.note(UNKNOWN_RECEIPT, place)
        self.store.freeze(NOT_STANDING)

    def sign(self, charged: Json) -> Json:
        """Return these fields of a receipt with their signature and the vault's public key."""
        signature = self.signer.sign(canonical_json(charged).encode())
        return {"signed": charged, "signature": signature, "key": self.signer.public_key()}

    def verified(self) -> Json:
        """Verify the hash chain, the sums of every account and the anchor; return the verdict.

        A fault freezes the ledger, because its sums may differ from what was really spent.
        """
        verdict = self.store.verify()
        if verdict.fault is not None:
            self.store.freeze(f"its chain does not hold ({verdict.fault})")
        refusal = self.history_fault()
        return {
            "ok": verdict.fault is None and refusal is None,
            "entries": verdict.head.seq,
            "head": verdict.head.hash,
            "epoch": verdict.head.epoch,
            "frozen": self.store.frozen(),
            "history": None if refusal is None else refusal.cause,
            "fault": verdict.fault,
            "key": self.signer.public_key(),
        }

    def _is_ours(self, signed: Json, signature: object) -> bool:
        wanted = self.signer.sign(canonical_json(signed).encode())
        given = signature.encode() if isinstance(signature, str) and signature.isascii() else b""
        return hmac.compare_digest(wanted.encode(), given)  # in constant time


def question_failed() -> Refused:
    """Return the one refusal for every error after a charge, so that none tells of rows."""
    return Refused(
        "question-failed",
        "The question could not be computed, but it was charged.",
        "Ask another question, or ask the owner, who sees the failure in the ledger.",
    )


def _being_answered() -> Refused:
    return Refused(
        "ledger-busy",
        "Somebody else's identical question is being answered now. You paid nothing.",
        "Ask again later; or ask with --fresh, which pays in full for an answer of your own.",
    )


def question_frozen() -> Refused:
    """Return the refusal of a question whose shape is frozen, because one like it hit a limit."""
    return Refused(
        "question-frozen",
        "A question that differs from this one only in its constants was stopped for using too "
        "much time or memory. Such questions are blocked until the owner allows them again.",
        "Ask the owner to allow (thaw) them, or write the question differently.",
    )


def _no_receipt(cause: str) -> Refused:
    return Refused("answer-unknown", cause, "Give the whole receipt, exactly as it was printed.")


def _anchor_missing() -> Refused:
    return Refused(
        "anchor-missing",
        "The ledger's anchor file is missing or damaged, so nobody can tell whether the ledger "
        "is the newest.",
        "Put the anchor file back. If it is lost, the owner runs `sfumato ledger acknowledge`.",
    )
