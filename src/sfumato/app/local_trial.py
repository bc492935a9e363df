"""Try a program on the researcher's own machine, in the sandbox that would run it on real rows.

The data are synthetic: a schema twin, or any folder, zip file or table of the researcher's. So the
trial shows everything: what the program printed, what it used, and the likely cause if it failed.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from sfumato.app.local_blocks import split_files
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_files import Modules, read_texts
from sfumato.features.pipelines.program_plan import GROUP, PARTICIPANT
from sfumato.features.pipelines.program_trial import try_alone
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.environment_store import Environments, missing_environment
from sfumato.sandbox.image import SOURCE, TARGET
from sfumato.sandbox.ports import (
    ISOLATED,
    SandboxLimits,
    SandboxStopped,
    TrialJob,
    TrialResult,
)
from sfumato.sandbox.program_environment import IMAGE, LOCK
from sfumato.sandbox.program_outputs import Output, Reading, parsed_outputs, read_outputs
from sfumato.sandbox.program_traces import FileReading
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.card.bids import PERSON
from sfumato.vault.folder_archive_format import FILE, SAID, whole

TABLE: Final = "participants.tsv"
TWIN: Final = "TWIN.json"  # a schema twin has this file
MAX_HEAD: Final = 20_000  # most bytes of the people's table of which a hint reads the first line
SHOWN: Final = 20  # most columns that a hint names
MAX_MB: Final = 1024  # most megabytes of all files of a zip file together
_NAMED: Final = r"['‘’\"]([\w.:/+-]+)['‘’\"]"
_WINDOWS: Final = (
    "its lines end as on Windows (CR LF): save it with the line ends of Linux, for example with "
    "dos2unix"
)
MANY: Final = 200  # so many processes at once are more likely the cause than a limit that they met
_MANY: Final = (
    "it starts more processes or threads than a block may have at once (about 250): start fewer"
)
_NO_SUCH: Final = r"No such file or directory:? ['\"‘]"
# standard modules that a whole Python of another system or version may lack
_NOT_EVERYWHERE: Final = frozenset(
    [
        "_msi",
        "_winapi",
        "asynchat",
        "asyncore",
        "distutils",
        "imp",
        "msilib",
        "msvcrt",
        "nt",
        "smtpd",
        "tkinter",
        "turtle",
        "winreg",
        "winsound",
    ]
)
# what a program prints when it meets a limit of the sandbox -> what a researcher can do
_HINTS: Final = (
    (
        r"\^M|\\r['’]?: (?:command not found|No such file)|\r: not found",
        _WINDOWS,
    ),
    (
        rf"No module named ['\"]?({'|'.join(sorted(sys.stdlib_module_names - _NOT_EVERYWHERE))})\b",
        "it needs the module {}, which belongs to Python itself, so the Python of its image is not "
        "whole: install all of it in the image (Debian: python3, not python3-minimal)",
    ),
    (
        rf"No module named {_NAMED}",
        "it needs the Python module {}, which its environment lacks: bring it in a lock or an "
        "image (--lock, --image)",
    ),
    (
        rf"there is no package called {_NAMED}",
        "it needs the R package {}, which its image lacks: add the package to the image",
    ),
    (
        r"(?i)'tk' interactive framework|no \$?DISPLAY|(?:open|connect to) (?:X11 )?display"
        r"|unable to start device X11",
        "it opens a window, and a block has no display: write to files alone (in matplotlib, "
        "choose the backend Agg)",
    ),
    (
        r"EOFError: EOF when reading a line",
        "it asks for input, and nobody answers in a block: write the value into the program",
    ),
    (
        r"error: ((?:the following arguments are required|unrecognized arguments): [^\n]+)",
        "it expects other arguments than INPUT OUTPUT group ({}): read the folder of the data from "
        "its first argument, and the folder for results from its second",
    ),
    (
        r"Object of type (\w+) is not JSON serializable",
        "it writes a value of type {} into a JSON file: convert it first, with float(...)",
    ),
    (
        rf"File exists: '({TARGET}[^']*)'",
        "it makes the folder {}, which is there already: use os.makedirs(..., exist_ok=True)",
    ),
    (
        r"(?s)socket.*Operation not permitted|creation of server socket failed",
        "it opens a socket, which a block has only in a batch: try --timing batch",
    ),
    (
        r"/dev/(?:fd/\d+|std(?:in|out|err)): No such file",
        "it reads its own descriptors under /dev/fd, as <(...) of a shell does, and a block can do "
        "that only in a batch: try --timing batch",
    ),
    (
        r"epoll_?create|netpollinit|uv_loop_init|select\.epoll",  # Go, Node.js, Python
        "it waits for several files at once (epoll), as Go and Node.js do, and a block can do that "
        "only in a batch: try --timing batch",
    ),
    (
        # SQLite; HDF5; a shell or Python
        r"(?s)access permission denied|unable to lock file|\b(?:flock|lockf)\b.*not permitted",
        "it locks a file, as SQLite and HDF5 do, and a block can do that only in a batch: try "
        "--timing batch, or keep an SQLite database in memory (:memory:)",
    ),
    (
        r"'(?:mc\.)?cores' must be|mc\.cores = NA",
        "it asks R for the number of processors, which is NA without a /proc: write the number "
        "into the program, or try --timing batch",
    ),
    (
        r"No such file or directory:? ['\"]?(/proc/\w+)|libjli\.so: cannot open",  # Java's start
        "it reads {}, and a block has a /proc only in a batch: try --timing batch",
    ),
    (
        r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "it needs the shared library {}, which its environment lacks: bring an image that has it "
        "(--image)",
    ),
    (
        r"Could not resolve host|name resolution|Network is unreachable",
        "it needs the network, and a block has none: put what it downloads into the image",
    ),
    (
        r"([\w./+-]+): (?:command )?not found",
        "it starts the command {}, which its image lacks: add the command to the image",
    ),
    (
        rf"{_NO_SUCH}({TARGET}/[^'\"’]+)",
        "it opens {}, and there is no such file or folder: make a folder for results before "
        "writing into it, as with os.makedirs",
    ),
    (
        rf"{_NO_SUCH}{SOURCE}/([^'\"’]+)",
        "the data have no file {}: --data must contain it, at exactly this path",
    ),
    (
        rf"{_NO_SUCH}((?![/~])[^'\"’]+)",
        "it opens {}, a path that begins nowhere: put its first argument (the data) or its second "
        "(the results) before it",
    ),
    (
        r"(?:No such file or directory:? |cannot open file )['\"‘]([^'\"’]+)",
        "it reads {}, which is not there: its first argument names the folder of the data",
    ),
    (
        r"Read-only file system(?::? ['\"]?([^'\"\s]+))?",
        "it writes to {}, which is read-only: write to its second argument or to /tmp",
    ),
    (r"No space left on device", "its files are larger than a block's disk: give more (--disk)"),
    (
        r"MemoryError|[Cc]annot allocate (?:memory|vector)",
        "it needs more memory than a block has: give more (--memory)",
    ),
    (r"Resource temporarily unavailable|can't start new thread", _MANY),
)
_PROC: Final = r"No such file or directory:? ['\"]?(/proc/\w+)"
# only for a program without an image, which is one process of Python
_ONE_PROCESS: Final = (
    r"(?s)(?:fork|subprocess|multiprocessing|popen|joblib).*(?:PermissionError|not permitted)"
)
# a name that the data lack, as Python, pandas and R say it
_NO_NAME: Final = (
    rf"KeyError: (?:\"\[|\"None of \[Index\(\[)?{_NAMED}"
    rf"|expected but not found: \[{_NAMED}"
    rf"|object {_NAMED} not found"
    rf"|column {_NAMED} (?:not found|doesn't exist)"
)
# what comes after these lines says less: Execution halted, or the calls that led there
_ERROR: Final = r"Error in |fatal error: |panic: |.*Assertion `.*failed"
# an error of Python; what the program printed before may come after it
_RAISED: Final = r"(?m)^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)"
_ENDED: Final = {
    "late": "it needs more processor time than a block has: give more (--cpu), or do less",
    "stalled": (
        "it waited longer than a block may, or this machine was too busy: it must not wait for "
        "input"
    ),
    "full": "its processes together need more memory than a block has: give more (--memory)",
    "stopped": "its results are longer than a block may return: write less",
}


class TrialLimits(SandboxLimits):
    """Limits of a block on a researcher's machine, which may be busy with other work."""

    @property
    def wall_s(self) -> float:
        """Return the wall-clock limit in seconds: more than a real block has."""
        return 4 * self.cpu_s + 2


@dataclass(frozen=True)
class Found:
    """The result of a local trial: the run, and how each output was read."""

    result: TrialResult
    read: Sequence[Reading]
    source: str = ""
    is_image: bool = False
    columns: tuple[str, ...] = ()  # of the data's participants.tsv
    alone: OwnRuns | None = None
    files: Sequence[FileReading] = ()

    @property
    def cause(self) -> str:
        """Return a likely cause of the failure and what to do, or "" if all results are there.

        A limit that was used up comes first, then what the program printed, then how it ended.
        """
        missing = [one for one in self.read if not one.is_number or one.lacks]
        is_whole = self.result.ending == "exit status 0" and not missing
        failed = {} if self.alone is None else self.alone.failed
        if self.alone and failed and (not is_whole or len(failed) == len(self.alone.left)):
            name, cause = next(iter(failed.items()))
            return f"the own run of {name} failed: {cause}"
        if is_whole:
            return ""
        printed = self.result.printed.decode("utf-8", "replace")
        if self.result.use.processes >= MANY:
            return _MANY
        if self.result.ended in ("late", "full", "stalled"):
            return _ENDED[self.result.ended]
        if said := self._of_source() or self._of_image(printed) or self._of_column(printed):
            return said
        for pattern, says in _HINTS:
            if (found := re.search(pattern, printed)) is not None:
                named = found.group(1) if found.groups() and found.group(1) else "a file"
                return says.format(named)
        if self.result.ended == "stopped" and self.result.status >= 0:
            return _ENDED["stopped"]
        if self.result.ending != "exit status 0":
            last = _telling_line(printed)
            shown = last[:200].rstrip(".")
            if not last:
                return f"it ended with {self.result.ending}, and printed nothing about why"
            return f"it ended with {self.result.ending}; it printed: {shown}"
        says = f"{missing[0].name}: {missing[0].says}"
        is_absent = "there is no result" in missing[0].says
        return (
            f"{says}: write this file into the folder of the second argument" if is_absent else says
        )

    def _of_source(self) -> str:
        """Return what is wrong with the program's `#!` line, or ""."""
        first = self.source.partition("\n")[0]
        if not first.startswith("#!"):
            return ""
        if self.is_image:
            return _WINDOWS if first.endswith("\r") else ""
        if "python" in first:
            return ""
        return (
            f"it begins with {first.strip()[:60]}, and without an image every program runs as "
            "Python: give an image that has this interpreter (--image)"
        )

    def _of_image(self, printed: str) -> str:
        """Return what only an image's program may do and this one tried, or ""."""
        if self.is_image:
            return ""
        if (found := re.search(_PROC, printed)) is not None:
            return (
                f"it reads {found.group(1)}, and only an image in a batch has a /proc: do without"
            )
        if not re.search(_ONE_PROCESS, printed):
            return ""
        return (
            "it starts another process, and without an image a program is one process: do the work "
            "in one process, or give an image (--image)"
        )

    def _of_column(self, printed: str) -> str:
        """Return which column the data lack, with those that there are, or ""."""
        if not self.columns or (found := re.search(_NO_NAME, printed)) is None:
            return ""
        name = next(one for one in found.groups() if one)
        if name in self.columns or "os.environ" in printed:
            return ""
        more = ", ..." if len(self.columns) > SHOWN else ""
        return (
            f"it asks for {name!r}, which is no column of participants.tsv: its columns are "
            f"{', '.join(self.columns[:SHOWN])}{more}"
        )

    def as_json(self) -> dict[str, object]:
        """Return the trial as JSON."""
        use = self.result.use
        return {
            "ended": self.result.ending,
            "cpu_s": round(use.cpu_s, 3),
            "wall_s": round(use.wall_s, 3),
            "memory_mb": -(-use.memory >> 20),
            "processes": use.processes,
            "printed": self.result.printed.decode("utf-8", "replace"),
            "read": [one.as_json() for one in self.read],
            **self.result.traces.as_json(self.files),
            "would_fail": self.cause,
            **({"alone": self.alone.as_json()} if self.alone and self.alone.left else {}),
        }


def _telling_line(printed: str) -> str:
    """Return the line that says most about a failure: an error's, or the last."""
    if raised := re.findall(_RAISED, printed):
        return str(raised[-1]).strip()
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if re.match(_ERROR, line):
            # R writes a long message on a second line
            return " ".join(lines[place : place + 1 + line.endswith(":")])
    return lines[-1] if lines else ""


@dataclass(frozen=True)
class Trial:
    """A program to try, and where: its texts, its outputs, its environment and its limits."""

    texts: tuple[str, str, Modules]
    outputs: tuple[Output, ...]
    own: str
    limits: SandboxLimits
    sandbox: SandboxPool
    is_two_level: bool = False  # for each person alone, and then for the group

    @property
    def is_image(self) -> bool:
        """Return True if the program runs in an image."""
        return self.own.startswith(IMAGE)

    def job(self, kind: str, inputs: tuple[bytes, ...], level: str = GROUP) -> TrialJob:
        """Return the order to run the program on inputs: tables of rows, or packed folders."""
        return TrialJob(_told(self, kind, level), inputs, self.limits, self.own)


@dataclass(frozen=True)
class OwnRuns:
    """The runs for each person alone, before the run of the group."""

    left: Mapping[str, bytes]  # by the person's name: what their run wrote
    failed: Mapping[str, str] = field(default_factory=dict)  # the likely cause, by name

    def as_json(self) -> dict[str, object]:
        """Return how many runs there were and which failed, as JSON."""
        return {"runs": len(self.left), "failed": dict(self.failed)}


def try_program(
    text: str | Mapping[str, object],
    data: str | Mapping[str, object],
    outputs: Sequence[Mapping[str, object]],
    *,
    brought: Sequence[str] = (),
    limits: Mapping[str, object],
) -> dict[str, object]:
    """Run a program once on all of the data, or on blocks of their people; return the results.

    `data` is a path, or a table: `place`, and `blocks` and `person` (the column that names people).
    With `blocks`, the result has a short line for each block, and the first failed one in full.
    `text` is the text of the program, or a table as for `submit-pipeline`: `source`, for a folder
    also `main` and `modules`, and its `kind`. A "bids" program runs for each person alone first.
    `brought` is what the program brings along: image, lock or folder, followed by its path and, for
    an image, its digest. It is stored for the next trial, as by `sfumato pipeline environment add`.
    Or it is `environment`, followed by the name of one that is stored already.
    """
    declared = read_outputs([dict(one) for one in outputs])
    kept = Environments()
    own = _added(kept, *brought) if brought else ""
    how: Mapping[str, object] = {"place": data} if isinstance(data, str) else data
    files, is_table = _read_data(Path(str(how["place"])))
    shape = {"source": text} if isinstance(text, str) else text
    texts, participants = read_texts(shape, least=0), shape.get("kind") == "bids"
    if participants and not is_table and not _people(files):
        raise _bad_data("no person of participants.tsv is called sub-..., as in a BIDS folder")
    sandbox = SandboxPool(environment, SystemRandomSource(), own=kept)
    sandbox.stalled_retries = 1
    trial = Trial(texts, declared, own, _limits(limits), sandbox, participants)
    try:
        if how.get("blocks") is None:
            return _tried(trial, files, is_table=is_table).as_json()
        person = how.get("person")
        named = None if person is None else str(person)
        split = split_files(files, int(str(how["blocks"])), named)
        return _tried_blocks(trial, split, is_table=is_table)
    except SandboxStopped:
        raise Refused(
            "sandbox-missing",
            "The sandbox did not start on this machine.",
            "Run `sfumato doctor`: it says what is missing.",
        ) from None
    finally:
        sandbox.close()


def _tried(trial: Trial, files: Mapping[str, bytes], *, is_table: bool) -> Found:
    """Run the program on these files as one block."""
    alone = OwnRuns({})
    if is_table:  # written by what writes a block of a table
        kind = "bids" if trial.is_two_level else "program"
        _check_table(trial, trial.is_two_level)
        job = trial.job(kind, (files[TABLE],))
    else:
        alone = _tried_alone(trial, files) if trial.is_two_level else alone
        job = trial.job("study", (_packed(files, alone.left),))
    result = trial.sandbox.try_out(job)[0]
    read = parsed_outputs(result.output, trial.outputs)
    left = result.block_files([one.path for one in trial.outputs])
    return Found(result, read, trial.texts[0], trial.is_image, _columns(files), alone, left)


def _tried_blocks(
    trial: Trial, split: Sequence[tuple[int, Mapping[str, bytes]]], *, is_table: bool
) -> dict[str, object]:
    """Run the program on each block, one after another; return the first failed one in full."""
    lines: list[dict[str, object]] = []
    failed: dict[str, object] | None = None
    for place, (people, files) in enumerate(split, 1):
        found = _tried(trial, files, is_table=is_table)
        use = found.result.use
        lines.append({
            "block": place, "people": people, "ended": found.result.ending,
            "cpu_s": round(use.cpu_s, 3), "wall_s": round(use.wall_s, 3),
            "read": [one.as_json() for one in found.read], "would_fail": found.cause,
        })  # fmt: skip
        if found.cause and failed is None:
            failed = {"block": place, "people": people, **found.as_json()}
    return {"blocks": lines, "failed": failed, "would_fail": _why_blocks(lines)}


def _why_blocks(lines: Sequence[Mapping[str, object]]) -> str:
    """Return how many blocks failed, and whether few people are the likely reason; or ""."""
    failed = [int(str(one["people"])) for one in lines if one["would_fail"]]
    least = min((int(str(one["people"])) for one in lines if not one["would_fail"]), default=None)
    if not failed:
        return ""
    empty = failed.count(0)
    small = 0 if least is None else sum(0 < people < least for people in failed)
    parts = [f"{len(failed):,} of {len(lines):,} blocks failed"]
    parts += [f"{empty:,} of them with nobody in it"] if empty else []
    parts += [f"{small:,} with fewer people than any block that gave all results"] if small else []
    remedy = (
        ": give fewer blocks, or let the program answer for few people" if empty + small else ""
    )
    return ", ".join(parts) + (remedy if empty + small else "")


def _check_table(trial: Trial, participants: bool) -> None:
    if participants and trial.is_image:
        raise Refused(
            "bad-pipeline",
            "In an image, people's own runs need a folder for each person, and these data are a "
            "single table.",
            "Give --data a BIDS folder or its twin, or leave out --participants.",
        )


# --- people's own runs ----------------------------------------------------------------------------


def _tried_alone(trial: Trial, files: Mapping[str, bytes]) -> OwnRuns:
    """Run the program for each person of a BIDS folder, with that person alone in it."""
    people = _people(files)
    if not people:  # an empty block
        return OwnRuns({})
    owners = {path: _owner(path, people) for path in files}
    inputs = tuple(
        _packed(
            {
                path: _rows_of(person, path, text)
                for path, text in files.items()
                if owners[path] in ("", person)
            },
            {person: b""},
        )
        for person in people
    )
    results = try_alone(trial.sandbox, trial.job("study", inputs, PARTICIPANT), people)
    failed = {}
    for person, one in results.items():
        cause = Found(one, (), trial.texts[0], trial.is_image, _columns(files)).cause
        if cause:
            failed[person] = cause
    return OwnRuns({person: one.output for person, one in results.items()}, failed)


def _people(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the names of the people of a BIDS folder: in its table, and of its folders."""
    lines = files.get(TABLE, b"").decode("utf-8-sig", "replace").splitlines()[1:]
    named = [line.partition("\t")[0].strip() for line in lines]
    folders = [PurePosixPath(path).parts[0] for path in files if "/" in path]
    return tuple(dict.fromkeys(name for name in (*named, *folders) if name.startswith("sub-")))


def _owner(path: str, people: Collection[str]) -> str:
    """Return the person to whom a file of a BIDS folder belongs, or "" if it is about all."""
    for part in PurePosixPath(path).parts:
        for name in (part, re.split(r"[_.]", part)[0]):
            if name in people:
                return name
    return ""


def _rows_of(person: str, path: str, text: bytes) -> bytes:
    """Return a table of people with the lines of one person, and any other file as it is."""
    head, *lines = text.splitlines(keepends=True) or [b""]
    first = head.decode("utf-8-sig", "replace").split("\t")[0].strip()
    if not path.endswith(".tsv") or first != PERSON:
        return text
    own = [line for line in lines if line.split(b"\t")[0].strip() == person.encode()]
    return head + b"".join(own)


def _packed(files: Mapping[str, bytes], left: Mapping[str, bytes]) -> bytes:
    """Return the input of a block that is a folder, with what people's own runs left."""
    parts = [whole(FILE, path, files[path]) for path in sorted(files)]
    return b"".join([*parts, *(whole(SAID, name, text) for name, text in left.items())])


def _added(kept: Environments, kind: str, place: str, digest: str = "") -> str:
    """Add what a program brings along, unless it is on this machine already; return its name."""
    if kind == "environment":
        if kept.find(place) is None:
            raise missing_environment()
        return place
    if kind == IMAGE:
        return kept.add_image(Path(place), digest).name
    return (kept.add_lock if kind == LOCK else kept.add_folder)(Path(place)).name


def _told(trial: Trial, kind: str, level: str) -> dict[str, object]:
    source, main, modules = trial.texts
    folder = {"level": level, "study": {}} if kind == "study" else {}
    several: dict[str, object] = {"main": main, "modules": dict(modules)} if modules else {}
    return {
        "kind": kind, "source": source, "name": GROUP,
        "outputs": [one.name for one in trial.outputs],
        "paths": [one.path for one in trial.outputs], **folder, **several,
    }  # fmt: skip


def _limits(given: Mapping[str, object]) -> SandboxLimits:
    return TrialLimits(
        cpu_s=float(str(given["cpu_s"])),
        memory_mb=int(str(given["memory_mb"])),
        disk_mb=int(str(given["disk_mb"])),
        timing=str(given.get("timing", ISOLATED)),
    )


def _read_data(data: Path) -> tuple[dict[str, bytes], bool]:
    """Return the data's files as a block gets them, and True if they are a single table."""
    files = dict(_files(data))
    if not files:
        raise _bad_data(f"there is no file in {data}")
    tables = [name for name in files if name.endswith(".csv")]
    is_twin = any(PurePosixPath(name).name == TWIN for name in files)
    if is_twin and TABLE not in files and len(tables) == 1:  # of a data set that is one table
        return {TABLE: _as_tsv(files[tables[0]])}, True
    return files, data.is_file() and not zipfile.is_zipfile(data)


def _as_tsv(table: bytes) -> bytes:
    """Return a CSV table as a block gets it: with tabs between its cells."""
    made = io.StringIO()
    rows = csv.reader(io.StringIO(table.decode("utf-8-sig", "replace")))
    csv.writer(made, delimiter="\t", lineterminator="\n").writerows(rows)
    return made.getvalue().encode()


def _columns(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the columns of the people's table, or () if there is no such table."""
    head = files.get(TABLE, b"")[:MAX_HEAD].decode("utf-8-sig", "replace").partition("\n")[0]
    return tuple(head.strip().split("\t")) if head.strip() else ()


def _files(data: Path) -> Iterator[tuple[str, bytes]]:
    if data.is_dir():
        for place in sorted(data.rglob("*")):
            if place.is_symlink() and not place.exists():
                raise _bad_data(f"{place.name} is a link to a file that is not here")
            if place.is_file():
                yield place.relative_to(data).as_posix(), place.read_bytes()
    elif zipfile.is_zipfile(data):
        yield from _files_of_zip(data)
    elif data.suffix == ".tsv":
        yield TABLE, data.read_bytes()
    elif data.suffix == ".csv":
        yield TABLE, _as_tsv(data.read_bytes())
    else:
        raise _bad_data(f"{data.name} is no folder, zip file, .tsv or .csv table")


def _files_of_zip(data: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a zip; paths begin at the folder of `participants.tsv`, if it is one."""
    with zipfile.ZipFile(data) as packed:
        members = [one for one in packed.infolist() if not one.is_dir()]
        if sum(one.file_size for one in members) > MAX_MB << 20:
            raise _bad_data(f"its files are larger than {MAX_MB} MB together")
        names = [PurePosixPath(one.filename) for one in members]
        tops = {name.parts[0] for name in names}
        is_below = len(tops) == 1 and any(name.parts[1:] == (TABLE,) for name in names)
        for one in members:
            parts = PurePosixPath(one.filename).parts
            if ".." in parts or one.filename.startswith("/"):
                raise _bad_data("a name in the zip file leads out of it")
            yield "/".join(parts[1 if is_below else 0 :]), packed.read(one)


def _bad_data(says: str) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The program cannot be tried on these data: {says}.",
        "Give --data a folder, a zip file, or a .tsv or .csv table, for example a schema twin.",
    )
