"""What ended a worker: its own limit or fault, or the host, by signals that no row can move."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sfumato.engines.duckdb import engine as engine_module
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared import exit_causes
from sfumato.engines.shared import worker_process as child_module
from sfumato.engines.shared.cell_assembly import Layout
from sfumato.engines.shared.driver_process import DriverHandle
from sfumato.engines.shared.exit_causes import cause_of, oom_kills
from sfumato.engines.shared.worker_process import Child
from sfumato.query.measure import Measure, Tally
from sfumato.query.printing.statements import Statement
from sfumato.vault.engine_port import MEMORY, SIGNAL, START, EngineLost, EngineStopped
from support.engine_rows import SALT, answers, card_of, prepare, write_source
from support.process_tree import waited

ROWS = Measure(None, (), (Tally("rows"),), False, 1, 1)
ENDLESS = (
    "SELECT 0 AS cell, count(*) AS t0"
    " FROM range(1000000) a(i), range(1000000) b(j), range(1000) c(k) WHERE (i * j + k) % 7 = 3"
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("deaths")
    source = write_source(folder / "s.csv", ["t", "z"], [[f"t{i}", "1"] for i in range(7)])
    with closing(DuckDBEngine(SALT, threads=1)) as engine:
        made, _ = prepare(engine, source, card_of("row", {"t": {"type": "text"}}))
    return made


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine(SALT, memory_mb=512, threads=1, deadline_s=60)) as made:
        yield made


def ended_by(
    number: int, engine: DuckDBEngine, table: str, patched: pytest.MonkeyPatch
) -> EngineStopped:
    """Return what is raised when that signal ends the worker in the middle of a reading."""
    patched.setattr(engine_module, "lower", lambda *_: (Statement(ENDLESS, (), (0,)),))
    answers_to = threading.Event()

    def end() -> None:
        answers_to.wait(30)
        pid = engine.worker_pid()
        assert pid is not None
        waited(lambda: _is_busy(pid))
        os.kill(pid, number)

    thread = threading.Thread(target=end)
    thread.start()
    ask = Child.ask

    def asked(child: Child, header: dict[str, object], deadline_s: float) -> object:
        if header.get("do") == "measure":
            answers_to.set()
        return ask(child, header, deadline_s)

    patched.setattr(Child, "ask", asked)
    with pytest.raises(EngineStopped) as stopped:
        engine.measure(table, ROWS)
    thread.join(30)
    assert (stopped.value.__context__, stopped.value.__cause__) == (None, None)
    assert str(stopped.value) == str(EngineStopped())
    return stopped.value


def _is_busy(pid: int) -> bool:
    """Say whether the process has used a tenth of a second since it was last looked at."""
    used = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    before, _USED[pid] = _USED.get(pid, used), used
    return used > before


_USED: dict[int, int] = {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_somebody_ends_over_a_question_is_lost(
    monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine, table: str, number: int
) -> None:
    with monkeypatch.context() as patched:
        error = ended_by(number, engine, table, patched)
    assert isinstance(error, EngineLost)
    assert error.cause == SIGNAL
    assert answers(engine, table, ROWS) == [[7]]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL])
def test_a_worker_that_crashes_is_not_the_hosts_doing(
    monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine, table: str, number: int
) -> None:
    with monkeypatch.context() as patched:
        assert type(ended_by(number, engine, table, patched)) is EngineStopped


def test_a_kill_while_the_kernel_counts_one_for_want_of_memory_is_called_so(
    monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine, table: str
) -> None:
    counts = iter([4, 4, 5])  # the worker began; and ended
    with monkeypatch.context() as patched:
        patched.setattr(child_module, "oom_kills", lambda: next(counts, 5))
        assert answers(engine, table, ROWS) == [[7]]
        engine.close()
        error = ended_by(signal.SIGKILL, engine, table, patched)
    assert isinstance(error, EngineLost)
    assert error.cause == MEMORY


def test_its_own_deadline_is_no_death_of_the_hosts(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    statement = Statement(ENDLESS, (), (0,))
    with (
        closing(DuckDBEngine(SALT, memory_mb=512, threads=1, deadline_s=0.5)) as engine,
        monkeypatch.context() as patched,
    ):
        patched.setattr(engine_module, "lower", lambda *_: (statement,))
        with pytest.raises(EngineStopped) as stopped:
            engine.measure(table, ROWS)
    assert type(stopped.value) is EngineStopped


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false", "/bin/true"])
def test_a_worker_that_never_began_has_read_no_row(
    monkeypatch: pytest.MonkeyPatch, table: str, python: str
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with closing(DuckDBEngine(SALT)) as engine, pytest.raises(EngineLost) as lost:
        engine.measure(table, ROWS)
    assert lost.value.cause == START
    assert lost.value.__context__ is None
    with closing(DriverHandle("postgres.worker", {})) as held, pytest.raises(EngineLost) as lost:
        held.measure({"do": "measure"}, Layout(1, 0, (0,)), 5)
    assert lost.value.cause == START


def test_a_worker_that_is_gone_is_asked_nothing_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The numbers of its pipes belong to other files by then."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    child = Child()
    child.begin({}, 5)
    assert child.lost == START
    theirs = [(tmp_path / f"{n}").open("wb") for n in range(8)]
    assert child.ask({"do": "measure"}, 5) is None
    child.begin({"salt": "a secret"}, 5)
    for file in theirs:
        file.close()
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b""] * 8


@pytest.mark.parametrize(
    ("number", "before", "after", "cause"),
    [
        (signal.SIGKILL, 3, 3, SIGNAL),
        (signal.SIGKILL, 3, 4, MEMORY),
        (signal.SIGKILL, None, 4, MEMORY),  # nobody counts: it may have been for want of memory
        (signal.SIGKILL, 3, None, MEMORY),
        (signal.SIGKILL, None, None, MEMORY),
        (signal.SIGTERM, None, None, SIGNAL),
        (signal.SIGSEGV, 3, 3, None),
        (signal.SIGXCPU, 3, 3, None),
        (signal.SIGSYS, 3, 3, None),
        (signal.SIGUSR1, 3, 3, None),  # unknown is its own doing
        (None, 3, 4, None),  # it ended by itself
    ],
)
def test_what_is_not_known_to_be_the_hosts_is_the_questions(
    number: int | None, before: int | None, after: int | None, cause: str | None
) -> None:
    assert cause_of(number, before, after) == cause


@pytest.mark.parametrize(
    ("own", "place", "text"),
    [
        ("0::/a/b\n", "a/b/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 9\n"),
        ("4:cpu,memory:/c\n0::/\n", "memory/c/memory.oom_control", "under_oom 0\noom_kill 2\n"),
    ],
)
def test_the_kernels_counts_are_read_of_either_kind_of_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str, place: str, text: str
) -> None:
    for name, said in (("vmstat", "nr_free 1\noom_kill 40\n"), ("own", own), (place, text)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(said)
    monkeypatch.setattr(exit_causes, "_MACHINE", tmp_path / "vmstat")
    monkeypatch.setattr(exit_causes, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(exit_causes, "_GROUPS", tmp_path)
    assert oom_kills() == 42
    monkeypatch.setattr(exit_causes, "_OWN_GROUPS", tmp_path / "none")
    assert oom_kills() == 40
    monkeypatch.setattr(exit_causes, "_MACHINE", tmp_path / "none")
    assert oom_kills() is None


def test_a_worker_is_ended_before_the_door_where_memory_ends(
    engine: DuckDBEngine, table: str
) -> None:
    assert answers(engine, table, ROWS) == [[7]]
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(Path(f"/proc/{engine.worker_pid()}/oom_score_adj").read_text()) == 500 > ours
