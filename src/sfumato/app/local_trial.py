"""Try a program on the researcher's own machine, in the sandbox that would run it on real rows.

The data are synthetic: a schema twin, or any folder, zip file or table of the researcher's. So the
trial shows everything: what the program printed, what it used, and the likely cause if it failed.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.program_files import Modules, read_texts
from sfumato.sandbox.base_environment import environment
from sfumato.sandbox.environment_store import Environments, missing_environment
from sfumato.sandbox.ports import ISOLATED, SandboxLimits, SandboxStopped, TrialJob, TrialResult
from sfumato.sandbox.program_environment import IMAGE, LOCK
from sfumato.sandbox.program_outputs import Output, Reading, parsed_outputs, read_outputs
from sfumato.sandbox.sandbox_pool import SandboxPool
from sfumato.system.randomness import SystemRandomSource
from sfumato.vault.folder_archive_format import FILE, whole

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
# what a program prints when it meets a limit of the sandbox -> what a researcher can do
_HINTS: Final = (
    (
        r"\^M|\\r['’]?: (?:command not found|No such file)|\r: not found",
        _WINDOWS,
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
        r"File exists: '(/work/out[^']*)'",
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
        rf"{_NO_SUCH}(/work/out/[^'\"’]+)",
        "it opens {}, and there is no such file or folder: make a folder for results before "
        "writing into it, as with os.makedirs",
    ),
    (
        rf"{_NO_SUCH}/work/in/([^'\"’]+)",
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

    @property
    def cause(self) -> str:
        """Return a likely cause of the failure and what to do, or "" if all results are there.

        A limit that was used up comes first, then what the program printed, then how it ended.
        """
        missing = [one for one in self.read if not one.is_number or one.lacks]
        is_whole = self.result.ending == "exit status 0" and not missing
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
            "would_fail": self.cause,
        }


def _telling_line(printed: str) -> str:
    """Return the line that says most about a failure: an error of R, Go or Node.js, or the last."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if re.match(_ERROR, line):
            # R writes a long message on a second line
            return " ".join(lines[place : place + 1 + line.endswith(":")])
    return lines[-1] if lines else ""


def try_program(
    text: str | Mapping[str, object],
    data: str,
    outputs: Sequence[Mapping[str, object]],
    *,
    brought: Sequence[str] = (),
    limits: Mapping[str, object],
) -> dict[str, object]:
    """Run a program once on all of the data, as one block; return the full result.

    `text` is the text of the program, or of a folder what `read_folder` returns.
    `brought` is what the program brings along: image, lock or folder, followed by its path and, for
    an image, its digest. It is stored for the next trial, as by `sfumato pipeline environment add`.
    Or it is `environment`, followed by the name of one that is stored already.
    """
    declared = read_outputs([dict(one) for one in outputs])
    kept = Environments()
    own = _added(kept, *brought) if brought else ""
    files = _read_data(Path(data))
    rows = b"".join(whole(FILE, path, files[path]) for path in sorted(files))
    texts = read_texts({"source": text} if isinstance(text, str) else text, least=0)
    job = TrialJob(_told(texts, declared), (rows,), _limits(limits), own)
    sandbox = SandboxPool(environment, SystemRandomSource(), own=kept)
    sandbox.stalled_retries = 1
    try:
        result = sandbox.try_out(job)[0]
    except SandboxStopped:
        raise Refused(
            "sandbox-missing",
            "The sandbox did not start on this machine.",
            "Run `sfumato doctor`: it says what is missing.",
        ) from None
    finally:
        sandbox.close()
    read = parsed_outputs(result.output, declared)
    return Found(result, read, texts[0], own.startswith(IMAGE), _columns(files)).as_json()


def _added(kept: Environments, kind: str, place: str, digest: str = "") -> str:
    """Add what a program brings along, unless it is on this machine already; return its name."""
    if kind == "environment":
        if kept.find(place) is None:
            raise missing_environment()
        return place
    if kind == IMAGE:
        return kept.add_image(Path(place), digest).name
    return (kept.add_lock if kind == LOCK else kept.add_folder)(Path(place)).name


def _told(files: tuple[str, str, Modules], outputs: tuple[Output, ...]) -> dict[str, object]:
    source, main, modules = files
    several: dict[str, object] = {"main": main, "modules": dict(modules)} if modules else {}
    return {
        "kind": "study", "source": source, "name": "group", "level": "group", "study": {},
        "outputs": [one.name for one in outputs], "paths": [one.path for one in outputs],
        **several,
    }  # fmt: skip


def _limits(given: Mapping[str, object]) -> SandboxLimits:
    return TrialLimits(
        cpu_s=float(str(given["cpu_s"])),
        memory_mb=int(str(given["memory_mb"])),
        disk_mb=int(str(given["disk_mb"])),
        timing=str(given.get("timing", ISOLATED)),
    )


def _read_data(data: Path) -> dict[str, bytes]:
    """Return the data's files as a block gets them: a folder's, or a table as participants.tsv."""
    files = dict(_files(data))
    if not files:
        raise _bad_data(f"there is no file in {data}")
    tables = [name for name in files if name.endswith(".csv")]
    is_twin = any(PurePosixPath(name).name == TWIN for name in files)
    if is_twin and TABLE not in files and len(tables) == 1:  # of a data set that is one table
        return {TABLE: _as_tsv(files[tables[0]])}
    return files


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
