"""The ledger store over any SQL database; a method returns when its writes are durable."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any, Final

from sfumato.dp.refusal import Bug, Refused
from sfumato.storage import ledger_comparison, ledger_operations, ledger_rows
from sfumato.storage import ledger_history as past
from sfumato.storage.database import Database, DatabaseLink, Fault, FaultCode, exception_of
from sfumato.storage.ledger_transaction import CannotPay, HistoryLost, LedgerTransaction, seen_day
from sfumato.storage.shared_connection import SharedConnection
from sfumato.system.group_commit import GroupCommit
from sfumato.system.group_commit import Outcome as Ended
from sfumato.vault import hash_chain
from sfumato.vault.budget_windows import trusted_day
from sfumato.vault.ledger_entries import (
    Account,
    AnchorMark,
    AnswerToStore,
    Cap,
    Charge,
    Charged,
    Entry,
    Exceeded,
    LedgerHead,
    Loss,
    Mark,
    OperationState,
    Outcome,
    Paid,
    PastOperation,
    Settled,
)
from sfumato.vault.ports import Clock, MarkAll

# --- Track the latest entries that only this process wrote, and that contain no note


@dataclass(frozen=True)
class OwnEntries:
    """Consecutive ledger entries that only this process wrote, from a start head to an end head.

    `SqlLedger.notes` needs no query for them.
    """

    start: LedgerHead | None = None
    end: LedgerHead | None = None

    def extended(self, begun: LedgerHead, end: LedgerHead, *, has_notes: bool) -> OwnEntries:
        """Return these entries, extended by one transaction between two ledger heads.

        Start again with that transaction if another process wrote in between, or if the ledger was
        reopened after a loss (a new epoch). A transaction with a note leaves no entries, because
        `SqlLedger.notes` must then query the database.
        """
        if has_notes:
            return OwnEntries(end, end)
        goes_on = self.end == begun and begun.epoch == end.epoch
        return OwnEntries(self.start if goes_on else begun, end)

    def covers(self, after: int, until: int) -> bool:
        """Say whether this process wrote all ledger entries with `after` < seq <= `until`."""
        if self.start is None or self.end is None:
            return False
        return self.start.seq <= after and until <= self.end.seq


_PAGE: Final = 1000
SLACK_S: Final = 3600  # seconds by which the clock may run ahead of the monotonic clock
Act = Callable[[LedgerTransaction], object]


class SqlLedger:
    """Ledger in an SQL database, with one connection for writes and one for reads.

    It is thread-safe. Concurrent acts share one transaction (group commit,
    `system/group_commit.py`). Each act succeeds or is refused by itself, and no call returns before
    the transaction is durable. After a fork, the child opens its own connections.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._writing = SharedConnection(self._connected)
        self._looking = SharedConnection(self._connected)
        self._seen: LedgerHead | None = None
        self._last_with_mark: LedgerTransaction | None = (
            None  # the last batch, if it checked the anchor's mark and the ledger contains it
        )
        # times of the clock and the monotonic clock when a day was last trusted
        self._trusted: tuple[datetime, float] | None = None
        self._database_id = ""  # id of the database
        self._own = OwnEntries()
        self._mark: MarkAll | None = None
        self._acts: GroupCommit[Act, Any] = GroupCommit(  # Any: each act has its own type
            self._run_one, self._run_in_one_transaction, self._mark_all
        )

    def mark_with(self, mark: MarkAll) -> None:
        """Set the function that advances the anchor file once per batch of several acts.

        It runs before any call of the batch returns.
        """
        self._mark = mark

    def charge(self, charge: Charge, mark: Mark = None) -> Outcome:
        """Debit every account that pays for an operation, or none; or return the stored answer.

        An operation is debited once. If the ledger was rolled back (it lacks the anchor's
        position), this freezes the ledger and refuses the charge.
        """
        try:
            outcome: Outcome = self._run_act(
                lambda work: ledger_operations.charge(work, charge, mark)
            )
        except CannotPay as refusal:
            return Exceeded(refusal.account)
        return outcome

    def charge_all(self, charges: Sequence[Charge], mark: AnchorMark) -> list[Paid]:
        """Debit the accounts of several charges in one transaction; return the outcome of each.

        An outcome of None means that this charge changed nothing. The caller then uses `charge`,
        which returns the reason. A charge with an error may have been paid.
        """
        ended = self._run_all(
            [partial(ledger_operations.charge, asked=one, mark=mark) for one in charges]
        )
        return [_paid(one) for one in ended]

    def settle(
        self, user: str, op: str, answer: str, names: Sequence[str] = (), mark: Mark = None
    ) -> Settled:
        """Store the answer of a charged operation; never replace the first answer of a key.

        The result has the named accounts as they are in the same transaction.
        """
        one = AnswerToStore(user, op, answer, tuple(names))
        settled: Settled = self._run_act(
            ledger_operations.with_mark_check(mark, partial(ledger_operations.settle_one, one))
        )
        return settled

    def settle_all(self, answers: Sequence[AnswerToStore], mark: Mark) -> list[Settled | Exception]:
        """Store several answers in one transaction; return each stored answer, or its error."""
        ended = self._run_all(
            [
                ledger_operations.with_mark_check(mark, partial(ledger_operations.settle_one, one))
                for one in answers
            ]
        )
        return [self._ending(one) for one in ended]

    def fail(self, user: str, op: str, code: str, shape: str | None) -> Settled:
        """Mark a charged operation as failed; freeze its question shape for all users, if given."""
        ended: Settled = self._acts.run(
            lambda work: ledger_operations.fail(work, user, op, code=code, shape=shape)
        )
        return ended

    def thaw_shape(self, shape: str, mark: Mark = None) -> None:
        """Unfreeze a question shape (a question without its constants), which had hit a limit."""
        self._run_act(
            ledger_operations.with_mark_check(
                mark, partial(ledger_operations.thaw_shape, shape=shape)
            )
        )

    def open_account(self, account: str, cap: Cap, mark: Mark = None) -> Account:
        """Return a budget account; create it with this cap if it doesn't exist; change no cap."""
        act = partial(ledger_operations.open_account, name=account, cap=cap)
        opened: Account = self._run_act(ledger_operations.with_mark_check(mark, act))
        return opened

    def set_cap(self, name: str, cap: Cap, before: Cap | None = None, mark: Mark = None) -> Account:
        """Change an account's cap; if `before` is given, only if that is the cap now.

        Return the account, with its cap after the call.
        """
        act = partial(ledger_operations.set_cap, name=name, cap=cap, before=before)
        made: Account = self._run_act(ledger_operations.with_mark_check(mark, act))
        return made

    def note(self, kind: str, body: dict[str, object]) -> LedgerHead:
        """Append an entry about an owner's act to the ledger; return the new head.

        Raise Bug if the kind is one of the ledger's own.
        """
        if kind in hash_chain.KINDS:
            raise Bug(f"the kind {kind!r} is the ledger's own")
        head: LedgerHead = self._acts.run(lambda work: ledger_operations.note(work, kind, body))
        return head

    def freeze(self, reason: str) -> None:
        """Freeze the ledger: refuse every charge until the owner acknowledges the fault.

        If the ledger is frozen already, the first reason is kept.
        """
        self._acts.run(lambda work: work.freeze(reason))

    def acknowledge(self, debits: dict[str, ledger_operations.Amounts], why: str) -> LedgerHead:
        """Reopen the ledger after a loss: debit the given amounts, at most up to each cap.

        A new epoch of the ledger (a counter of such reopenings) starts, and the ledger is no longer
        frozen.
        """
        head: LedgerHead = self._acts.run(
            lambda work: ledger_operations.acknowledge(work, debits, why)
        )
        return head

    def is_moved(self) -> bool:
        """Say whether the ledger was last used in another database than this one."""
        return self._looking.seen(ledger_rows.standing).origin != self._database_id

    def go_on_here(self, mark: AnchorMark) -> LedgerHead:
        """Accept that the ledger was moved to this database; return its head.

        Freeze the ledger and refuse if its head isn't the position that the anchor holds.
        """
        head: LedgerHead = self._run_act(
            ledger_operations.with_mark_check(mark, lambda work: work.head)
        )
        return head

    def acknowledge_loss(self, loss: Loss, why: str) -> LedgerHead:
        """Reopen the ledger after a measured loss: debit exactly what was lost.

        A new epoch of the ledger (a counter of such reopenings) starts, and the ledger is no longer
        frozen.
        """
        head: LedgerHead = self._acts.run(
            lambda work: ledger_operations.acknowledge_loss(work, loss, why)
        )
        return head

    def window_day(self) -> date:
        """Return the day that decides which budget windows are open (`vault/budget_windows.py`)."""
        now = datetime.fromisoformat(self._clock.now())
        seen = self._looking.seen(lambda link: seen_day(link, self._database.dialect))
        return trusted_day(seen, now.date(), is_vouched=self._vouches(now))

    def trust_day(self, mark: Mark) -> date | None:
        """Record the clock's day as trusted, because the owner confirms it; return the day.

        Return None if a later day was trusted already.
        """

        def trusted(work: LedgerTransaction) -> date | None:
            now = datetime.fromisoformat(work.now())
            seen = seen_day(work.link, work.dialect)
            if seen is not None and now.date() < seen:
                return None
            work.trust(now.date(), now)
            return now.date()

        day: date | None = self._run_act(ledger_operations.with_mark_check(mark, trusted))
        return day

    def head(self) -> LedgerHead:
        """Return the ledger's head: its id, epoch, last sequence number and hash."""
        return self._looking.seen(ledger_rows.standing).head

    def frozen(self) -> str | None:
        """Return why the ledger is frozen, or None."""
        return self._looking.seen(ledger_rows.standing).frozen

    def standing_with(self, seq: int) -> tuple[LedgerHead, str | None, Entry | None]:
        """Return the ledger's head, why it is frozen, and the entry with a sequence number.

        All three come from one SQL statement.
        """
        return self._looking.seen(lambda link: ledger_rows.standing_with(link, seq))

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the frozen question shapes: refused until the owner unfreezes them."""
        return self._looking.seen(ledger_rows.frozen_shapes)

    def account(self, account: str) -> Account | None:
        """Return the budget account of that name, or None."""
        return self._looking.seen(lambda link: ledger_rows.account(link, account))

    def accounts_of(self, names: Sequence[str]) -> tuple[Account, ...]:
        """Return the named budget accounts that exist, in the order of the names."""
        return self._looking.seen(lambda link: ledger_rows.accounts_of(link, names))

    def head_and_accounts(self) -> tuple[LedgerHead, tuple[Account, ...]]:
        """Return the ledger's head and every budget account, from one snapshot."""
        with self.own_connection() as link:
            link.begin_reading()
            return ledger_rows.standing(link).head, ledger_rows.accounts(link)

    def accounts(self) -> tuple[Account, ...]:
        """Return every budget account, sorted by name."""
        return self._looking.seen(ledger_rows.accounts)

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the stored answer of a user's operation, or None."""
        return self._looking.seen(lambda link: ledger_rows.answer_of(link, user, op))

    def is_paid_by(self, answer_key: str, names: Sequence[str]) -> bool:
        """Say whether all these accounts have paid for the answer stored under a key."""
        return self._looking.seen(
            lambda link: not ledger_rows.without_payers(link, answer_key, names)
        )

    def entry(self, seq: int) -> Entry | None:
        """Return the ledger entry with a sequence number, or None."""
        return self._looking.seen(lambda link: ledger_rows.entry(link, seq))

    def past(self, user: str, before: int, limit: int) -> tuple[PastOperation, ...]:
        """Return a user's operations that were charged before a ledger entry, newest first."""
        return self._looking.seen(lambda link: past.past(link, user, before, limit))

    def past_of(self, user: str, op: str) -> PastOperation | None:
        """Return one past operation of a user, or None if the ledger has none of that id."""
        return self._looking.seen(lambda link: past.past_of(link, user, op))

    def charges(
        self, before: int, limit: int, *, people: str | None = None, data_set: str | None = None
    ) -> tuple[Entry, ...]:
        """Return the charges and repeats before an entry, of people or a data set, newest first."""
        return self._looking.seen(lambda link: past.charges(link, before, limit, people, data_set))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the ledger entries above a sequence number, in order; read them page by page."""
        while page := self._looking.seen(partial(ledger_rows.entry_page, after=after, size=_PAGE)):
            yield from page
            after = page[-1].seq

    def notes(self, kind: str, after: int = 0, until: int | None = None) -> tuple[Entry, ...]:
        """Return the ledger entries of one kind above sequence number `after`, in order.

        If this process wrote all entries from `after` to `until`, and none of them is a note,
        return no entry, without a query. Otherwise the result may also contain entries above
        `until`.
        """
        if until is not None and self._own.covers(after, until):
            return ()
        return self._looking.seen(lambda link: ledger_rows.entries_of(link, kind, after))

    def verify(self) -> hash_chain.Verdict:
        """Verify the whole hash chain, and the state tables against it, in one snapshot."""
        with self.own_connection() as link:
            link.begin_reading()
            return ledger_comparison.compare(link)

    def close(self) -> None:
        """Close the database connections; the next call opens new ones."""
        for held in (self._writing, self._looking):
            held.drop()

    def _run_act(self, act: Act) -> Any:  # Any: each act has its own type
        """Run an act and return its result; if the ledger was rolled back, freeze it and refuse."""
        try:
            return self._acts.run(act)
        except HistoryLost as lost:
            reason = lost.reason
        raise self._lost(reason)

    def _lost(self, reason: str) -> Refused:
        self.freeze(reason)  # a separate act, because the act that found the loss was undone
        return hash_chain.ledger_frozen(self.frozen() or reason)

    def _ending(self, ended: Ended[Settled]) -> Settled | Exception:
        if isinstance(ended.error, HistoryLost):
            return self._lost(ended.error.reason)
        return ended.gives if ended.error is None else ended.error  # type: ignore[return-value]

    def _run_one(self, act: Act) -> object:
        """Run one act in a transaction of its own."""
        with self._transaction() as work:
            return act(work)

    def _run_in_one_transaction(self, acts: Sequence[Act]) -> list[Ended[object]] | None:
        """Run several acts in one transaction; return None if it failed before its commit.

        If the commit fails, every act gets the error, because the commit may have succeeded.
        """
        ended: list[Ended[object]] | None = None
        error: Exception | None = None
        try:
            with self._transaction() as work:
                ended = [_within(work, act) for act in acts]
        except (Refused, Bug) as refusal:
            error = refusal
        if ended is None or error is None:
            return ended
        return [Ended(error=error)] * len(acts)

    def _run_all(self, acts: Sequence[Act]) -> list[Ended[Any]]:  # Any: each act has its own type
        """Run acts in one transaction, or each alone if it fails; then advance the anchor file."""
        ended = self._run_in_one_transaction(acts) or [self._run_caught(act) for act in acts]
        self._mark_all()
        return ended

    def _run_caught(self, act: Act) -> Ended[object]:
        error: Exception
        try:
            return Ended(self._run_one(act))
        except (CannotPay, HistoryLost, Refused, Bug) as refusal:
            error = refusal
        return Ended(error=error)

    def _mark_all(self) -> None:
        """Advance the anchor file to the last batch of acts; ignore a refusal of the anchor.

        A later charge meets the refusal. Only a batch that found the anchor's position in the
        ledger may advance the anchor. Other acts would make the anchor agree with a ledger that was
        rolled back.
        """
        last = self._last_with_mark
        if self._mark is not None and last is not None:
            with contextlib.suppress(Refused):
                self._mark(last.head, tuple(last.debited.values()), last.heads)

    @contextmanager
    def _transaction(self) -> Iterator[LedgerTransaction]:
        """Run a block as one transaction that locks the head: commit at its end, or roll back."""
        with self._writing.lock:
            work = self._writing.seen(self._hold_head)
            begun = work.head
            code: FaultCode
            try:
                yield work
                work.finish()
                work.link.commit()
                self._own = self._own.extended(begun, work.head, has_notes=work.has_notes)
                self._seen = work.head
                self._last_with_mark = work if work.has_mark else None
                if work.trusted is not None:
                    self._trusted = work.trusted, time.monotonic()
                return
            except Fault as fault:
                code = fault.code
            except BaseException:
                self._undo(work.link)
                raise
            finally:
                if work.lacks_mark:
                    self._last_with_mark = None
            self.close()  # after a failed commit, only the disk knows the state: drop ours
        raise exception_of(code)

    @contextmanager
    def own_connection(self) -> Iterator[DatabaseLink]:
        """Open a separate database connection, and close it when the `with` block ends."""
        link: DatabaseLink | None = None
        code: FaultCode
        try:
            link = self._database.connect()
            yield link
            return
        except Fault as fault:
            code = fault.code
        finally:
            if link is not None:
                link.close()
        raise exception_of(code)

    def _hold_head(self, link: DatabaseLink) -> LedgerTransaction:
        work = self._begin(link)
        reason = self._lost_history(work)
        if reason is None or work.frozen is not None:
            return work
        self._last_with_mark = None
        work.freeze(reason)
        work.finish()
        link.commit()
        self._seen = work.head
        return self._begin(link)

    def _begin(self, link: DatabaseLink) -> LedgerTransaction:
        dialect = self._database.dialect
        link.begin()
        found = ledger_rows.standing(link, dialect.lock)
        head, frozen, origin = found.head, found.frozen, found.origin
        now, database_id, vouches = self._clock.now, self._database_id, self._vouches
        return LedgerTransaction(
            link, dialect, now, head, frozen, origin, database_id, vouches=vouches
        )

    def _vouches(self, now: datetime) -> bool:
        """Say whether the clock was not set ahead since its day was last trusted.

        The clock may be at most an hour (SLACK_S) ahead of the monotonic time since then.
        """
        if self._trusted is None:
            return False
        then, counted = self._trusted
        return (now - then).total_seconds() <= time.monotonic() - counted + SLACK_S

    def _lost_history(self, work: LedgerTransaction) -> str | None:
        """Return a reason if the ledger no longer contains the last head that this process saw.

        Return None if it does: the ledger was not rolled back.
        """
        seen = self._seen
        if seen is None or seen == work.head:
            return None
        mark = AnchorMark(seen.ledger, seen.epoch, seen.seq, seen.hash)
        if hash_chain.disagreement(mark, work.head, ledger_rows.entry(work.link, seen.seq)) is None:
            return None
        return hash_chain.SEEN

    def _connected(self) -> DatabaseLink:
        link = self._database.connect()
        try:
            self._database_id = link.origin()
        except BaseException:
            link.close()
            raise
        return link

    def _undo(self, link: DatabaseLink) -> None:
        try:
            link.rollback()
        except Fault:
            self._writing.drop()


def _within(work: LedgerTransaction, act: Act) -> Ended[object]:
    """Run one act of a shared transaction in a savepoint; if it is refused, roll back to it."""
    before = work.savepoint()
    error: Exception
    try:
        given = act(work)
        work.heads.append(work.head)
        return Ended(given)
    except (CannotPay, HistoryLost, Refused, Bug) as refusal:
        error = refusal
    work.rollback_to(before)
    return Ended(error=error)


def _paid(ended: Ended[Outcome]) -> Paid:
    if isinstance(ended.error, CannotPay | HistoryLost):
        return None
    if ended.error is not None:
        return ended.error
    return ended.gives if isinstance(ended.gives, Charged | OperationState) else None
