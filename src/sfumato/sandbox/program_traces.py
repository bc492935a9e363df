"""The commands that a trial's program ran, and the files that it left, as its keeper saw them.

Real rows never have such traces. All names and commands are untrusted text (trial_observer.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from sfumato.dp.json_values import Json
from sfumato.sandbox.program_outputs import result_paths
from sfumato.vault.folder_archive_format import FILE, record

MAX_OBSERVED: Final = 1 << 20  # most bytes of the keeper's message on commands and files
_OTHER: Final = "no output declares it"
_FOR_GROUP: Final = "taken for the group's run"
_NO_FILE: Final = {
    "folder": "a folder, and a result is a file",
    "link": "a link, and no link is followed",
    "pipe": "a named pipe, and a result is a plain file",
    "socket": "a socket, and a result is a plain file",
    "device": "a device, and a result is a plain file",
}


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    """A command as the keeper lists it."""

    arguments: list[str]
    is_cut: bool
    times: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A file as the keeper lists it."""

    path: str
    is_cut: bool
    kind: str
    size: int


class _Observed(msgspec.Struct, forbid_unknown_fields=True):
    """The keeper's message; by default nothing was seen."""

    commands: list[_Command] = []
    more_commands: int = 0
    files: list[_File] = []
    more_files: int = 0


@dataclass(frozen=True)
class Command:
    """A command that the program's processes ran, and how often."""

    text: str  # as a shell quotes it, without unprintable characters
    times: int


@dataclass(frozen=True)
class LeftFile:
    """A file that the program left in its output folder."""

    path: str  # below the output folder, as the program wrote it
    kind: str  # "file", "folder", "link", "pipe", "socket" or "device"
    size: int  # bytes
    is_cut: bool = False  # True if the end of a long path is left out

    @property
    def name(self) -> str:
        """Return the path without unprintable characters."""
        return escaped(self.path) + "..." * self.is_cut


@dataclass(frozen=True)
class Traces:
    """What a trial's program did: the first commands that it ran, and the first files by name."""

    commands: tuple[Command, ...] = ()  # in the order in which they first ran
    more_commands: int = 0  # how often other commands ran
    files: tuple[LeftFile, ...] = ()  # declared results first
    more_files: int = 0

    def as_json(self, files: Iterable[FileReading]) -> Json:
        """Return the commands, and what became of the files, as JSON for a plan."""
        return {
            "commands": [{"command": one.text, "times": one.times} for one in self.commands],
            "more_commands": self.more_commands,
            "files": [one.as_json() for one in files],
            "more_files": self.more_files,
        }


UNSEEN: Final = Traces()


@dataclass(frozen=True)
class FileReading:
    """What became of a file that a trial's program left."""

    name: str
    size: int
    is_taken: bool
    says: str

    def as_json(self) -> Json:
        """Return what became of the file, as JSON for a plan."""
        return {
            "path": self.name, "size": self.size, "is_taken": self.is_taken, "says": self.says,
        }  # fmt: skip


def read_traces(observed: bytes) -> Traces:
    """Return what the keeper's message says."""
    said = msgspec.json.decode(observed, type=_Observed)
    return Traces(
        tuple(Command(_shell_text(one), one.times) for one in said.commands),
        said.more_commands,
        tuple(LeftFile(one.path, one.kind, one.size, one.is_cut) for one in said.files),
        said.more_files,
    )


def block_files(
    traces: Traces, output: bytes, paths: Collection[str], lost: str
) -> list[FileReading]:
    """Return what became of each file that a block left.

    Args:
        traces: What was seen of the block.
        output: The block's output message, with the results that were taken.
        paths: The paths of the declared results.
        lost: Why there is no output at all, if there is none.

    Returns:
        A reading for each listed file.
    """
    taken = set(paths).intersection(result_paths(output))
    why = lost if not output else "it cannot be read"
    return [
        _reading(one, "taken" if one.path in taken else "", why if one.path in paths else _OTHER)
        for one in traces.files
    ]


def person_files(traces: Traces, output: bytes, lost: str) -> list[FileReading]:
    """Return what became of each file that a person's own run left, for the group's run to read.

    Args:
        traces: What was seen of the run.
        output: The run's output message: the archive of the files that were taken.
        lost: Why there is no output at all, if there is none.

    Returns:
        A reading for each listed file.
    """
    why = lost if not output else "it cannot be read, or its name has unusual characters"
    return [
        _reading(one, _FOR_GROUP if record(FILE, one.path, one.size) in output else "", why)
        for one in traces.files
    ]


def _reading(file: LeftFile, taken: str, why: str) -> FileReading:
    """Return that a file was taken, as it says, or why not: by its kind, or else by `why`."""
    if file.kind == "folder" and why == _OTHER:
        return FileReading(file.name, file.size, False, "a folder that cannot be read")
    is_taken = file.kind == "file" and not file.is_cut and taken != ""
    says = taken if is_taken else f"not taken: {_NO_FILE.get(file.kind, why)}"
    return FileReading(file.name, file.size, is_taken, says)


def escaped(text: str) -> str:
    """Return a text whose unprintable characters are escaped, so that it is one harmless line."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shell_text(command: _Command) -> str:
    return " ".join(map(_quoted, command.arguments)) + " ..." * command.is_cut


def _quoted(argument: str) -> str:
    """Quote an argument as a shell does; as `$'...'` if it has unprintable characters."""
    if argument.isprintable():
        return shlex.quote(argument)
    return "$'" + escaped(argument.replace("\\", "\\\\").replace("'", "\\'")) + "'"
