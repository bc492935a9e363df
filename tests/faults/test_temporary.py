"""Temporary folders of processes that are killed are swept; nobody else's is touched."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sfumato
from sfumato.app.processes import Serving, _heard, _Supervisor
from sfumato.dp.refusal import Refused
from sfumato.system.temporary_folders import PREFIX, sweep, temporary_folder
from support.small_vaults import make_vault

HOLD = """
import sys
from sfumato.system.temporary_folders import TemporaryFolder
made = TemporaryFolder()
(made.path / "inner").mkdir()
(made.path / "inner" / "rows").write_text("ann")
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a temporary directory of this test alone; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


@pytest.fixture
def holder() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Return a process that holds a temporary folder, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_the_folder_of_a_killed_process_is_swept_by_the_next_and_a_living_ones_stays(
    holder: tuple[subprocess.Popen[str], Path],
) -> None:
    process, place = holder
    with temporary_folder():
        assert (place / "inner" / "rows").exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (place / "inner" / "rows").exists()
    with temporary_folder() as mine:
        assert not place.exists()
        assert list(mine.parent.iterdir()) == [mine]
    assert list(mine.parent.iterdir()) == []


def test_opening_a_vault_sweeps_what_a_killed_service_has_left(
    tmp_path: Path, temporary: Path
) -> None:
    made = make_vault(tmp_path)
    command = [
        sys.executable,
        "-c",
        "from sfumato.app.command_line import main; main()",
        "serve",
        "--port",
        "0",
    ]
    keeper = subprocess.Popen(
        [*command, "--vault", str(made)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert keeper.stderr is not None
    assert "serves" in keeper.stderr.readline()
    (left,) = temporary.glob(f"{PREFIX}*")
    keeper.kill()
    keeper.communicate()  # the door and the edge hold its standard error: they have ended
    assert left.exists()
    with sfumato.open(made):
        assert not left.exists()


def test_a_sweep_follows_no_link_waits_for_nothing_and_leaves_other_names(
    tmp_path: Path, temporary: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "rows").write_text("ann")
    (temporary / f"{PREFIX}link").symlink_to(victim)
    os.mkfifo(temporary / f"{PREFIX}fifo")
    (temporary / f"{PREFIX}file").write_text("x")
    (temporary / "sfumato-0123").mkdir()  # of an earlier version: nobody can know whether it lives
    left = temporary / f"{PREFIX}left"
    (left / "inner").mkdir(parents=True)
    (left / "link").symlink_to(victim)
    (left / "inner" / "link").symlink_to(victim)
    sweep()
    assert not left.exists()
    assert (victim / "rows").read_text() == "ann"
    assert {one.name for one in temporary.iterdir()} == {
        f"{PREFIX}link", f"{PREFIX}fifo", f"{PREFIX}file", "sfumato-0123",
    }  # fmt: skip


def test_a_sweep_leaves_the_folders_of_other_users(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = temporary / f"{PREFIX}left"
    left.mkdir()
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    sweep()
    assert left.exists()
    monkeypatch.undo()
    sweep(above=temporary)
    assert not left.exists()


def test_many_who_make_and_sweep_at_once_keep_their_own(temporary: Path) -> None:
    failed: list[Path] = []

    def make() -> None:
        for _ in range(40):
            with temporary_folder() as place:
                (place / "rows").write_text("x")
                if not (place / "rows").exists():
                    failed.append(place)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert list(temporary.iterdir()) == []


# --- a service whose child never says that it is ready --------------------------------------------

SILENT = [sys.executable, "-c", "import time; time.sleep(20)"]


def open_socket() -> socket.socket:
    return socket.socket()


def silent() -> subprocess.Popen[bytes]:
    return subprocess.Popen(SILENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_child_that_never_says_that_it_is_ready_is_not_waited_for_for_ever() -> None:
    process = silent()
    try:
        with pytest.raises(Refused) as refused:
            _heard(process, threading.Event(), 0.1)
        assert refused.value.code == "service-down"
        assert process.poll() is None  # it hung, and had not ended
    finally:
        process.kill()
        process.communicate()


def test_a_service_that_is_told_to_stop_while_it_starts_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    begun = [silent(), silent()]
    made = _Supervisor(Serving("v"), tmp_path / "door", open_socket(), said.append)

    def started(what: str) -> subprocess.Popen[bytes]:
        if what == "edge":
            os.kill(os.getpid(), signal.SIGTERM)  # the handlers are there by now
        return begun[what == "edge"]

    monkeypatch.setattr(made, "_started", started)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        made.run()
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert said == []
    assert all(one.returncode is not None for one in begun)
    assert {one.returncode for one in begun} == {-signal.SIGTERM}  # none came to its own end
