"""Traces of a trial: untrusted text is quoted, and each file says what became of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from sfumato.sandbox import trial_observer
from sfumato.sandbox.ports import TrialResult
from sfumato.sandbox.program_traces import (
    MAX_OBSERVED,
    LeftFile,
    Traces,
    read_traces,
)
from sfumato.sandbox.trial_observer import LONGEST, MOST, Observer
from sfumato.vault.folder_archive_format import FILE, whole

ARGUMENTS = (
    ["sort", "-n"], ["echo", "a b", "", "$HOME", "it's"], ["sed", "s/a\\b/c/", "x\ny\t\x1b[31m"],
    ["printf", "\u202eabc", "\u2028", "q'\n\\"], ["<script>alert(1)</script>"],
)  # fmt: skip


def text_of(arguments: list[str], *, is_cut: bool = False) -> str:
    said = {"commands": [{"arguments": arguments, "is_cut": is_cut, "times": 2}]}
    (command,) = read_traces(json.dumps(said).encode()).commands
    assert command.times == 2
    return command.text


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_a_command_is_shown_as_a_shell_reads_it_and_as_one_line(arguments: list[str]) -> None:
    text = text_of(arguments)
    assert text.isprintable()
    told = ["bash", "-c", f"printf '%s\\0' {text}"]
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(told, capture_output=True, check=True, env=environment)
    assert ran.stdout.decode().split("\0")[:-1] == arguments


def test_a_cut_command_says_so() -> None:
    assert text_of(["sort", "-"], is_cut=True) == "sort - ..."
    assert shlex.split(text_of(["a b"])) == ["a b"]


@pytest.mark.parametrize(
    "said", [b"", b"[]", b'{"commands": [1]}', b'{"more_files": "1"}', b'{"else": 1}']
)
def test_another_message_is_none(said: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_traces(said)


def test_the_longest_message_is_within_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_observer, "TARGET", str(tmp_path))
    observer = Observer({"paths": ["answer.txt"]})
    folder = os.fsencode(tmp_path) + b"/" + b"\xff" * 200
    os.mkdir(folder)
    for place in range(1000):
        with open(folder + b"/" + b"\xff" * 200 + b"%d" % place, "w"):
            pass
        for arguments in ((b"\xff" * (LONGEST - 4), b"%d" % place), (b"%d" % place, *[b""] * 290)):
            observer.add((arguments, True))
    observer.add(None)
    said = observer.seen()
    assert len(said) < MAX_OBSERVED / 4
    traces = read_traces(said)
    assert (len(traces.commands), traces.more_commands) == (MOST, 2000 - MOST)
    assert (len(traces.files), traces.more_files) == (MOST, 1000 - MOST)
    assert all(one.name.isprintable() and one.is_cut for one in traces.files)


def result(files: tuple[LeftFile, ...], output: bytes = b"", ended: str = "exited") -> TrialResult:
    return TrialResult(output, ended, 0, traces=Traces(files=files))


def test_what_a_person_left_is_taken_for_the_groups_run() -> None:
    kept, link = LeftFile("a.json", "file", 2), LeftFile("b.json", "link", 2)
    named, folder = LeftFile("ä b", "file", 2), LeftFile("d", "folder", 0)
    output = whole(FILE, "a.json", b"{}") + whole(FILE, "b.json", b"{}")
    said = [one.says for one in result((kept, link, named, folder), output).person_files()]
    assert said == [
        "taken for the group's run",
        "not taken: a link, and no link is followed",
        "not taken: it cannot be read, or its name has unusual characters",
        "not taken: a folder, and a result is a file",
    ]
    (lost,) = result((kept,), ended="stopped").person_files()
    assert lost.says == "not taken: all results together have more than about 512 kB"


def test_a_functions_files_are_no_results() -> None:
    file = LeftFile("answer.json", "file", 2)
    (said,) = result((file,), b'{"answer.json": "7b7d"}').block_files(())
    assert (said.is_taken, said.says) == (False, "not taken: no output declares it")


def test_a_file_whose_path_is_cut_is_not_taken() -> None:
    file = LeftFile("a.txt", "file", 2, is_cut=True)
    (said,) = result((file,), b'{"a.txt": "31"}').block_files(("a.txt",))
    assert (said.name, said.is_taken) == ("a.txt...", False)
