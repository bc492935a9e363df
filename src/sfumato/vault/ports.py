"""Protocols only: what the house needs from the world, so that the world can be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Protocol, runtime_checkable

from sfumato.query.measure import Cells, Measure
from sfumato.vault.card.data_card import Card
from sfumato.vault.catalogue_listing import Grant as Grant  # noqa: PLC0414  # a part of the port
from sfumato.vault.catalogue_listing import Listing as Listing  # noqa: PLC0414  # a part of the port
from sfumato.vault.catalogue_listing import Opened as Opened  # noqa: PLC0414  # a part of the port
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.hash_chain import Verdict
from sfumato.vault.ledger_entries import (
    Account,
    AnchorMark,
    AnchorSums,
    Cap,
    Charge,
    Entry,
    LedgerHead,
    Loss,
    Mark,
    Outcome,
    Paid,
    Past,
    Settled,
    Settling,
)
from sfumato.vault.sealed import Sealed

# --- Counts of a table's rows that are read in one pass, each with a number of its own


@runtime_checkable
class LookingEngine(Protocol):
    """An engine that counts for many in one pass over the rows."""

    def look(
        self, wanted: Sequence[tuple[str, Measure]]
    ) -> Sequence[Sealed[Cells] | EngineStopped]:
        """Return what each count of a table's rows is, as `measure` would; or what stopped it."""
        ...


class Clock(Protocol):
    """The time of day."""

    def now(self) -> str:
        """Return the time as ISO 8601 in UTC."""
        ...


MarkAll = Callable[[LedgerHead, Sequence[Account], Sequence[LedgerHead]], None]


class LedgerStore(Protocol):
    """A durable, hash-chained, append-only ledger; every method is one transaction.

    What a method has returned is durable: it survives a kill and a power cut. Given an anchor's
    mark, it freezes a ledger in which that does not stand instead, and refuses.
    """

    def mark_with(self, mark: MarkAll) -> None:
        """Have the head of acts that were written together marked once, before any is told.

        It saves their waiting each by themselves; whoever must not go on unmarked still looks.
        """
        ...

    def head(self) -> LedgerHead:
        """Return the ledger's identity, epoch, last sequence number and hash."""
        ...

    def charge(self, charge: Charge, mark: Mark = None) -> Outcome:
        """Debit every account or none, once per operation; or return what already stands."""
        ...

    def charge_all(self, charges: Sequence[Charge], mark: AnchorMark) -> list[Paid]:
        """Charge several in one go; None has changed nothing, and `charge` says why."""
        ...

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the answer that the user's operation was given, or None."""
        ...

    def is_paid_by(self, answer_key: str, names: Sequence[str]) -> bool:
        """Say whether there is an answer under the key that all of these accounts have paid for."""
        ...

    def settle(
        self, user: str, op: str, answer: str, names: Sequence[str] = (), mark: Mark = None
    ) -> Settled:
        """Store a charged operation's answer; the first answer under its key stands for ever.

        The named accounts are returned with it, as they stand at that moment.
        """
        ...

    def settle_all(self, answers: Sequence[Settling], mark: Mark) -> list[Settled | Exception]:
        """Store several answers in one go, each as `settle` does; or its error."""
        ...

    def fail(self, user: str, op: str, code: str, shape: str | None) -> Settled:
        """Mark a charged operation as failed; a shape that is given is frozen for everyone."""
        ...

    def thaw_shape(self, shape: str, mark: Mark = None) -> None:
        """Let a frozen shape of question be asked again."""
        ...

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the shapes of question that wait for the owner."""
        ...

    def open_account(self, account: str, cap: Cap, mark: Mark = None) -> Account:
        """Return the account, opened with this cap if it was not there; never change a cap."""
        ...

    def set_cap(self, name: str, cap: Cap, before: Cap | None = None, mark: Mark = None) -> Account:
        """Change a cap by the owner's word, if `before` is it still; what was spent stays spent.

        Return the account as it stands then.
        """
        ...

    def account(self, account: str) -> Account | None:
        """Return the account as it stands, or None."""
        ...

    def accounts_of(self, names: Sequence[str]) -> tuple[Account, ...]:
        """Return those of the named accounts that are there, in the order of the names."""
        ...

    def note(self, kind: str, body: dict[str, object]) -> LedgerHead:
        """Append an owner's or operator's act (a data set added, a card signed) to the chain."""
        ...

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries above that sequence number, in order."""
        ...

    def notes(self, kind: str, after: int = 0, until: int | None = None) -> tuple[Entry, ...]:
        """Return the entries of that kind above a number, in order (those past `until` or not)."""
        ...

    def past(self, user: str, before: int, limit: int) -> tuple[Past, ...]:
        """Return the user's operations that were paid before that entry, the newest first."""
        ...

    def past_of(self, user: str, op: str) -> Past | None:
        """Return one operation of the user's, or None."""
        ...

    def charges(
        self, before: int, limit: int, *, people: str | None = None, data_set: str | None = None
    ) -> tuple[Entry, ...]:
        """Return what was asked before that entry, of these people or data set, newest first."""
        ...

    def accounts(self) -> tuple[Account, ...]:
        """Return every account."""
        ...

    def head_and_accounts(self) -> tuple[LedgerHead, tuple[Account, ...]]:
        """Return every account and the chain's head, as of one moment."""
        ...

    def entry(self, seq: int) -> Entry | None:
        """Return one entry, or None."""
        ...

    def verify(self) -> Verdict:
        """Return the chain replayed from its first entry, held against every table beside it."""
        ...

    def frozen(self) -> str | None:
        """Return why the ledger is frozen, or None."""
        ...

    def standing_with(self, seq: int) -> tuple[LedgerHead, str | None, Entry | None]:
        """Return the head, why the ledger is frozen, and that entry, all as of one moment."""
        ...

    def freeze(self, reason: str) -> None:
        """Stop every charge until the owner acknowledges."""
        ...

    def acknowledge(self, debits: dict[str, tuple[int, int, int, int]], why: str) -> LedgerHead:
        """Open a new epoch, debit what may be lost (a cap may be reached, not passed), thaw."""
        ...

    def acknowledge_loss(self, loss: Loss, why: str) -> LedgerHead:
        """Open a new epoch, debit exactly what was lost, and thaw."""
        ...

    def window_day(self) -> date:
        """Return the day by which windows are opened now (`vault/budget_windows.py`)."""
        ...

    def trust_day(self, mark: Mark) -> date | None:
        """Trust the clock's day by the owner's word; None where a later one was trusted."""
        ...

    def is_moved(self) -> bool:
        """Say whether the ledger is in another database than the one that it was last in."""
        ...

    def go_on_here(self, mark: AnchorMark) -> LedgerHead:
        """Go on in another database than before, if the mark is the head's; else freeze, refuse."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class Anchor(Protocol):
    """A small mark kept away from the ledger, by which a rolled-back ledger is noticed."""

    def read(self) -> AnchorMark | None:
        """Return the last mark, or None if there is no file."""
        ...

    def sums(self) -> AnchorSums | None:
        """Return what accounts had spent by the last mark, or None if not all of it is known."""
        ...

    def keep_sums(self, accounts: Sequence[Account], head: LedgerHead, mark: AnchorMark) -> bool:
        """Begin to hold what all accounts have spent by that head, if the mark is still the last.

        Whoever advances the mark afterwards says how the accounts stand that they have debited.
        """
        ...

    def advance(
        self, head: LedgerHead, accounts: Sequence[Account] = (), before: Sequence[LedgerHead] = ()
    ) -> None:
        """Make the mark durable; a mark never goes back within an epoch.

        With it goes how accounts stand at that head, and which heads receipts name `before` it.
        """
        ...


class Signer(Protocol):
    """A key that signs receipts; the private half never leaves it."""

    def sign(self, message: bytes) -> str:
        """Return the signature, in hex."""
        ...

    def public_key(self) -> str:
        """Return the public key, in hex."""
        ...


class Catalogue(Protocol):
    """Which data sets there are, and who is in which group; no rows."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        ...

    def find(self, name: str) -> Listing | None:
        """Return the current version of a data set, or None."""
        ...

    def cards(self) -> tuple[Card, ...]:
        """Return every card that was ever signed here, all versions."""
        ...

    def text(self, name: str) -> str:
        """Return the current card of a known data set as it is kept, numbers exact."""
        ...

    def put(self, listing: Listing, card_text: str, people: str, sketch: str) -> None:
        """Make this the current version of the data set."""
        ...

    def groups_of(self, user: str, data_set: str = "") -> tuple[str, ...]:
        """Return the groups that the user is in: enrolled in, or granted on this data set."""

    def opened(self, name: str, user: str) -> Opened | None:
        """Return what `find`, `groups_of` and `is_frozen` say, as of one moment."""

    def enrol(self, user: str, group: str) -> None:
        """Put the user into the group, for every data set."""

    def grant(self, grant: Grant) -> None:
        """Put the user into the group, for one data set."""

    def revoke(self, data_set: str, user: str) -> bool:
        """Take from the user every grant on the data set; say whether there was one."""

    def grants(self, data_set: str) -> tuple[Grant, ...]:
        """Return who was granted what on the data set."""

    def enrolled(self) -> tuple[tuple[str, str], ...]:
        """Return who was enrolled, and in which group, for every data set."""

    def freeze(self, data_set: str, by: str, at: str) -> bool:
        """Let the data set be asked nothing; say whether it was free before."""

    def thaw(self, data_set: str) -> bool:
        """Let the data set be asked again; say whether it was frozen."""

    def is_frozen(self, data_set: str) -> bool:
        """Say whether the data set is asked nothing, on whatever node."""

    def people(self, owner: str | None = None) -> tuple[tuple[str, str], ...]:
        """Return people domains, of one owner or all, with the sketch file of each table."""
