"""What the tests run as `sfumato` says and ends as the command itself, and keeps nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support import command_line, warm_workers
from support.command_line import shell
from support.small_vaults import SFUMATO, make_vault, run

WORDS = [("budget", "nothing", "--json"), ("nonsense",), ("ledger", "verify")]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_forked_command_says_and_ends_as_a_typed_one(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    vault = make_vault(tmp_path)
    environment = {"PATH": os.environ["PATH"], "SFUMATO_VAULT": str(vault)}
    typed = subprocess.run(
        [*SFUMATO, *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    forked = shell(words, environment, tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        typed.returncode, typed.stdout, typed.stderr,
    )  # fmt: skip


def test_a_command_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    assert run(vault, "datasets", "--json", SFUMATO_VAULT=str(tmp_path / "no")).returncode == 3
    assert run(vault, "datasets", "--json").returncode == 0
    assert "asks the owner of a data set for access" in run(vault, "datasets").stdout


def test_a_command_has_no_home_but_the_one_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that of the process that is forked, nor that of the command before."""
    url = "http://house.invalid"  # who has a token for it is not let send it in clear text
    homes = [tmp_path / name for name in ("forked", "before", "now")]
    for home in homes[:2]:
        (home / ".config" / "sfumato").mkdir(parents=True)
        (home / ".config" / "sfumato" / "tokens.json").write_text(json.dumps({url: "sfm1_x"}))
    monkeypatch.setenv("HOME", str(homes[0]))
    monkeypatch.setattr(command_line, "_begun", [])  # a process of this test's own is forked
    words = ("sign-out", "--vault", url, "--json")
    try:
        found = [_code(shell(words, {"HOME": str(home)})) for home in homes[1:]]
        away = _code(shell(words, {}))  # no HOME at all
    finally:
        command_line._end(*command_line._begun[0])
    assert [*found, away] == ["serve-unsafe", "not-signed-in", "not-signed-in"]


def test_a_command_has_no_path_but_the_one_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "here" / "a-tool-of-this-test"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(command_line, "_begun", [])
    words = ("audit", "--command", f"{tool.name} {{data}}", "--pair", "0", "1", "--epsilon", "1")
    try:
        there = shell(words, {"PATH": str(tool.parent), "HOME": str(tmp_path)})
        gone = shell(words, {"HOME": str(tmp_path)})  # no PATH at all
    finally:
        command_line._end(*command_line._begun[0])
    assert "The command fails on both inputs" in there.stderr  # so it was run
    assert f"The program {tool.name!r}" in gone.stderr


@pytest.mark.parametrize(
    "where", [command_line._address, warm_workers.address], ids=["commands", "workers"]
)
def test_nobody_else_has_a_process_forked(where: Callable[[], str]) -> None:
    """Everybody can read where it listens, and it would do what they say, as who runs the tests."""
    if os.geteuid() != 0:  # only root can be somebody else
        return
    kind, fds = (
        (socket.SOCK_STREAM, 4) if where is command_line._address else (socket.SOCK_SEQPACKET, 2)
    )
    words = [sys.executable, "-c", _STRANGER, where()[1:], str(int(kind)), str(fds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("hung up\n", "")


_STRANGER = """
import os, socket, sys
os.setuid(65534)
line = socket.socket(socket.AF_UNIX, int(sys.argv[2]))
line.connect(chr(0) + sys.argv[1])
nothing = os.open(os.devnull, os.O_RDWR)
try:
    socket.send_fds(line, [b"."], [nothing] * int(sys.argv[3]))
    line.sendall(b"{}")
    line.shutdown(socket.SHUT_WR)
    said = line.recv(32)
except OSError:
    said = b""
print(said or "hung up")
"""


def _code(done: subprocess.CompletedProcess[str]) -> str:
    return str(json.loads(done.stdout)["refused"]["code"])
