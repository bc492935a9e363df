"""One open ledger transaction: it locks the head, appends entries and debits accounts.

If several acts share the transaction (group commit), each has a savepoint. So the database undoes
only the act that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from sfumato.dp.accounting.privacy_events import PrivacyCost
from sfumato.dp.refusal import Bug
from sfumato.storage import ledger_rows
from sfumato.storage.database import DatabaseLink, Dialect
from sfumato.storage.ledger_tables import SUMS
from sfumato.vault.budget_windows import CLOCK, trusted_day
from sfumato.vault.hash_chain import (
    KINDS,
    MAX_SUM,
    MOVED,
    canonical,
    cap_list,
    debt_list,
    disagreement,
    next_entry,
)
from sfumato.vault.ledger_entries import Account, AnchorMark, Cap, Entry, LedgerHead


class CannotPay(Exception):
    """Error: an account's budget can't pay a debit; the transaction undoes the act."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.name)
        self.account = account


class HistoryLost(Exception):
    """Error: the ledger lacks the entry that the anchor file names; the act is undone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class LedgerTransaction:
    """Write transaction on the ledger; it locks the head, so that other writers wait."""

    link: DatabaseLink
    dialect: Dialect
    now: Callable[[], str]
    head: LedgerHead
    frozen: str | None
    origin: str
    database_id: str = ""  # id of the database in use; differs from `origin` after a move
    is_dirty: bool = False
    has_notes: bool = False  # whether notes were written, even if they were undone since
    has_mark: bool = False  # the anchor's mark was checked, and the ledger contains it
    lacks_mark: bool = False  # the anchor's mark was checked, and the ledger lacks it
    # confirms that the clock was not set ahead
    vouches: Callable[[datetime], bool] = lambda _: False
    trusted: datetime | None = None  # the clock's time, if its day is trusted
    debited: dict[str, Account] = field(default_factory=dict)  # debited accounts, as they are now
    heads: list[LedgerHead] = field(
        default_factory=list
    )  # the head after each act; receipts name these heads

    def savepoint(self) -> LedgerTransaction:
        """Create a database savepoint; return a copy of this object's state for `rollback_to`."""
        self.link.change("SAVEPOINT act")  # a rollback to a name uses its newest savepoint
        return replace(self, debited=dict(self.debited))

    def rollback_to(self, savepoint: LedgerTransaction) -> None:
        """Roll back to the newest savepoint, in the database and in this object."""
        self.link.change("ROLLBACK TO SAVEPOINT act")
        self.head, self.frozen = savepoint.head, savepoint.frozen
        self.origin, self.is_dirty = savepoint.origin, savepoint.is_dirty
        self.debited = savepoint.debited

    def append(
        self,
        kind: str,
        body: dict[str, object],
        *,
        epoch: int | None = None,
        at: str | None = None,
    ) -> Entry:
        """Append an entry to the hash chain and make it the ledger's head."""
        made = next_entry(
            self.head,
            epoch=epoch or self.head.epoch,
            at=at or self.now(),
            kind=kind,
            body=canonical(body),
        )
        ledger_rows.add_entry(self.link, made)
        self.has_notes = self.has_notes or kind not in KINDS
        self.head = LedgerHead(self.head.ledger, made.epoch, made.seq, made.hash)
        self.is_dirty = True
        return made

    def check_mark(self, mark: AnchorMark) -> None:
        """Raise HistoryLost unless the ledger has the position (mark) of the anchor file.

        If the ledger was moved to another database, the position must be the head itself. Then no
        entry is missing and nobody has continued elsewhere, so the ledger continues here.
        """
        head = self.head
        if (mark.ledger, mark.epoch, mark.seq, mark.hash) == (
            head.ledger, head.epoch, head.seq, head.hash,
        ):  # fmt: skip
            self._move()
            self.has_mark = True
            return
        reason = disagreement(mark, head, ledger_rows.entry(self.link, mark.seq))
        if reason is None and self.is_moved:
            reason = MOVED
        if reason is not None:
            self.lacks_mark = True
            raise HistoryLost(reason)
        self.has_mark = True

    @property
    def is_moved(self) -> bool:
        """Say whether the ledger was last used in another database than this one."""
        return self.origin != self.database_id

    def _move(self) -> None:
        if self.is_moved and self.frozen is None:
            self.append("moved", {"origin": self.database_id})
            self.origin = self.database_id

    def window_day(self) -> date:
        """Return the day that decides which budget windows are open.

        If the clock's day is trusted now, record that day.
        """
        now = datetime.fromisoformat(self.now())
        seen = seen_day(self.link, self.dialect)
        day = trusted_day(seen, now.date(), is_vouched=self.vouches(now))
        if day == now.date():
            self.trust(day, now)
        return day

    def trust(self, day: date, now: datetime) -> None:
        """Record that the clock's day is trusted; do nothing if that day is recorded already."""
        self.open_missing({f"{CLOCK}{day.isoformat()}": Cap(0, 0, 0, 0)})
        self.trusted = now

    def freeze(self, reason: str) -> None:
        """Freeze the ledger, so that it refuses every charge; keep the first reason."""
        if self.frozen is None:
            self.append("frozen", {"reason": reason})
            self.frozen = reason

    def finish(self) -> None:
        """Write the ledger's new head to its row, as the last step before the commit."""
        if not self.is_dirty:
            return
        sql = "UPDATE ledger_head SET epoch = ?, seq = ?, hash = ?, frozen = ?, origin = ?"
        head = self.head
        if self.link.change(sql, (head.epoch, head.seq, head.hash, self.frozen, self.origin)) != 1:
            raise Bug("the ledger has no single head")

    def debit(self, names: Sequence[str], debt: PrivacyCost) -> tuple[Account, ...]:
        """Debit every account by one conditional UPDATE; raise CannotPay if one can't pay.

        Return the debited accounts, in the order of `names`. The WHERE clause of the UPDATE is the
        privacy filter (`fits_under_cap`), so test and debit are one step. With a SELECT before the
        UPDATE, two processes could both pay (soundness rule 3).
        """
        amounts = debt_list(debt)
        paid = self.link.rows(
            _debit_sql(self.dialect.least, len(names)), (*amounts, *names, *amounts)
        )
        self.is_dirty = True
        able = {row[0]: ledger_rows.account_in(row) for row in paid}
        self.debited |= able
        if len(able) != len(names):
            unable = next(name for name in names if name not in able)
            raise CannotPay(_known(ledger_rows.account(self.link, unable)))
        return tuple(able[name] for name in names)

    def open_missing(self, wanted: dict[str, Cap]) -> None:
        """Create those of the accounts that don't exist; change no existing cap."""
        sql = f"SELECT name FROM ledger_accounts WHERE name IN ({ledger_rows.marks(len(wanted))})"
        there = {name for (name,) in self.link.rows(sql, tuple(wanted))}
        for name, cap in wanted.items():
            if name not in there:
                self.open_account(name, cap)

    def open_account(self, name: str, cap: Cap) -> None:
        """Create a budget account that has spent nothing, and record that in the chain."""
        self.append("account-opened", {"account": name, "cap": cap_list(cap)})
        ledger_rows.add_account(self.link, name, cap)


def seen_day(link: DatabaseLink, dialect: Dialect) -> date | None:
    """Return the last day that the ledger recorded as trusted, or None."""
    found = ledger_rows.last_account(link, CLOCK, dialect.bytewise)
    return None if found is None else date.fromisoformat(found.removeprefix(CLOCK))


def _debit_sql(least: str, names: int) -> str:
    added = ", ".join(f"spent_{n} = {least}(spent_{n} + ?, {MAX_SUM})" for n in SUMS)
    return (
        f"UPDATE ledger_accounts SET {added}, lowered = 0 WHERE name IN ({ledger_rows.marks(names)}) AND ("  # noqa: E501
        "(spent_epsilon + ? <= cap_epsilon AND spent_delta + ? <= cap_delta) OR "
        "(spent_rho + ? <= cap_rho AND spent_rho_delta + ? <= cap_rho_delta))"
        f" RETURNING {ledger_rows.ACCOUNT}"
    )


def _known(found: Account | None) -> Account:
    if found is None:
        raise Bug("an account went missing inside its own transaction")
    return found
