"""A worker that nobody asks is let go, and no question is cut off for it."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sfumato.engines.duckdb import engine as engine_module
from sfumato.engines.duckdb.engine import DuckDBEngine, Limits
from sfumato.query.measure import Measure, Tally
from sfumato.query.printing.statements import Statement
from support.engine_rows import SALT, answers, card_of, prepare, write_source

ROWS = Measure(None, (), (Tally("rows"),), False, 1, 1)
# longer than a worker may be idle in the test; nothing is known of it beforehand
SLOW = (
    "SELECT 0 AS cell, count(*) AS t0 FROM range(4000) a(i), range(2000) b(j) WHERE sin(i * j) <= 2"
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = write_source(tmp_path_factory.mktemp("idle") / "s.csv", ["t"], [["a"]] * 7)
    engine = DuckDBEngine(SALT, threads=1)
    made, _ = prepare(engine, source, card_of("row", {"t": {"type": "text"}}))
    engine.close()
    return made


def until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, for as long as the busiest machine may take."""
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(process: Path) -> bool:
    return not process.exists()


def test_a_worker_that_is_asked_nothing_is_let_go_and_another_answers(table: str) -> None:
    engine = DuckDBEngine(SALT, threads=1, idle_s=0.2)
    try:
        for _ in range(2):
            assert answers(engine, table, ROWS) == [[7]]
            process = Path(f"/proc/{engine.worker_pid()}")
            until(partial(is_gone, process))  # not as a zombie either
            assert engine.worker_pid() is None
    finally:
        engine.close()


def test_a_question_that_takes_longer_than_that_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Else it would be charged, and its shape frozen, for nothing (soundness rule 13)."""
    engine = DuckDBEngine(SALT, threads=1, idle_s=0.05)
    try:
        assert answers(engine, table, ROWS) == [[7]]
        monkeypatch.setattr(engine_module, "lower", lambda *_: (Statement(SLOW, (), (0,)),))
        assert answers(engine, table, ROWS) == [[8_000_000]]
    finally:
        engine.close()


def test_it_is_the_last_question_that_counts(table: str) -> None:
    engine = DuckDBEngine(SALT, threads=1, idle_s=3600)
    try:
        answers(engine, table, ROWS)
        pid = engine.worker_pid()
        engine._rest()  # as if an earlier time were over
        assert engine.worker_pid() == pid
        assert answers(engine, table, ROWS) == [[7]]
        engine._idle._used -= 3600
        engine._rest()
        assert engine.worker_pid() is None
    finally:
        engine.close()


def test_where_no_thread_can_be_had_the_answer_is_told_and_the_next_question_counts(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """It is paid for: that nobody can wait for the worker's end is no reason to lose it."""

    def no_thread(_timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    engine = DuckDBEngine(SALT, threads=1, idle_s=0.2)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Timer, "start", no_thread)
            assert answers(engine, table, ROWS) == [[7]]
        assert answers(engine, table, ROWS) == [[7]]
        until(lambda: engine.worker_pid() is None)
    finally:
        engine.close()


def test_whoever_counts_keeps_no_engine_alive(table: str) -> None:
    engine = DuckDBEngine(SALT, threads=1, idle_s=3600)
    answers(engine, table, ROWS)
    engine._end_worker()
    seen = weakref.ref(engine)
    del engine
    gc.collect()
    assert seen() is None


def test_the_time_is_the_same_for_everybody() -> None:
    assert Limits().idle_s == 300
