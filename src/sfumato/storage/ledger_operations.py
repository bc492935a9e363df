"""The ledger's write operations, for every database; each runs inside an open transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import astuple, replace
from datetime import datetime, timedelta

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.accounting.privacy_filter import fits_under_cap
from sfumato.dp.refusal import Bug
from sfumato.storage import ledger_rows
from sfumato.storage.ledger_rows import Operation
from sfumato.storage.ledger_tables import SUMS
from sfumato.storage.ledger_transaction import HistoryLost, LedgerTransaction
from sfumato.vault import hash_chain
from sfumato.vault.budget_windows import in_window, parts_of
from sfumato.vault.ledger_entries import (
    Account,
    AnswerToStore,
    Cap,
    Charge,
    Charged,
    Failed,
    LedgerHead,
    Loss,
    Mark,
    OperationState,
    Outcome,
    Pending,
    Reused,
    Settled,
    ShapeFrozen,
)

Amounts = tuple[int, int, int, int]


def charge(work: LedgerTransaction, asked: Charge, mark: Mark = None) -> Outcome:
    """Debit every account that pays for an operation, or none; or return the stored answer.

    An operation is debited once. The anchor's ledger position was read before this transaction
    began, and is checked within it. So nobody can replace the ledger between the check and the
    debit.
    """
    if work.frozen is not None:
        raise hash_chain.ledger_frozen(work.frozen)
    if mark is not None:
        work.check_mark(mark)
    elif work.is_moved:
        raise HistoryLost(hash_chain.MOVED)
    asked.check_access()
    if any(debtor.window for debtor in asked.debtors):
        asked = replace(asked, debtors=in_window(asked.debtors, work.window_day()))
    names = [debtor.account for debtor in asked.debtors]
    before = ledger_rows.state_before_charge(work.link, asked, names)
    if before.known is not None:
        return _known_operation(work, asked, before.known)
    if before.is_frozen:
        return ShapeFrozen(asked.shape)
    if before.answer is not None:
        return _repeat(work, asked, before.answer)
    pending = _open_charge(work, asked) if before.is_being_computed else None
    if pending is not None:
        return pending
    asked.check_payable()
    if not before.are_open:
        work.open_missing(_caps(asked))
    return _pay_in_full(work, asked, names)


def with_mark_check(
    mark: Mark, act: Callable[[LedgerTransaction], object]
) -> Callable[[LedgerTransaction], object]:
    """Return a ledger write that first checks that the ledger wasn't rolled back.

    It was rolled back if it lacks the position (mark) that the anchor file holds.
    """

    def done(work: LedgerTransaction) -> object:
        if mark is not None:
            work.check_mark(mark)
        return act(work)

    return done


def _open_charge(work: LedgerTransaction, asked: Charge) -> Pending | None:
    """Return the operation that is computing the same answer now, or None.

    A killed process never ends its operation. So an operation that started more than `wait_limit_s`
    seconds ago is ignored.
    """
    if asked.wait_limit_s == 0:
        return None
    now = datetime.fromisoformat(work.now())
    since = now - timedelta(seconds=asked.wait_limit_s)
    for seq, at, user, op in ledger_rows.open_charges(work.link, asked.answer_key):
        # a start later than now: the clock was set back
        if since < datetime.fromisoformat(at) <= now:
            return Pending(seq, user, op)
    return None


def _known_operation(work: LedgerTransaction, asked: Charge, known: Operation) -> Outcome:
    if known.request != asked.request:
        return Reused(asked.op)
    if known.state == "failed":
        return Failed(known.seq, ledger_rows.entry_body(work.link, _ended(known))["code"])
    accounts = ledger_rows.accounts_of(work.link, [debtor.account for debtor in asked.debtors])
    if known.state == "charged":
        if known.answer_key != asked.answer_key:  # the operation paid for a different answer
            return Reused(asked.op)
        if is_shape_frozen(work, asked.shape):
            return ShapeFrozen(asked.shape)
        return Charged(work.head, known.seq, accounts, paid_before=True)
    answer = _answer_of(work, known)
    return OperationState(work.head, known.seq, answer, accounts, debited=())


def _pay_in_full(work: LedgerTransaction, asked: Charge, names: list[str]) -> Charged:
    accounts = work.debit(names, asked.debt)
    body = {**_asked(asked, names), "body": asked.body}
    seq = work.append("charged", body, at=_day(work.now()) if asked.by_day else None).seq
    ledger_rows.add_operation(work.link, _operation(asked, "charged", seq))
    return Charged(work.head, seq, accounts, paid_before=False)


def _day(now: str) -> str:
    """Return midnight of the day of a time, as ISO text."""
    return (
        datetime.fromisoformat(now)
        .replace(hour=0, minute=0, second=0)
        .isoformat(timespec="seconds")
    )


def _repeat(work: LedgerTransaction, asked: Charge, answer: str) -> OperationState:
    caps = _caps(asked)
    found = ledger_rows.standing_accounts(work.link, asked.answer_key, list(caps))
    paid = {name for name, (_, has_paid) in found.items() if has_paid}
    owing = [name for name in caps if name not in paid and _owner_of(name) not in paid]
    for name in owing:
        if name not in found:
            work.open_account(name, caps[name])
    standing = {name: account for name, (account, _) in found.items()}
    if owing:
        standing |= {account.name: account for account in work.debit(owing, asked.debt)}
    body = {**_asked(asked, owing), "answer": _sha256(answer), "body": asked.body}
    seq = work.append("repeated", body).seq
    ledger_rows.add_payers(work.link, asked.answer_key, seq, owing)
    ledger_rows.add_operation(work.link, _operation(asked, "answered", seq))
    accounts = tuple(standing[name] for name in caps if name in standing)
    return OperationState(work.head, seq, answer, accounts, debited=tuple(owing))


def _owner_of(account: str) -> str:
    """Return the account that owns a budget window's account; return any other account itself.

    A renewing budget has one account per window. What the owning account paid for counts as paid in
    every window.
    """
    parts = parts_of(account)
    return account if parts is None else parts[2]


def _caps(asked: Charge) -> dict[str, Cap]:
    return {debtor.account: debtor.cap for debtor in asked.debtors}


def _asked(asked: Charge, debited: list[str]) -> dict[str, object]:
    return {
        "user": asked.user,
        "op": asked.op,
        "request": asked.request,
        "answer_key": asked.answer_key,
        "shape": asked.shape,
        "debits": {name: hash_chain.debt_list(asked.debt) for name in debited},
    }


def _operation(asked: Charge, state: str, seq: int) -> Operation:
    ended = None if state == "charged" else seq
    return Operation(asked.user, asked.op, asked.request, asked.answer_key, state, seq, ended)


def settle_one(one: AnswerToStore, work: LedgerTransaction) -> Settled:
    """Store the answer of a charged operation, unless its answer key already has an answer."""
    settled = _settle(work, one.user, one.op, one.answer)
    names = one.names
    return (
        replace(settled, accounts=ledger_rows.accounts_of(work.link, names)) if names else settled
    )


def _settle(work: LedgerTransaction, user: str, op: str, answer: str) -> Settled:
    found = ledger_rows.operation_and_answer(work.link, user, op)
    if found is None:
        raise _never_charged()
    known, charged, standing = found
    if known.state == "failed":
        raise Bug("a failed operation cannot be settled")
    if known.state != "answered":
        return _release(work, known, list(charged["debits"]), answer, standing)
    if standing is None:
        raise _without_answer()
    return Settled(work.head, known.seq, standing)


def _release(
    work: LedgerTransaction, known: Operation, debtors: list[str], answer: str, standing: str | None
) -> Settled:
    """Append the release entry of an answer, and end its operation.

    If another operation stored an answer under the same key, that answer stays.
    """
    payers = (
        debtors
        if standing is None
        else ledger_rows.without_payers(work.link, known.answer_key, debtors)
    )
    body: dict[str, object] = {
        "user": known.user,
        "op": known.op,
        "charge": known.seq,
        "answer_key": known.answer_key,
        "answer": _sha256(answer if standing is None else standing),
        "first": standing is None,
        "payers": payers,
    }
    seq = work.append("released", body).seq
    if standing is None:
        ledger_rows.add_answer(work.link, known.answer_key, seq, answer)
    ledger_rows.add_payers(work.link, known.answer_key, seq, payers)
    ledger_rows.end_operation(work.link, known, "answered", seq)
    return Settled(work.head, known.seq, answer if standing is None else standing)


def fail(work: LedgerTransaction, user: str, op: str, *, code: str, shape: str | None) -> Settled:
    """Mark a charged operation as failed, without a refund; freeze its question shape if given.

    If the operation has an answer already, the answer stays valid.
    """
    known = _charged_operation(work, user, op)
    if known.state == "charged":
        body: dict[str, object] = {"user": user, "op": op, "charge": known.seq, "code": code}
        seq = work.append("failed", {**body, "shape": shape}).seq
        ledger_rows.end_operation(work.link, known, "failed", seq)
        _freeze_shape(work, shape)
    elif known.state == "answered" and shape is not None and not is_shape_frozen(work, shape):
        work.append(
            "shape-frozen", {"shape": shape}
        )  # another worker stored the answer, but this worker hit a limit
        _freeze_shape(work, shape)
    answer = _answer_of(work, known) if known.state == "answered" else ""
    return Settled(work.head, known.seq, answer)


def _freeze_shape(work: LedgerTransaction, shape: str | None) -> None:
    if shape is not None and not is_shape_frozen(work, shape):
        work.link.change("INSERT INTO ledger_frozen_shapes (shape) VALUES (?)", (shape,))


def is_shape_frozen(work: LedgerTransaction, shape: str) -> bool:
    """Say whether a question shape is frozen: refused until the owner unfreezes it."""
    return bool(work.link.rows("SELECT 1 FROM ledger_frozen_shapes WHERE shape = ?", (shape,)))


def thaw_shape(work: LedgerTransaction, shape: str) -> None:
    """Unfreeze a question shape, so that it is answered again; do nothing if it isn't frozen."""
    if work.link.change("DELETE FROM ledger_frozen_shapes WHERE shape = ?", (shape,)):
        work.append("shape-thawed", {"shape": shape})


def _charged_operation(work: LedgerTransaction, user: str, op: str) -> Operation:
    known = ledger_rows.operation(work.link, user, op)
    if known is None:
        raise _never_charged()
    return known


def _never_charged() -> Bug:
    return Bug("an operation ends that was never charged")


def _answer_of(work: LedgerTransaction, known: Operation) -> str:
    answer = ledger_rows.standing_answer(work.link, known.answer_key)
    if answer is None:
        raise _without_answer()
    return answer


def _without_answer() -> Bug:
    return Bug("an answered operation has no answer")


def _ended(known: Operation) -> int:
    if known.ended is None:
        raise Bug("an operation that is over has no end")
    return known.ended


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def open_account(work: LedgerTransaction, name: str, cap: Cap) -> Account:
    """Return a budget account; create it with this cap if it doesn't exist."""
    work.open_missing({name: cap})
    return ledger_rows.accounts_of(work.link, [name])[0]


def set_cap(work: LedgerTransaction, name: str, cap: Cap, before: Cap | None = None) -> Account:
    """Change an account's cap; if `before` is given, only if that is the cap now.

    Return the account, with its cap after the call. A cap below what is spent is allowed. The
    account then can't pay.
    """
    found = _account(work, name)
    if before is not None and found.cap != before:
        return found
    work.append("cap-set", {"account": name, "cap": hash_chain.cap_list(cap)})
    lowered = 0 if fits_under_cap(cap, found.spent, PrivacyCost()) else 1
    columns = ", ".join(f"cap_{part} = ?" for part in SUMS)
    sql = f"UPDATE ledger_accounts SET {columns}, lowered = ? WHERE name = ?"
    work.link.change(sql, (*hash_chain.cap_list(cap), lowered, name))
    return Account(name, cap, found.spent)


def note(work: LedgerTransaction, kind: str, body: dict[str, object]) -> LedgerHead:
    """Append an entry about an owner's act to the hash chain; return the new head."""
    work.append(kind, body)
    return work.head


def acknowledge(work: LedgerTransaction, debits: dict[str, Amounts], why: str) -> LedgerHead:
    """Reopen the ledger after a loss: debit the given amounts, at most up to each cap.

    A new epoch of the ledger (a counter of such reopenings) starts, and the ledger is no longer
    frozen.
    """
    clipped = {name: _clipped(_account(work, name), amounts) for name, amounts in debits.items()}
    return _go_on(work, clipped, {"why": why})


def acknowledge_loss(work: LedgerTransaction, loss: Loss, why: str) -> LedgerHead:
    """Reopen the ledger after a measured loss: debit exactly what was lost, even beyond a cap.

    A new epoch of the ledger (a counter of such reopenings) starts, and the ledger is no longer
    frozen. An account that only the lost entries contained is opened with the cap that the anchor
    knows. A cap that the lost entries may have lowered is lowered again.
    """
    for account in loss.accounts:
        found = ledger_rows.account(work.link, account.name)
        if found is None:
            work.open_account(account.name, account.cap)
        elif account.name in loss.lowered:
            pairs = zip(astuple(found.cap), astuple(account.cap), strict=True)
            least = Cap(*(min(pair) for pair in pairs))
            if least != found.cap:
                set_cap(work, account.name, least)
    places = {"mark": astuple(loss.mark), "common": astuple(loss.common)}
    debits = {account.name: account.spent for account in loss.accounts}
    return _go_on(work, debits, {"why": why, "measured": places})


def _go_on(
    work: LedgerTransaction, debits: dict[str, PrivacyCost], fields: dict[str, object]
) -> LedgerHead:
    body = {**fields, "debits": {name: hash_chain.debt_list(debt) for name, debt in debits.items()}}
    work.append("acknowledged", {**body, "origin": work.database_id}, epoch=work.head.epoch + 1)
    for name, debt in debits.items():
        found = _account(work, name)
        spent = hash_chain.add(found.spent, debt)
        lowered = 0 if fits_under_cap(found.cap, spent, PrivacyCost()) else 1
        columns = ", ".join(f"spent_{part} = ?" for part in SUMS)
        sql = f"UPDATE ledger_accounts SET {columns}, lowered = ? WHERE name = ?"
        work.link.change(sql, (*hash_chain.debt_list(spent), lowered, name))
    work.frozen = None
    work.origin = work.database_id
    return work.head


def _clipped(found: Account, amounts: Amounts) -> PrivacyCost:
    if min(amounts) < 0:
        raise Bug("a debit cannot be negative")
    cap, spent = hash_chain.cap_list(found.cap), hash_chain.debt_list(found.spent)
    left = (max(0, most - gone) for most, gone in zip(cap, spent, strict=True))
    return PrivacyCost(*(min(amount, room) for amount, room in zip(amounts, left, strict=True)))


def _account(work: LedgerTransaction, name: str) -> Account:
    found = ledger_rows.account(work.link, name)
    if found is None:
        raise Bug("the ledger has no account of that name")
    return found
