"""A worker that the tests have forked is what the house starts: sealed off, killable, alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.measure import Measure, Tally
from sfumato.system import child_process
from support import warm_workers
from support.engine_rows import SALT, answers, card_of, prepare, write_source
from support.process_tree import is_there, waited

ROWS = Measure(None, (), (Tally("rows"),), False, 1, 1)
SAME = ("Umask", "Groups", "NoNewPrivs", "Seccomp", "SigIgn", "SigCgt", "SigBlk")  # of its status


@pytest.fixture(
    params=[warm_workers.warm, warm_workers.within, warm_workers.cold],
    ids=["warm", "within", "cold"],
)
def way(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Have workers begin in one of the three ways."""
    begin: Callable[[], None] = request.param
    begin()
    yield begin
    warm_workers.warm()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("warm")
    source = write_source(folder / "s.csv", ["t"], [["a"]] * 7)
    engine = DuckDBEngine(SALT, threads=1)
    made, _ = prepare(engine, source, card_of("row", {"t": {"type": "text"}}))
    engine.close()
    return made


def asked(table: str) -> tuple[DuckDBEngine, Path]:
    """Return an engine whose worker has answered, and what /proc has of it."""
    engine = DuckDBEngine(SALT, memory_mb=512, threads=2, deadline_s=20)
    assert answers(engine, table, ROWS) == [[7]]
    return engine, Path(f"/proc/{engine.worker_pid()}")


def seen(process: Path) -> dict[str, object]:
    """Return what can be seen of a worker from outside, but for names and numbers of its own."""
    status = dict(re.findall(r"(\w+):[ \t]*(.*)\n", (process / "status").read_text()))
    stat = (process / "stat").read_text().rpartition(")")[2].split()
    files = sorted(os.readlink(one) for one in (process / "fd").iterdir())
    return {
        **{name: status[name] for name in SAME},
        "files": [re.sub(r"\d+", "", one) for one in files],
        "folder": os.readlink(process / "cwd"),
        "limits": (process / "limits").read_text(),
        "leads": stat[2] == stat[3] == process.name,  # its group, and its session
    }


def test_a_forked_worker_is_seen_as_a_started_one_is(table: str) -> None:
    if os.geteuid() != 0:  # it is not dumpable: nobody else may look
        return
    found = {}
    for begin in (warm_workers.cold, warm_workers.warm, warm_workers.within):
        begin()
        engine, process = asked(table)
        found[begin.__name__] = seen(process)
        if begin is not warm_workers.within:  # there the environment is that of whoever forked
            assert (process / "environ").read_bytes() == b""
        assert SALT.hex().encode() not in (process / "cmdline").read_bytes()
        engine.close()
    warm_workers.warm()
    assert found["warm"] == found["cold"]
    for one in found.values():
        del one["SigCgt"]  # a fork catches what whoever forked does
    assert found["within"] == found["cold"]


def test_however_it_began_it_is_ended(way: Callable[[], None], table: str) -> None:
    engine, process = asked(table)
    os.kill(int(process.name), 9)
    assert waited(lambda: not is_there(int(process.name)))
    assert answers(engine, table, ROWS) == [[7]]
    second = engine.worker_pid()
    assert second not in (None, int(process.name))
    engine.close()
    assert not is_there(second or 0)


def test_nobody_holds_its_pipes_but_we(way: Callable[[], None]) -> None:
    child = child_process.ChildProcess("engines.duckdb.worker")
    pid = child.pid
    assert is_there(pid)
    child.let_go()
    assert waited(lambda: not is_there(pid))
    child._process.wait()


def test_a_process_is_there_until_its_last_thread_has_ended() -> None:
    """A killed worker that still ends is asked once more, under load, and does not answer."""
    left = (
        "import ctypes, sys, threading; "
        "threading.Thread(target=sys.stdin.read).start(); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", left], stdin=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/status")
        assert waited(lambda: "\nState:\tZ" in status.read_text())
        assert process.poll() is None
        assert is_there(process.pid)
        process.kill()
        assert waited(lambda: not is_there(process.pid))
        assert process.poll() is not None
