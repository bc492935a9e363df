"""The ledger over any SQL database: a method is one transaction, durable when it returns."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar
from weakref import WeakSet

from sfumato.core import chain
from sfumato.core.account import (
    Account,
    AnchorMark,
    Cap,
    Charge,
    Entry,
    Exceeded,
    Head,
    Outcome,
    Settled,
)
from sfumato.core.ports import Clock, Dice
from sfumato.core.refusal import Bug, Refused
from sfumato.stores import comparison, rows, steps
from sfumato.stores.link import Database, Fault, FaultCode, Link, spoken
from sfumato.stores.tables import statements
from sfumato.stores.work import CannotPay, Work

_PAGE: Final = 1000
T = TypeVar("T")


class SqlLedger:
    """A LedgerStore; it holds one connection, made when first needed, and the last head it saw.

    Safe under threads (a lock). After a fork the child leaves the parent's connection alone and
    makes its own.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.RLock()
        self._link: Link | None = None
        self._seen: Head | None = None
        _OPEN.add(self)

    def charge(self, charge: Charge) -> Outcome:
        """Debit every account or none, once per operation; or return what already stands."""
        try:
            with self._work() as work:
                return steps.charge(work, charge)
        except CannotPay as refusal:
            return Exceeded(refusal.account)

    def settle(self, user: str, op: str, answer: str) -> Settled:
        """Store a charged operation's answer; the first one under its key stands for ever."""
        with self._work() as work:
            return steps.settle(work, user, op, answer)

    def fail(self, user: str, op: str, code: str, shape: str | None) -> Settled:
        """Mark a charged operation as failed; a shape that is given is frozen for everyone."""
        with self._work() as work:
            return steps.fail(work, user, op, code=code, shape=shape)

    def thaw_shape(self, shape: str) -> None:
        """Let a frozen shape of question be asked again."""
        with self._work() as work:
            steps.thaw_shape(work, shape)

    def open_account(self, account: str, cap: Cap) -> Account:
        """Return the account, opened with this cap if it was not there; never change a cap."""
        with self._work() as work:
            return steps.open_account(work, account, cap)

    def set_cap(self, account: str, cap: Cap) -> Account:
        """Change an account's cap by the owner's word; what was spent stays spent."""
        with self._work() as work:
            return steps.set_cap(work, account, cap)

    def note(self, kind: str, body: dict[str, object]) -> Head:
        """Append an owner's act to the chain; it cannot pass for one of the ledger's own."""
        if kind in chain.KINDS:
            raise Bug(f"the kind {kind!r} is the ledger's own")
        with self._work() as work:
            work.append(kind, body)
            return work.head

    def freeze(self, reason: str) -> None:
        """Stop every charge until the owner acknowledges; the first reason stays."""
        with self._work() as work:
            work.freeze(reason)

    def acknowledge(self, debits: dict[str, steps.Amounts], why: str) -> Head:
        """Open a new epoch, debit what may be lost (up to the caps, never past them), thaw."""
        with self._work() as work:
            return steps.acknowledge(work, debits, why, origin=work.link.origin())

    def head(self) -> Head:
        """Return the ledger's identity, epoch, last sequence number and hash."""
        return self._read(rows.standing).head

    def frozen(self) -> str | None:
        """Return why the ledger is frozen, or None."""
        return self._read(rows.standing).frozen

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the shapes of question that wait for the owner."""
        return self._read(rows.frozen_shapes)

    def account(self, account: str) -> Account | None:
        """Return the account as it stands, or None."""
        return self._read(lambda link: rows.account(link, account))

    def accounts(self) -> tuple[Account, ...]:
        """Return every account, by name."""
        return self._read(rows.accounts)

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the answer that the user's operation was given, or None."""
        return self._read(lambda link: rows.answer_of(link, user, op))

    def entry(self, seq: int) -> Entry | None:
        """Return one entry, or None."""
        return self._read(lambda link: rows.entry(link, seq))

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries above that sequence number, in order, a page at a time."""
        while page := self._read(partial(rows.entry_page, after=after, size=_PAGE)):
            yield from page
            after = page[-1].seq

    def verify(self) -> chain.Verdict:
        """Replay the whole chain and compare every row of state with it, as of one moment."""
        with self._own_connection() as link:
            link.begin_reading()
            return comparison.compare(link)

    def close(self) -> None:
        """Let go of the connection; the next call makes a new one."""
        with self._lock:
            self._drop()

    @contextmanager
    def _work(self) -> Iterator[Work]:
        """Hold the head; commit when the block ends, undo everything when it raises."""
        with self._lock:
            work = self._read(self._hold_head)
            code: FaultCode
            try:
                yield work
                work.finish()
                work.link.commit()
                self._seen = work.head
                return
            except Fault as fault:
                code = fault.code
            except BaseException:
                self._undo(work.link)
                raise
            self._drop()  # whether a failed commit took place is asked of the disk, not of memory
        raise spoken(code)

    @contextmanager
    def _own_connection(self) -> Iterator[Link]:
        link: Link | None = None
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
        raise spoken(code)

    def _read(self, look: Callable[[Link], T]) -> T:
        """Return what is seen through the connection; a lost one is made anew, once."""
        with self._lock:
            code: FaultCode
            for is_last in (False, True):
                try:
                    return look(self._connected())
                except Fault as fault:
                    code = fault.code
                self._drop()
                if is_last or code != "lost":
                    raise spoken(code)
        raise Bug("unreachable")

    def _hold_head(self, link: Link) -> Work:
        work = self._held(link)
        reason = self._lost_history(work)
        if reason is None or work.frozen is not None:
            return work
        work.freeze(reason)
        work.finish()
        link.commit()
        self._seen = work.head
        return self._held(link)

    def _held(self, link: Link) -> Work:
        dialect = self._database.dialect
        link.begin()
        found = rows.standing(link, dialect.lock)
        return Work(link, dialect, self._clock.now, found.head, found.frozen, found.origin)

    def _lost_history(self, work: Work) -> str | None:
        """Return why this is not the ledger that this process has seen before, or None."""
        seen = self._seen
        if seen is None or seen == work.head:
            return None
        mark = AnchorMark(seen.ledger, seen.epoch, seen.seq, seen.hash)
        if chain.disagreement(mark, work.head, rows.entry(work.link, seen.seq)) is None:
            return None
        return "the ledger has lost entries that this process has seen"

    def _connected(self) -> Link:
        if self._link is None:
            link = self._database.connect()
            try:
                self._freeze_if_moved(link)
            except BaseException:
                link.close()
                raise
            self._link = link
        return self._link

    def _freeze_if_moved(self, link: Link) -> None:
        """Freeze a ledger in another database: a replica was promoted, or a copy restored."""
        here = link.origin()
        if rows.standing(link).origin == here:
            return
        work = self._held(link)
        if work.origin != here:
            work.freeze("the database is not the one that the ledger was made in")
        work.finish()
        link.commit()

    def _undo(self, link: Link) -> None:
        try:
            link.rollback()
        except Fault:
            self._drop()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _leave_parent(self) -> None:
        """In a forked child: keep the parent's connection untouched, and make our own."""
        if self._link is not None:
            _LEFT.append(self._link)
        self._link = None
        self._lock = threading.RLock()


def create_ledger(database: Database, clock: Clock, dice: Dice) -> SqlLedger:
    """Return a new ledger; refuse a place that holds one."""
    code: FaultCode | None = None
    link: Link | None = None
    try:
        link = database.connect()
        link.begin()
        _make(link, database, clock, dice)
        link.commit()
    except Fault as fault:
        code = fault.code
    finally:
        if link is not None:
            link.close()
    if code is not None:
        raise spoken(code)
    return open_ledger(database, clock)


def open_ledger(database: Database, clock: Clock) -> SqlLedger:
    """Return the ledger that lies there; refuse a place that holds none."""
    ledger = SqlLedger(database, clock)
    with ledger._own_connection() as link:
        found = link.rows(database.dialect.exists)
    if not found:
        raise Refused("vault-missing", "There is no ledger here.", "Make the vault first.")
    ledger.head()
    return ledger


def _make(link: Link, database: Database, clock: Clock, dice: Dice) -> None:
    if link.rows(database.dialect.exists):
        raise Refused(
            "vault-exists", "A ledger lies here already.", "Open it, or choose another place."
        )
    for statement in statements(database.dialect):
        link.change(statement)
    name, origin = dice.draw(16).hex(), link.origin()
    first = chain.next_entry(
        Head(name, 1, 0, chain.GENESIS),
        epoch=1,
        at=clock.now(),
        kind="ledger-created",
        body=chain.canonical({"ledger": name, "origin": origin}),
    )
    rows.add_entry(link, first)
    sql = "INSERT INTO ledger_head (id, ledger, epoch, seq, hash, origin) VALUES (1, ?, 1, 1, ?, ?)"
    link.change(sql, (name, first.hash, origin))


_OPEN: Final[WeakSet[SqlLedger]] = WeakSet()
_LEFT: Final[list[Link]] = []  # kept for ever: closing one here would end the parent's transactions


def _after_fork() -> None:
    for ledger in list(_OPEN):
        ledger._leave_parent()


os.register_at_fork(after_in_child=_after_fork)
