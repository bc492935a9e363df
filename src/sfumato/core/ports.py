"""Protocols only: what the house needs from the world, so that the world can be changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.core.account import (
    Account,
    AnchorMark,
    Cap,
    Charge,
    Entry,
    Head,
    Outcome,
    Settled,
)
from sfumato.core.card import Card
from sfumato.core.chain import Verdict
from sfumato.core.measure import Cells, Measure
from sfumato.core.sealed import Sealed

IntegerArray = NDArray[np.int64]


class EngineStopped(Exception):
    """The engine was killed, or failed; constant, so that it says nothing of the rows."""

    def __init__(self) -> None:
        super().__init__("the engine stopped")


@dataclass(frozen=True)
class SourceFile:
    """Where a table's rows come from: CSV, TSV, Parquet or a DuckDB file."""

    path: str
    inner_table: str | None = None  # the table inside a DuckDB file, if it has several


@dataclass(frozen=True)
class PrepareOrder:
    """An owner's order to copy sources into prepared tables."""

    sources: tuple[SourceFile, ...]  # one for each table of the card, the card's own first
    target: str  # where the prepared table goes
    card: Card
    salt: bytes  # the people domain's secret; never in argv, environment or a log
    sketches: tuple[tuple[str, str], ...]  # (people domain, sketch file) to compare with
    sketch: str  # where the sketch of this one goes


@dataclass(frozen=True)
class Prepared:
    """What the owner learns of a preparation."""

    same_people: tuple[str, ...]  # domains whose people these rows seem to be


class Dice(Protocol):
    """A source of uniform random bytes."""

    def draw(self, count: int) -> bytes:
        """Return that many fresh random bytes."""
        ...


class Clock(Protocol):
    """The time of day."""

    def now(self) -> str:
        """Return the time as ISO 8601 in UTC."""
        ...


class LedgerStore(Protocol):
    """A durable, hash-chained, append-only ledger; every method is one transaction.

    What a method has returned is durable: it survives a kill and a power cut.
    """

    def head(self) -> Head:
        """Return the ledger's identity, epoch, last sequence number and hash."""
        ...

    def charge(self, charge: Charge) -> Outcome:
        """Debit every account or none, once per operation; or return what already stands."""
        ...

    def answer_of(self, user: str, op: str) -> str | None:
        """Return the answer that the user's operation was given, or None."""
        ...

    def settle(self, user: str, op: str, answer: str) -> Settled:
        """Store a charged operation's answer; the first answer under its key stands for ever."""
        ...

    def fail(self, user: str, op: str, code: str, shape: str | None) -> Settled:
        """Mark a charged operation as failed; a shape that is given is frozen for everyone."""
        ...

    def thaw_shape(self, shape: str) -> None:
        """Let a frozen shape of question be asked again."""
        ...

    def frozen_shapes(self) -> tuple[str, ...]:
        """Return the shapes of question that wait for the owner."""
        ...

    def open_account(self, account: str, cap: Cap) -> Account:
        """Return the account, opened with this cap if it was not there; never change a cap."""
        ...

    def set_cap(self, account: str, cap: Cap) -> Account:
        """Change an account's cap by the owner's word; what was spent stays spent."""
        ...

    def account(self, account: str) -> Account | None:
        """Return the account as it stands, or None."""
        ...

    def note(self, kind: str, body: dict[str, object]) -> Head:
        """Append an owner's or operator's act (a data set added, a card signed) to the chain."""
        ...

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries above that sequence number, in order."""
        ...

    def accounts(self) -> tuple[Account, ...]:
        """Return every account."""
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

    def freeze(self, reason: str) -> None:
        """Stop every charge until the owner acknowledges."""
        ...

    def acknowledge(self, debits: dict[str, tuple[int, int, int, int]], why: str) -> Head:
        """Open a new epoch, debit what may be lost (a cap may be reached, not passed), thaw."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class Anchor(Protocol):
    """A small mark kept away from the ledger, by which a rolled-back ledger is noticed."""

    def read(self) -> AnchorMark | None:
        """Return the last mark, or None if there is no file."""
        ...

    def advance(self, head: Head) -> None:
        """Make the mark durable; a mark never goes back within an epoch."""
        ...


class Engine(Protocol):
    """Where rows live; answers with Sealed integers, never with values or complaints."""

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Return what the measure adds up over the prepared table (zeros included).

        Whatever goes wrong raises `EngineStopped`, and says nothing of the rows.
        """
        ...

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy a source into a prepared table, once; the owner's act."""
        ...

    def describe(self, source: str, inner_table: str | None) -> tuple[tuple[str, str], ...]:
        """Return the name and likely type of each column, for the owner's proposed card."""
        ...

    def forget(self, table: str) -> None:
        """Remove a prepared table wherever it lies, or what is left of one; none is no fault.

        What cannot be removed now raises `EngineStopped`, and can be forgotten another time.
        """
        ...

    def self_test(self) -> tuple[str, ...]:
        """Return the names of what whoever asks the rows could do beyond reading them."""
        ...

    def close(self) -> None:
        """Let the worker process go."""
        ...


class Signer(Protocol):
    """A key that signs receipts; the private half never leaves it."""

    def sign(self, message: bytes) -> str:
        """Return the signature, in hex."""
        ...

    def public_key(self) -> str:
        """Return the public key, in hex."""
        ...


@dataclass(frozen=True)
class Listing:
    """A data set of the vault: its signed card and where its prepared table lies."""

    card: Card
    table: str


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

    def put(self, name: str, card_text: str, table: str, people: str, sketch: str) -> None:
        """Make this the current version of the data set."""
        ...

    def groups_of(self, user: str) -> tuple[str, ...]:
        """Return the groups that the user was enrolled in."""
        ...

    def enrol(self, user: str, group: str) -> None:
        """Put the user into the group."""
        ...

    def people(self) -> tuple[tuple[str, str], ...]:
        """Return every people domain with its sketch file, one pair per prepared table."""
        ...
