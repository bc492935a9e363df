"""The vault's ports: protocols of engine, clock, ledger store, anchor, signer and catalogue."""

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
    AnswerToStore,
    Cap,
    Charge,
    Entry,
    LedgerHead,
    Loss,
    Mark,
    Outcome,
    Paid,
    PastOperation,
    Settled,
)
from sfumato.vault.sealed import Sealed

# --- Counts that share one scan of the table


@runtime_checkable
class BatchingEngine(Protocol):
    """An engine that can batch several counts into one scan of the rows."""

    def count_batch(
        self, wanted: Sequence[tuple[str, Measure]]
    ) -> Sequence[Sealed[Cells] | EngineStopped]:
        """Return each count's exact result, as `measure` would; or the error that stopped it."""
        ...


class Clock(Protocol):
    """The time of day."""

    def now(self) -> str:
        """Return the time as ISO 8601 in UTC."""
        ...


MarkAll = Callable[[LedgerHead, Sequence[Account], Sequence[LedgerHead]], None]


class LedgerStore(Protocol):
    """A durable, hash-chained, append-only ledger; every method is one transaction.

    When a method returns, its writes are durable: they survive a kill and a power cut. A method
    that takes an anchor's mark freezes the ledger and refuses if the ledger lacks that mark.
    """

    def mark_with(self, mark: MarkAll) -> None:
        """Set the function that advances the anchor once per batch, before any call returns.

        So the callers of a batch share one wait. A caller that needs the mark still advances it.
        """
        ...

    def head(self) -> LedgerHead:
        """Return the ledger's identity, epoch, last sequence number and hash."""
        ...

    def charge(self, charge: Charge, mark: Mark = None) -> Outcome:
        """Debit every account or none, once per operation; or return the stored answer."""
        ...

    def charge_all(self, charges: Sequence[Charge], mark: AnchorMark) -> list[Paid]:
        """Charge several in one transaction; return the outcome of each.

        None means that nothing was changed, and that `charge` returns the reason.
        """
        ...

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the stored answer of the user's operation, or None."""
        ...

    def is_paid_by(self, answer_key: str, names: Sequence[str]) -> bool:
        """Say whether all of these accounts have paid for the answer stored under the key."""
        ...

    def settle(
        self, user: str, op: str, answer: str, names: Sequence[str] = (), mark: Mark = None
    ) -> Settled:
        """Store a charged operation's answer; never replace the first answer of a key.

        The result has the named accounts as they are in the same transaction.
        """
        ...

    def settle_all(self, answers: Sequence[AnswerToStore], mark: Mark) -> list[Settled | Exception]:
        """Store several answers in one transaction, each as `settle` does; or return its error."""
        ...

    def fail(self, user: str, op: str, code: str, shape: str | None) -> Settled:
        """Mark a charged operation as failed; if a shape is given, freeze it for all users."""
        ...

    def thaw_shape(self, shape: str, mark: Mark = None) -> None:
        """Unfreeze a question shape: a question without its constants, which had hit a limit."""
        ...

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the frozen question shapes, which the owner has to thaw."""
        ...

    def open_account(self, account: str, cap: Cap, mark: Mark = None) -> Account:
        """Return the account; open it with this cap if it doesn't exist; never change a cap."""
        ...

    def set_cap(self, name: str, cap: Cap, before: Cap | None = None, mark: Mark = None) -> Account:
        """Change a cap for the owner, unless the cap is no longer `before`; return the account.

        What the account has spent doesn't change.
        """
        ...

    def account(self, account: str) -> Account | None:
        """Return the account, or None."""
        ...

    def accounts_of(self, names: Sequence[str]) -> tuple[Account, ...]:
        """Return the named accounts that exist, in the order of the names."""
        ...

    def note(self, kind: str, body: dict[str, object]) -> LedgerHead:
        """Append an owner's or operator's act (a data set added, a card signed) to the ledger."""
        ...

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries above that sequence number, in order."""
        ...

    def notes(self, kind: str, after: int = 0, until: int | None = None) -> tuple[Entry, ...]:
        """Return the entries of that kind with a sequence number above `after`, in order.

        With `until`, the result may also contain entries above `until`.
        """
        ...

    def past(self, user: str, before: int, limit: int) -> tuple[PastOperation, ...]:
        """Return the user's operations that were charged before that entry, newest first."""
        ...

    def past_of(self, user: str, op: str) -> PastOperation | None:
        """Return one operation of the user's, or None."""
        ...

    def charges(
        self, before: int, limit: int, *, people: str | None = None, data_set: str | None = None
    ) -> tuple[Entry, ...]:
        """Return the charges before that entry, of these people or data set, newest first."""
        ...

    def accounts(self) -> tuple[Account, ...]:
        """Return every account."""
        ...

    def head_and_accounts(self) -> tuple[LedgerHead, tuple[Account, ...]]:
        """Return every account and the head, from one snapshot."""
        ...

    def entry(self, seq: int) -> Entry | None:
        """Return one entry, or None."""
        ...

    def verify(self) -> Verdict:
        """Verify the whole hash chain, and every state row against it."""
        ...

    def frozen(self) -> str | None:
        """Return why the ledger is frozen, or None."""
        ...

    def standing_with(self, seq: int) -> tuple[LedgerHead, str | None, Entry | None]:
        """Return the head, why the ledger is frozen, and the entry with that number.

        All three are from one snapshot.
        """
        ...

    def freeze(self, reason: str) -> None:
        """Refuse every charge until the owner acknowledges."""
        ...

    def acknowledge(self, debits: dict[str, tuple[int, int, int, int]], why: str) -> LedgerHead:
        """Open a new epoch, debit what may be lost up to the caps, and unfreeze the ledger."""
        ...

    def acknowledge_loss(self, loss: Loss, why: str) -> LedgerHead:
        """Open a new epoch, debit exactly what was lost, and unfreeze the ledger."""
        ...

    def window_day(self) -> date:
        """Return the day that budget windows use now (`vault/budget_windows.py`)."""
        ...

    def trust_day(self, mark: Mark) -> date | None:
        """Trust the clock's day because the owner confirms it.

        Return None if a later day was trusted already.
        """
        ...

    def is_moved(self) -> bool:
        """Say whether the ledger was moved: the database that it was last in is not this one."""
        ...

    def go_on_here(self, mark: AnchorMark) -> LedgerHead:
        """Accept the move to this database; freeze and refuse if the head isn't the mark."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class Anchor(Protocol):
    """A mark of the newest ledger head, kept outside the vault, that detects a rollback."""

    def read(self) -> AnchorMark | None:
        """Return the newest mark, or None if there is none."""
        ...

    def sums(self) -> AnchorSums | None:
        """Return what each account had spent when the newest mark was written into the anchor.

        Return None if the anchor's records are missing or damaged.
        """
        ...

    def keep_sums(self, accounts: Sequence[Account], head: LedgerHead, mark: AnchorMark) -> bool:
        """Write what all accounts have spent at that head, if the mark is still the newest.

        Every later `advance` adds the accounts that were debited since.
        """
        ...

    def advance(
        self, head: LedgerHead, accounts: Sequence[Account] = (), before: Sequence[LedgerHead] = ()
    ) -> None:
        """Make a mark of this head durable; a mark never returns to an older head.

        The same write records the accounts at that head, and the heads `before` it that receipts
        name.
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
    """The catalogue of data sets, groups and grants; no rows."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        ...

    def find(self, name: str) -> Listing | None:
        """Return the current version of a data set, or None."""
        ...

    def cards(self) -> tuple[Card, ...]:
        """Return every signed card, all versions."""
        ...

    def cards_of(self, name: str) -> tuple[Card, ...]:
        """Return the signed cards of one data set, all versions."""
        ...

    def text(self, name: str) -> str:
        """Return the stored text of a data set's current card, with exact numbers."""
        ...

    def put(self, listing: Listing, card_text: str, people: str, sketch: str) -> None:
        """Make this listing the current version of the data set."""
        ...

    def groups_of(self, user: str, data_set: str = "") -> tuple[str, ...]:
        """Return the user's groups: enrolled for every data set, or granted for this one."""

    def opened(self, name: str, user: str) -> Opened | None:
        """Return what `find`, `groups_of` and `is_frozen` return, from one snapshot."""

    def enrol(self, user: str, group: str) -> None:
        """Add the user to the group, for every data set."""

    def grant(self, grant: Grant) -> None:
        """Add the user to the group, for one data set."""

    def revoke(self, data_set: str, user: str) -> bool:
        """Remove the user's grants on the data set; return whether there was one."""

    def grants(self, data_set: str) -> tuple[Grant, ...]:
        """Return all grants on the data set."""

    def enrolled(self) -> tuple[tuple[str, str], ...]:
        """Return (user, group) of all users who are enrolled for every data set."""

    def freeze(self, data_set: str, by: str, at: str) -> bool:
        """Block all queries to the data set; return whether it was open before."""

    def thaw(self, data_set: str) -> bool:
        """Allow queries to the data set again; return whether it was frozen."""

    def is_frozen(self, data_set: str) -> bool:
        """Say whether the data set is frozen, on all nodes."""

    def people(self, owner: str | None = None) -> tuple[tuple[str, str], ...]:
        """Return (people domain, sketch file) of each table, of one owner or of all."""
