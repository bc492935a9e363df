"""Protocols and orders of pipelines: split rows into blocks, and run untrusted programs on them."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

from sfumato.dp.ports import IntegerArray
from sfumato.sandbox.program_outputs import Output
from sfumato.sandbox.program_traces import (
    UNSEEN,
    FileReading,
    Traces,
    block_files,
    person_files,
)
from sfumato.vault.card.columns import ColumnType
from sfumato.vault.sealed import Sealed


@dataclass(frozen=True)
class BlockColumn:
    """A column that a program sees: its name, its index in the stored table, its type and step."""

    name: str
    place: int
    type: ColumnType
    step: Fraction


@dataclass(frozen=True)
class BlockTable:
    """A table with a person column, and those of its columns that a program sees."""

    name: str
    place: int  # index of the table on the card
    person: str  # name of the column that identifies persons
    columns: tuple[BlockColumn, ...]
    most_rows: int  # most rows by the card


MAX_KEPT: Final = 524_288  # most bytes of results that a per-person run may pass to the group run
# how many programs per data set keep their per-person results: those that ran last
KEPT_PROGRAMS: Final = 4


@dataclass(frozen=True)
class StudyOrder:
    """Options for blocks that are BIDS folders, with a run for each person before the blocks.

    A person's folder and stored result depend on no other person (soundness rule 29).
    """

    turns: int  # slots for per-person runs: one for each person that the card allows
    kept: str = ""  # identifies the stored results of this program; "" without per-person runs
    beside: tuple[BlockTable, ...] = ()  # further tables, each with its visible columns


@dataclass(frozen=True)
class SplitOrder:
    """An order to split a table's rows into one file per block (disjoint group) of people.

    All rows of a person are in one block: block = PRF(key, person) mod blocks. A file is a function
    of the key and of the rows of its own persons (soundness rules 26 and 29).
    """

    table: str  # path of the prepared table
    person: str  # name of the first column, which identifies the persons of a block
    columns: tuple[BlockColumn, ...]
    blocks: int
    key: bytes  # random key of this run
    target: str  # a private folder
    most_rows: int  # most rows of all tables by the card
    study: StudyOrder | None = None  # None if a block is only a table


def study_room(turns: int, person_mb: int) -> int:
    """Return the most disk space, in bytes, that a run over people's folders takes.

    `turns` is the number of per-person runs. The space depends on public numbers only.

    It counts each result three times: stored, new, and in the blocks. It counts people's files
    twice: for their own runs and for the blocks.
    """
    return turns * (3 * MAX_KEPT + 2 * (person_mb << 20))


def output_path(turn: str) -> str:
    """Return the path of the result file of a per-person run, next to its input file `turn`."""
    return turn + ".said"


class SplitEngine(Protocol):
    """An engine that splits rows into blocks of people, on which programs run."""

    def split(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one input file per block of people, also for empty blocks; return the paths.

        Any failure raises `EngineStopped`, without details. In a study, the results of per-person
        runs are read from the files next to their input files, stored, and added to the persons'
        blocks.
        """
        ...

    def split_people(self, order: SplitOrder) -> tuple[str, ...]:
        """Write one input file per person's own run, and return the paths.

        Persons get their runs (turns) in random order. A file is empty if the run has no person, or
        if the person's result is already stored.
        """
        ...

    def free_disk_bytes(self, table: str) -> int:
        """Return the free disk space, in bytes, where blocks and stored results are written.

        It does not depend on stored results, because each program's maximal space is reserved.
        """
        ...


class Drafts(Protocol):
    """A source of private temporary folders; each exists for one run of a program."""

    def draft(self) -> AbstractContextManager[str]:
        """Yield a private folder for one run, and delete it afterwards.

        Also delete leftovers of killed processes.
        """
        ...


# how the blocks of a job are timed (soundness rule 27)
ISOLATED: Final = "isolated"  # on a fixed grid of start times: no block can move another
BATCH: Final = "batch"  # side by side; for programs that an owner has reviewed


MOST_THREADS: Final = 32  # of a block that is one process; inside.py has the same number


@dataclass(frozen=True)
class SandboxLimits:
    """The resource limits of a block (one run of a program), the same for all blocks of a job."""

    cpu_s: float = 1.0  # processor time of a block; more makes it late (soundness rule 27)
    memory_mb: int = 2048
    disk_mb: int = 64
    files: int = 4096
    # most processes of an image's block, with threads and its supervising processes
    processes: int = 256
    most_bytes: int = 65_536  # most bytes of output
    timing: str = ISOLATED  # ISOLATED or BATCH
    job_s: float | None = None  # time of all blocks of a batch together; None: by their number
    most_wall_s: float = math.inf  # what is left of the job's time, for a block of a batch

    @property
    def is_batch(self) -> bool:
        """Return True if blocks run side by side, and only the job has a fixed duration."""
        return self.timing == BATCH

    @property
    def wall_s(self) -> float:
        """Return the wall-clock limit of a block in seconds.

        In isolated timing a block has a processor for itself. In a batch it may wait for others.
        """
        if self.is_batch:
            return min(3 * self.cpu_s + 2, self.most_wall_s)
        return 1.5 * self.cpu_s + 0.05


@dataclass(frozen=True)
class BlockJob:
    """An order to run an untrusted program on each block of people's rows separately."""

    program: dict[str, object]  # the message for the sandbox; it contains no row and no secret
    inputs: tuple[str, ...]  # one file of rows per block; only the block reads its file
    outputs: tuple[Output, ...]
    limits: SandboxLimits
    input_timing: InputTiming | None = (
        None  # timing of the engine that wrote the inputs; None for synthetic rows
    )
    own: str = ""  # name of the program's own environment (sandbox/program_environment.py)


@dataclass(frozen=True)
class TrialJob:
    """An order to try an untrusted program on synthetic rows; it contains no person's data."""

    program: dict[str, object]
    texts: tuple[bytes, ...]  # one input per block: a table of rows, or a packed folder
    limits: SandboxLimits
    own: str = ""


ENDS: Final = ("exited", "late", "stalled", "stopped", "full")  # how a trial ended
_LATE: Final = "stopped: it used more processor time than a block has"
_STALLED: Final = "stopped: it waited, or the machine was too busy"
_FULL: Final = "stopped: its processes together used more memory than a block has"
_TOO_LONG: Final = "stopped: its results were too long"


@dataclass(frozen=True)
class Use:
    """What one trial block used, with all of its processes."""

    cpu_s: float = 0.0
    memory: int = 0  # most bytes at once
    processes: int = 1  # most at once, as far as they were seen
    wall_s: float = 0.0  # how long it took, with its start in the sandbox and its end


@dataclass(frozen=True)
class TrialResult:
    """Full result of one trial block on synthetic rows; real rows never have such a result."""

    output: bytes  # the program's result files, as the block's output message
    ended: str = "exited"  # one of ENDS
    status: int = 0  # exit status; a negative number is the signal that ended the program
    printed: bytes = b""  # the end of what the program wrote to standard output and error
    use: Use = Use()
    traces: Traces = UNSEEN

    @property
    def ending(self) -> str:
        """Return a text on how the trial ended, such as its exit status."""
        if self.ended == "exited":
            return f"exit status {self.status}"
        if self.ended == "stopped" and self.status < 0:
            return f"ended by signal {-self.status}"
        causes = {"late": _LATE, "stalled": _STALLED, "stopped": _TOO_LONG, "full": _FULL}
        return causes[self.ended]

    def block_files(self, paths: Collection[str]) -> list[FileReading]:
        """Return what became of each file that a block left; `paths` are the declared results."""
        lost = self._lost(SandboxLimits.most_bytes // 2)  # the message is hexadecimal
        return block_files(self.traces, self.output, paths, lost)

    def person_files(self) -> list[FileReading]:
        """Return what became of each file that a person's own run left."""
        return person_files(self.traces, self.output, self._lost(MAX_KEPT))

    def _lost(self, most: int) -> str:
        """Return why no result was taken, if none was; `most` is how many bytes all may have."""
        if self.ending == _TOO_LONG:
            return f"all results together have more than about {most >> 10} kB"
        return "the program failed or was stopped before"


@dataclass(frozen=True)
class InputTiming:
    """When the engine began to write the programs' inputs, and how large the card lets them be.

    The time that the engine needs depends on people's rows and files, and programs can read the
    clock. So blocks start at a time that only public numbers determine.
    """

    since: float  # when the engine began, by time.monotonic()
    turns: int = 0  # number of turns whose results may have to be stored
    megabytes: int = 0  # most megabytes of all people's files together


class Sandbox(Protocol):
    """A sandbox that runs untrusted programs on blocks of people's rows."""

    def run(self, job: BlockJob) -> Sealed[IntegerArray]:
        """Run a program on all blocks; return their outputs in steps, one row for each block.

        A block with no output, too much output or an invalid one counts as the middle of each
        range. The duration depends only on the limits, whatever the programs do. The inputs are
        deleted within that time. In a batch, a block that did not run within the job's time counts
        as the middle too. `SandboxStopped` means that no sandbox was available.
        """
        ...

    def run_each(self, job: BlockJob) -> None:
        """Run the program once for each person's input file; write each result next to the file.

        An empty file gets no result. The path of a result is `output_path(turn)`, which only a
        block opens later.
        """
        ...

    def try_out(self, job: TrialJob) -> tuple[TrialResult, ...]:
        """Run a program on synthetic rows, and return each block's full result.

        There is no fixed schedule: a processor starts its next block as soon as it is free.
        """
        ...

    def environment(self, own: str = "") -> str:
        """Return the digest of the environment: interpreter, libraries and allowed system calls.

        `own` names the program's own environment, which then is part of the digest. An unknown name
        is refused.
        """
        ...

    def lanes(self, limits: SandboxLimits, own: str = "") -> int:
        """Return how many blocks can run in parallel, from public numbers only; 0 if none can."""
        ...

    def check(self, limits: SandboxLimits, own: str = "") -> None:
        """Raise `SandboxStopped` if no sandbox can start with these limits for each block."""
        ...

    def close(self) -> None:
        """Stop all sandbox processes."""
        ...


class SandboxStopped(Exception):
    """Raised when no sandbox starts, or the host ended one; the exception carries no details."""

    def __init__(self) -> None:
        super().__init__("the sandbox stopped")
