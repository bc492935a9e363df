"""Protocols only: what pipelines need, so that strangers' programs meet rows in one place alone."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

from sfumato.dp.ports import IntegerArray
from sfumato.sandbox.program_outputs import Output
from sfumato.vault.card.columns import ColumnType
from sfumato.vault.sealed import Sealed


@dataclass(frozen=True)
class BlockColumn:
    """A column that a program sees: its name, where it is stored, and what a step of it is."""

    name: str
    place: int
    type: ColumnType
    step: Fraction


@dataclass(frozen=True)
class BlockTable:
    """A table of people's rows, and what a program sees of it."""

    name: str
    place: int  # on the card
    person: str  # what the column is called that tells people apart
    columns: tuple[BlockColumn, ...]
    most_rows: int  # that it may have by the card


MOST_KEPT: Final = 524_288  # bytes that a person's own run may leave for the group's
KEPT_PROGRAMS: Final = 4  # of a data set, whose people's own runs are kept: those run last


@dataclass(frozen=True)
class StudyOrder:
    """Blocks as BIDS folders, with each person's own run before them (soundness rule 29)."""

    turns: int  # of which each person has one; as many as the card lets people in
    kept: str = ""  # tells the runs of this program from all others'; none if nobody runs alone
    beside: tuple[BlockTable, ...] = ()  # tables beside the card's own, each filtered as that is


@dataclass(frozen=True)
class SplitOrder:
    """An order to write people's rows into as many files as there are blocks.

    A person is in one block with all their rows: block = PRF(key, person) mod blocks. A file is a
    function of the key and of its own people's rows (soundness rules 26 and 29).
    """

    table: str  # the prepared table
    person: str  # what the first column is called, which tells a block's people apart
    columns: tuple[BlockColumn, ...]
    blocks: int
    key: bytes  # of this run alone
    target: str  # a private folder
    most_rows: int  # that all tables may have by the card
    study: StudyOrder | None = None  # None where a block is a table alone


def study_room(turns: int, person_mb: int) -> int:
    """Return the bytes of disk that a run over folders may take: by public numbers alone.

    What is kept, what is said this time, and once more in the blocks; and files, for turns and
    blocks.
    """
    return turns * (3 * MOST_KEPT + 2 * (person_mb << 20))


def said_path(turn: str) -> str:
    """Return where what a person's own run has said is left."""
    return turn + ".said"


class SplitEngine(Protocol):
    """Where the rows live that programs are run on."""

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one file a block, the empty ones too; return their paths.

        Whatever goes wrong raises `EngineStopped`, and says nothing of the rows. Of a study, what
        people's own runs have said lies beside their turns; it is kept, and goes to their blocks.
        """
        ...

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one file a turn: a person's own folder, or nothing; return their paths.

        A person's turn is drawn without regard to anybody else's; it is empty if their run is kept
        from an earlier time.
        """
        ...

    def room(self, table: str) -> int:
        """Return the bytes of disk that are free where that is written.

        How much is kept of earlier runs does not move it: each program's room is taken whole.
        """
        ...


class Drafts(Protocol):
    """Private folders for what lives as long as one run."""

    def draft(self) -> AbstractContextManager[str]:
        """Give a private folder that is gone afterwards; what the killed have left goes too."""
        ...


@dataclass(frozen=True)
class SandboxLimits:
    """What one block of a stranger's program may use; the same for every block of a job."""

    cpu_s: float = 1.0  # processor time of its own; lateness is judged by it (soundness rule 27)
    memory_mb: int = 2048
    disk_mb: int = 64
    files: int = 4096
    processes: int = 32  # with the threads, and the two that watch it
    most_bytes: int = 65_536  # that it may say

    @property
    def wall_s(self) -> float:
        """Return how long a block may take by the clock: it has a processor for itself."""
        return 1.5 * self.cpu_s + 0.05


@dataclass(frozen=True)
class BlockJob:
    """A stranger's program, and the blocks of rows that it is to be run on, each for itself."""

    program: dict[str, object]  # what the inside of a sandbox reads; no row, no secret
    inputs: tuple[str, ...]  # files of rows, one a block; nobody reads them but the block
    outputs: tuple[Output, ...]
    limits: SandboxLimits
    laid: Laid | None = None  # by an engine, out of rows; None of what is made up
    own: str = (
        ""  # the name of what the program brings along to run with (sandbox/program_environment.py)
    )


@dataclass(frozen=True)
class TrialJob:
    """A stranger's program, and made-up rows to try it on: nothing of anybody's is in it."""

    program: dict[str, object]
    texts: tuple[bytes, ...]  # rows, or a folder in one piece, one a block
    limits: SandboxLimits
    own: str = ""


ENDS: Final = ("exited", "late", "stalled", "stopped")  # how a trial ended
_LATE: Final = "stopped: it used more processor time than a block has"
_STALLED: Final = "stopped: it waited, or the machine was too busy"
_TOO_LONG: Final = "stopped: its results were too long"


@dataclass(frozen=True)
class TrialResult:
    """What a program did on made-up rows, openly; of real rows nothing like it is ever made."""

    said: bytes  # its result files, as a block says them
    ended: str = "exited"  # one of ENDS
    status: int = 0  # exit status; less than 0 is the signal that ended it
    printed: bytes = b""  # the end of standard output and error

    @property
    def ending(self) -> str:
        """Return how it ended, in words."""
        if self.ended == "exited":
            return f"exit status {self.status}"
        if self.ended == "stopped" and self.status < 0:
            return f"ended by signal {-self.status}"
        return {"late": _LATE, "stalled": _STALLED, "stopped": _TOO_LONG}[self.ended]


@dataclass(frozen=True)
class Laid:
    """When an engine began to lay out what is run, and by the card how much that can be.

    How long it takes hangs on everybody's rows and files, so nothing starts when it is done, but at
    a moment that public numbers set: a program can look at the clock.
    """

    since: float  # of time.monotonic()
    turns: int = 0  # of people, of each of which something may have to be kept
    megabytes: int = 0  # of all people's files together, at most


class Sandbox(Protocol):
    """Where strangers' programs run beside the data."""

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        """Return what each block says of each output, in steps: an array of blocks by outputs.

        A block that says nothing, too much, or nothing of use says the middle of each range. It
        takes as long as the limits say, whatever the programs do; within that time what an engine
        has laid out is removed. `SandboxStopped` says that no sandbox could be had.
        """
        ...

    def run_each(self, job: BlockJob) -> None:
        """Run the program on every turn; leave beside it what it says, unless the turn is empty.

        What a turn says is a file that only a block opens later: `said_path` of the turn's.
        """
        ...

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        """Return what each block of made-up rows does, openly and as soon as it is done."""
        ...

    def environment(self, own: str = "") -> str:
        """Return the digest of what programs run with: interpreter, libraries, list of calls.

        With what a program brings along, whose name is a digest, that is part of it; one that is
        not here is refused.
        """
        ...

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise `SandboxStopped` if none can be had with so much for each block."""
        ...

    def close(self) -> None:
        """Let every process go."""
        ...


class SandboxStopped(Exception):
    """No sandbox starts, or the host ended one; says nothing of any row."""

    def __init__(self) -> None:
        super().__init__("the sandbox stopped")
