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
    """An engine that can batch several concurrent counts into one scan of the rows."""

    def count_batch(
        self, wanted: Sequence[tuple[str, Measure]]
    ) -> Sequence[Sealed[Cells] | EngineStopped]:
        """Return each count's exact result, as `measure` would, or the error that stopped it."""
        ...


class Clock(Protocol):
    """The port that tells the time of day."""

    def now(self) -> str:
        """Return the current time as ISO 8601 text in UTC."""
        ...


MarkAll = Callable[[LedgerHead, Sequence[Account], Sequence[LedgerHead]], None]


class LedgerStore(Protocol):
    """The ledger's store: durable, hash-chained and append-only; every method is one transaction.

    When a method returns, its writes are durable: they survive a kill and a power cut. A method
    that takes a `mark` of the anchor (a record outside the vault) freezes the ledger and refuses if
    the ledger lacks that mark.
    """

    def mark_with(self, mark: MarkAll) -> None:
        """Set the function that advances the anchor once per batch, before any call of it returns.

        The anchor records the newest head outside the vault. So the callers of a batch share one
        wait. A caller that needs the anchor's newest mark still advances the anchor itself.
        """
        ...

    def head(self) -> LedgerHead:
        """Return the ledger's head: its identity, epoch, last sequence number and hash."""
        ...

    def charge(self, charge: Charge, mark: Mark = None) -> Outcome:
        """Debit every account of the charge or none, once per operation; or return its answer.

        If the ledger lacks `mark`, the anchor's newest head, freeze the ledger and refuse.
        """
        ...

    def charge_all(self, charges: Sequence[Charge], mark: AnchorMark) -> list[Paid]:
        """Debit several charges in one transaction; return the outcome of each.

        An outcome of None means that nothing was changed, and that `charge` returns the reason.
        """
        ...

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the stored answer of the user's operation with that id, or None."""
        ...

    def is_paid_by(self, answer_key: str, names: Sequence[str]) -> bool:
        """Say whether all of these accounts have paid for the answer stored under the key."""
        ...

    def settle(
        self, user: str, op: str, answer: str, names: Sequence[str] = (), mark: Mark = None
    ) -> Settled:
        """Store a charged operation's answer; never replace the first answer of an answer key.

        The result has the named accounts as they are in the same transaction.
        """
        ...

    def settle_all(self, answers: Sequence[AnswerToStore], mark: Mark) -> list[Settled | Exception]:
        """Store several answers in one transaction, each as `settle` does.

        An answer that can't be stored has its error in the result.
        """
        ...

    def fail(self, user: str, op: str, code: str, shape: str | None) -> Settled:
        """Mark a charged operation as failed; if a question shape is given, block it for all users.

        A shape is a question without its constants.
        """
        ...

    def thaw_shape(self, shape: str, mark: Mark = None) -> None:
        """Unblock a question shape (a question without its constants) that had hit a limit."""
        ...

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the blocked question shapes (questions without constants)."""
        ...

    def open_account(self, account: str, cap: Cap, mark: Mark = None) -> Account:
        """Return the account; create it with this cap if it doesn't exist; never change a cap."""
        ...

    def set_cap(self, name: str, cap: Cap, before: Cap | None = None, mark: Mark = None) -> Account:
        """Change an account's cap for the owner, unless the cap is no longer `before`.

        Return the account. What the account has spent doesn't change.
        """
        ...

    def account(self, account: str) -> Account | None:
        """Return the privacy budget account with that name, or None."""
        ...

    def accounts_of(self, names: Sequence[str]) -> tuple[Account, ...]:
        """Return the named privacy budget accounts that exist, in the order of the names."""
        ...

    def note(self, kind: str, body: dict[str, object]) -> LedgerHead:
        """Append an act of an owner or operator, such as a signed data card, to the ledger."""
        ...

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the ledger entries with a sequence number above `after`, in order."""
        ...

    def notes(self, kind: str, after: int = 0, until: int | None = None) -> tuple[Entry, ...]:
        """Return the ledger entries of that kind with a sequence number above `after`, in order.

        With `until`, the result may also contain entries above `until`.
        """
        ...

    def past(self, user: str, before: int, limit: int) -> tuple[PastOperation, ...]:
        """Return the user's operations charged before ledger entry `before`, newest first."""
        ...

    def past_of(self, user: str, op: str) -> PastOperation | None:
        """Return the user's operation with that id, or None."""
        ...

    def charges(
        self, before: int, limit: int, *, people: str | None = None, data_set: str | None = None
    ) -> tuple[Entry, ...]:
        """Return the charges before the ledger entry number `before`, newest first.

        `people` or `data_set` limits the charges to those of a people domain or a data set.
        """
        ...

    def accounts(self) -> tuple[Account, ...]:
        """Return every privacy budget account of the ledger."""
        ...

    def head_and_accounts(self) -> tuple[LedgerHead, tuple[Account, ...]]:
        """Return the ledger's head and every account, from one snapshot."""
        ...

    def entry(self, seq: int) -> Entry | None:
        """Return the ledger entry with that sequence number, or None."""
        ...

    def verify(self) -> Verdict:
        """Verify the whole hash chain, and compare every stored account and operation with it."""
        ...

    def frozen(self) -> str | None:
        """Return the reason for which the ledger is frozen, or None."""
        ...

    def standing_with(self, seq: int) -> tuple[LedgerHead, str | None, Entry | None]:
        """Return the head, the reason of a freeze, and the ledger entry with that sequence number.

        All three are from one snapshot.
        """
        ...

    def freeze(self, reason: str) -> None:
        """Freeze the ledger for this reason: refuse every charge until the owner acknowledges."""
        ...

    def acknowledge(self, debits: dict[str, tuple[int, int, int, int]], why: str) -> LedgerHead:
        """Unfreeze the ledger in a new epoch, and debit for what may be lost, up to the caps."""
        ...

    def acknowledge_loss(self, loss: Loss, why: str) -> LedgerHead:
        """Unfreeze the ledger in a new epoch, and debit exactly what was lost."""
        ...

    def window_day(self) -> date:
        """Return the day that selects the open budget window (`vault/budget_windows.py`)."""
        ...

    def trust_day(self, mark: Mark) -> date | None:
        """Trust the clock's day for budget windows, because the owner confirms it.

        Return None if a later day was trusted already.
        """
        ...

    def is_moved(self) -> bool:
        """Say whether the ledger was moved: it was last in a database other than this one."""
        ...

    def go_on_here(self, mark: AnchorMark) -> LedgerHead:
        """Accept that the ledger is in this database now.

        Freeze the ledger and refuse if its head isn't the anchor's mark.
        """
        ...

    def close(self) -> None:
        """Close the files and connections of the ledger store."""
        ...


class Anchor(Protocol):
    """A record, outside the vault, of the newest ledger head.

    It detects that the ledger was rolled back.
    """

    def read(self) -> AnchorMark | None:
        """Return the newest ledger head that was recorded, or None if there is none."""
        ...

    def sums(self) -> AnchorSums | None:
        """Return what each account had spent at the newest recorded ledger head.

        Return None if the anchor's records are missing or damaged.
        """
        ...

    def keep_sums(self, accounts: Sequence[Account], head: LedgerHead, mark: AnchorMark) -> bool:
        """Record what all accounts have spent at that ledger head, if the mark is still the newest.

        Every later `advance` updates the recorded accounts that were debited. Return whether the
        sums were recorded.
        """
        ...

    def advance(
        self, head: LedgerHead, accounts: Sequence[Account] = (), before: Sequence[LedgerHead] = ()
    ) -> None:
        """Record this ledger head durably; the anchor never returns to an older head.

        The same write records the accounts at that head. It also records the heads `before` that
        head that receipts name.
        """
        ...


class Signer(Protocol):
    """A key that signs receipts; the private key can't be read from it."""

    def sign(self, message: bytes) -> str:
        """Return the signature of the message, in hex."""
        ...

    def public_key(self) -> str:
        """Return the public key that verifies receipts, in hex."""
        ...


class Catalogue(Protocol):
    """The catalogue of data sets, groups and grants; it has no rows."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        ...

    def find(self, name: str) -> Listing | None:
        """Return the current version of the data set, or None if there is no such data set."""
        ...

    def cards(self) -> tuple[Card, ...]:
        """Return every signed data card of all data sets, in all versions."""
        ...

    def cards_of(self, name: str) -> tuple[Card, ...]:
        """Return the signed data cards of one data set, in all versions."""
        ...

    def text(self, name: str) -> str:
        """Return the stored text of a data set's current data card, with exact numbers."""
        ...

    def put(self, listing: Listing, card_text: str, people: str, sketch: str) -> None:
        """Make this listing, with its data card, the current version of the data set.

        `people` is the people domain. `sketch` is the file that tells whether another table has the
        same people.
        """
        ...

    def groups_of(self, user: str, data_set: str = "") -> tuple[str, ...]:
        """Return the user's groups: memberships for every data set, and grants for this one."""

    def opened(self, name: str, user: str) -> Opened | None:
        """Return the data set, the user's groups and whether it is frozen, from one snapshot."""

    def enrol(self, user: str, group: str) -> None:
        """Add the user to the group, for all data sets."""

    def grant(self, grant: Grant) -> None:
        """Add the user to the group, for one data set."""

    def revoke(self, data_set: str, user: str) -> bool:
        """Remove the user's grants on the data set; return whether there was one."""

    def grants(self, data_set: str) -> tuple[Grant, ...]:
        """Return all grants (memberships in groups) on the data set."""

    def enrolled(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of user and group for all memberships that hold for every data set."""

    def freeze(self, data_set: str, by: str, at: str) -> bool:
        """Block all queries to the data set; return whether it was open before."""

    def thaw(self, data_set: str) -> bool:
        """Allow queries to the data set again; return whether it was frozen."""

    def is_frozen(self, data_set: str) -> bool:
        """Say whether queries to the data set are blocked, on all nodes."""

    def people(self, owner: str | None = None) -> tuple[tuple[str, str], ...]:
        """Return the people domain and the sketch file of each table, of one owner or of all.

        Two tables of one people domain are about the same people. A sketch file is compared to find
        tables that share people.
        """
