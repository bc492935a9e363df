"""The engine's port: the interface to the process that stores and reads rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.query.expression import Predicate
from sfumato.query.measure import Cells, Measure
from sfumato.vault.add_report import TableReport
from sfumato.vault.card.data_card import Card
from sfumato.vault.sealed import Sealed


class EngineStopped(Exception):
    """The engine was killed or failed; its message is constant, so it reveals no rows."""

    def __init__(self) -> None:
        super().__init__("the engine stopped")


START, SIGNAL, MEMORY = "start", "signal", "memory"  # why the host ended an engine


class EngineLost(EngineStopped):
    """The machine ended the process that reads rows; no limit of the query did.

    The values of `cause`: START, the process never started, so no row was read. SIGNAL, another
    process killed it. MEMORY, the kernel killed it because memory ran out, which may depend on the
    rows.
    """

    def __init__(self, cause: str) -> None:
        super().__init__()
        self.cause = cause


@dataclass(frozen=True)
class SourceFile:
    """The source file of a table's rows."""

    path: str
    inner_table: str | None = None  # the table or sheet in the file, if it has several


@dataclass(frozen=True)
class PrepareOrder:
    """An owner's order to copy source files into prepared tables."""

    sources: tuple[SourceFile, ...]  # one for each table of the card, the card's own first
    target: str  # path of the prepared table
    card: Card
    salt: bytes  # the secret of the people domain; never in argv, environment or a log
    # (people domain, sketch file) of other tables, to find the same people
    sketches: tuple[tuple[str, str], ...]
    sketch: str  # path of this table's own sketch
    folder: str | None = None  # a BIDS folder, from which each person's files are copied
    accept_unreadable: tuple[str, ...] = ()  # columns whose unreadable cells may become null
    # (people domain, sketch file of an earlier version of this data set, sketch file of the other):
    # a person has confirmed that these rows are about other people
    different: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class AppendOrder:
    """An order to prepare rows that are appended to a prepared table."""

    rows: PrepareOrder  # the card, the sources of the tables that get rows, and the target
    places: tuple[int, ...]  # for each source: the index of its table on the card
    before: str  # the prepared table of the version before
    earlier: tuple[str, ...] = ()  # sketches of the same people in all versions so far


@dataclass(frozen=True)
class WithdrawOrder:
    """An order to copy a prepared table without the rows of one person."""

    before: str  # the prepared table of the version before
    card: Card
    salt: bytes
    person: str = field(repr=False)  # the person's identifier in the owner's files
    target: str
    sketches: tuple[str, str]  # of the people of the version before, and where its copy will be


@dataclass(frozen=True)
class Prepared:
    """The result of copying source files into prepared tables, which only the owner may see."""

    same_people: tuple[str, ...]  # people domains that seem to contain the same people
    # shares of unreadable cells and cut rows, in bands; only the owner may see them
    report: Sealed[tuple[TableReport, ...]] = field(default=Sealed(()), compare=False)


@dataclass(frozen=True)
class Described:
    """Guessed columns of a source, for a proposed data card: names, types and formats.

    It contains no value of a row: words for true and false are all those of a language, and words
    for missing values are of a public list.
    """

    columns: tuple[tuple[str, str], ...]  # name and likely type
    # the card's settings by column, such as decimal, format, or the words of true and of false
    formats: Mapping[str, Mapping[str, str | list[str]]] = field(default_factory=dict)
    encoding: str = "utf-8"
    # by column: well-known words for missing values, and how many of the first 1000 rows have
    # them; for the owner alone
    markers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderDraft:
    """What a data card can publish of a BIDS folder; for the owner alone, until they publish it.

    It has no field and no line that contains a participant's id or a value of few people.
    """

    own: Described  # the columns of participants.tsv
    tables: Mapping[str, Described]  # the tables under phenotype/, by name
    files: tuple[str, ...]  # patterns of people's files
    description: Json  # the fields of dataset_description.json
    texts: Mapping[str, str]  # README and others, by name
    sidecars: Mapping[str, Json]  # JSON files of the whole data set, by path
    notes: tuple[tuple[str, str], ...]  # what was left out or needs a check, and why


class Engine(Protocol):
    """The process that reads rows.

    It returns only sealed (unreadable) values, and no row in messages. A sealed value can be opened
    only by the release step of a guarantee.
    """

    def measure(self, table: str, measure: Measure) -> Sealed[Cells]:
        """Compute the measure's exact sums per group over the prepared table.

        Empty groups have zeros. Every error is raised as `EngineStopped`, which reveals nothing
        about the rows.
        """
        ...

    def prepare(self, order: PrepareOrder) -> Prepared:
        """Copy an owner's source files into prepared tables."""
        ...

    def describe(self, source: str, inner_table: str | None) -> Described:
        """Guess the columns of a source file, for the data card that is proposed to its owner."""
        ...

    def draft_folder(self, folder: str) -> Sealed[FolderDraft]:
        """Draft what a data card can publish of a BIDS folder, for its owner to check."""
        ...

    def forget(self, table: str) -> None:
        """Delete a prepared table, or the remains of one; do nothing if there is none.

        If it can't be deleted now, raise `EngineStopped`. A later call can try again.
        """
        ...

    def self_test(self) -> tuple[str, ...]:
        """Return the names of the sandbox probes that succeed: each one is a gap in the sandbox.

        The result is empty if a query can only read rows.
        """
        ...

    def close(self) -> None:
        """End the worker process that reads rows."""
        ...


def not_appendable() -> Refused:
    """Return the refusal of rows that cannot be appended to a data set."""
    return Refused(
        "not-allowed",
        "Rows cannot be appended to this data set: its vault is encrypted or does not use DuckDB, "
        "its people have files, or an older sfumato prepared its rows.",
        "Add all of its rows, old and new, as a new version: sfumato add.",
    )


def not_withdrawable() -> Refused:
    """Return the refusal to remove one person's rows from a data set."""
    return Refused(
        "not-allowed",
        "One person cannot be removed from this data set: its rows belong to no person, its people "
        "have files, its vault is encrypted or does not use DuckDB, or an older sfumato prepared "
        "its rows.",
        "Remove the person from your files, add these as a new version (sfumato add), and then run "
        "sfumato forget-earlier.",
    )


@runtime_checkable
class AppendEngine(Protocol):
    """An engine whose prepared tables can consist of several files, of which one is the newest."""

    def append(self, order: AppendOrder) -> Prepared:
        """Prepare new rows alone, and publish them with the files of the version before."""
        ...

    def withdraw(self, order: WithdrawOrder) -> None:
        """Copy a prepared table without one person's rows; the table before stays as it is."""
        ...

    def segments(self, table: str) -> tuple[str, ...]:
        """Return the paths of all files of a prepared table; some belong to earlier versions."""
        ...


@dataclass(frozen=True)
class CountPeriodOrder:
    """An order to count one period of a stream, within each person's remaining rows."""

    table: str  # the prepared table
    where: Predicate  # condition: the rows of the period that pass the stream's filter
    rows: int  # most rows of a person over the whole stream
    end: int  # the number of the period, from 1
    first: int  # number of the first period in the block that ends with this one
    before: str | None  # path of the state after the previous period; None for the first period
    target: str  # path of the state to write, in a folder of its own
    most_rows: int  # most rows of the table by the card; the time limit follows from it


class StreamEngine(Protocol):
    """An engine that counts rows period by period (continual counting)."""

    def count_period(self, order: CountPeriodOrder) -> Sealed[Cells]:
        """Count the rows of the block of periods that ends with this period.

        The engine also saves, in the target file and nowhere else, how many rows each person used.
        Every error is raised as `EngineStopped`, which reveals nothing about the rows.
        """
        ...


@dataclass(frozen=True)
class PeriodState:
    """The saved state of a closed stream period: its noisy counts, and the engine's own file."""

    words: dict[str, object]
    used: str  # the path of the engine's file


class StreamStates(Protocol):
    """The store of the private state of streams (counts per period), next to the prepared tables.

    Writes are durable and atomic.
    """

    def lock(self, stream: str) -> AbstractContextManager[None]:
        """Lock the stream, so that no other process closes one of its periods at the same time."""
        ...

    def find(self, stream: str, end: int) -> PeriodState | None:
        """Return the saved state of the stream's period with that number, or None."""
        ...

    def draft(self, stream: str) -> AbstractContextManager[str]:
        """Create a private folder for a period's unfinished file.

        It is removed when the block ends.
        """
        ...

    def save(self, stream: str, end: int, draft: str, words: dict[str, object]) -> PeriodState:
        """Save the draft file as the state of the period, atomically.

        A period is saved only once.
        """
        ...

    def drop_before(self, stream: str, end: int) -> None:
        """Delete the state of the stream's periods before `end`, and drafts of killed processes."""
        ...
