"""The engine's port: what the vault needs from whatever holds rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from sfumato.query.expression import Predicate
from sfumato.query.measure import Cells, Measure
from sfumato.vault.add_report import TableReport
from sfumato.vault.card.data_card import Card
from sfumato.vault.sealed import Sealed


class EngineStopped(Exception):
    """The engine was killed, or failed; constant, so that it says nothing of the rows."""

    def __init__(self) -> None:
        super().__init__("the engine stopped")


START, SIGNAL, MEMORY = "start", "signal", "memory"  # what of the host's may end an engine


class EngineLost(EngineStopped):
    """The host ended the process that read, and not a limit of the question's.

    `cause` is START (it never began, so no row was read), SIGNAL (another process ended it) or
    MEMORY (the kernel did, for want of memory, which rows may have had a part in).
    """

    def __init__(self, cause: str) -> None:
        super().__init__()
        self.cause = cause


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
    folder: str | None = None  # a BIDS folder, of which each person's files are kept
    accept_unreadable: tuple[str, ...] = ()  # columns whose unreadable cells may become null


@dataclass(frozen=True)
class Prepared:
    """What the owner learns of a preparation."""

    same_people: tuple[str, ...]  # domains whose people these rows seem to be
    # how many cells were read as the card says, in bands; for the owner alone
    report: Sealed[tuple[TableReport, ...]] = field(default=Sealed(()), compare=False)


@dataclass(frozen=True)
class Described:
    """What a source seems to be, for a proposed card: names, types and formats; never a value."""

    columns: tuple[tuple[str, str], ...]  # name and likely type
    formats: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of some of them
    encoding: str = "utf-8"


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

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Return what a source's columns seem to be, for the owner's proposed card."""
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


@dataclass(frozen=True)
class TakeOrder:
    """An order to count one period of a stream, each person with the rows that are left to them."""

    table: str  # the prepared table
    where: Predicate  # which rows: of the period, and of the stream's filter
    rows: int  # that a person has over the whole stream
    end: int  # the number of the period, from 1
    first: int  # the first period of the block that this one closes
    before: str | None  # what was kept when the period before was closed; None before the first
    target: str  # where what is to be kept goes, in a folder of its own
    most_rows: int  # that the table may have by the card; what it may take follows from it


class StreamEngine(Protocol):
    """Where the rows of a stream live."""

    def take(self, order: TakeOrder) -> Sealed[Cells]:
        """Return the exact rows of the block that ends with the period; keep who used how many.

        Nothing but the target is written. Whatever goes wrong raises `EngineStopped`, and says
        nothing of the rows.
        """
        ...


@dataclass(frozen=True)
class KeptDay:
    """What is kept of a closed period: its noisy block, and a file that only an engine reads."""

    words: dict[str, object]
    used: str  # the path of the engine's file


class KeptStreams(Protocol):
    """The private state of streams, beside the prepared tables; what is kept is durable, whole."""

    def alone(self, stream: str) -> AbstractContextManager[None]:
        """Hold the stream, so that no other process closes a period of it meanwhile."""
        ...

    def find(self, stream: str, end: int) -> KeptDay | None:
        """Return what was kept when that period was taken, or None."""
        ...

    def draft(self, stream: str) -> AbstractContextManager[str]:
        """Give a place in a private folder for what is not whole yet; it is gone afterwards."""
        ...

    def keep(self, stream: str, end: int, draft: str, words: dict[str, object]) -> KeptDay:
        """Keep the draft as what the period left behind, in one step; a period is kept once."""
        ...

    def drop_before(self, stream: str, end: int) -> None:
        """Remove what earlier periods left, and drafts of who was killed."""
        ...
