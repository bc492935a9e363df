"""Acts that wait at once are done together, and each is told its own ending."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sfumato.dp.refusal import Bug
from sfumato.system.group_commit import MAX_BATCH, GroupCommit, Outcome
from support import ledger_stores

WAIT_S = 20


class Written:
    """A place where acts are written: it says which were written in one go, and can be held."""

    def __init__(self) -> None:
        self.goes: list[list[str]] = []
        self.gate = threading.Event()
        self.is_entered = threading.Event()
        self.queue: GroupCommit[str, str] = GroupCommit(self.alone, self.several)

    def alone(self, act: str) -> str:
        self.goes.append([act])
        if act == "first":
            self.is_entered.set()
            assert self.gate.wait(WAIT_S)
        return f"{act} alone"

    def several(self, acts: Sequence[str]) -> Sequence[Outcome[str]] | None:
        self.goes.append(list(acts))
        if "undo" in acts:
            return None
        if "break" in acts:
            raise OSError
        return [Outcome(error=Bug(act)) if act == "refused" else Outcome(act) for act in acts]


def _held(written: Written, acts: Sequence[str]) -> list[Future[str]]:
    """Let the acts wait, in their order, behind one that takes its time; then let it end."""
    with ThreadPoolExecutor(len(acts) + 1) as pool:
        first = pool.submit(written.queue.run, "first")
        assert written.is_entered.wait(WAIT_S)
        told = []
        for place, act in enumerate(acts):
            told.append(pool.submit(written.queue.run, act))
            _wait_for(written, place + 1)
        written.gate.set()
        assert first.result(WAIT_S) == "first alone"
    return told


def _wait_for(written: Written, waiting: int) -> None:
    until = time.monotonic() + WAIT_S
    while len(written.queue._queue) < waiting:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_acts_that_wait_are_written_in_one_go_and_in_order() -> None:
    written = Written()
    told = _held(written, ["a", "b", "c", "d"])
    assert written.goes == [["first"], ["a", "b", "c", "d"]]
    assert [one.result() for one in told] == ["a", "b", "c", "d"]


def test_a_refusal_is_told_to_its_own_act_alone() -> None:
    told = _held(Written(), ["a", "refused", "c"])
    assert [one.exception() is None for one in told] == [True, False, True]
    assert str(told[1].exception()) == "refused"


def test_what_was_undone_is_done_by_each_alone() -> None:
    written = Written()
    told = _held(written, ["a", "undo", "c"])
    assert [one.result() for one in told] == ["a alone", "undo alone", "c alone"]
    assert sorted(map(tuple, written.goes[2:])) == [("a",), ("c",), ("undo",)]


def test_what_breaks_off_is_heard_by_its_leader_and_the_others_go_on() -> None:
    told = _held(Written(), ["a", "break", "c"])
    assert isinstance(told[0].exception(), OSError)
    assert [one.result() for one in told[1:]] == ["break alone", "c alone"]


def test_no_go_is_larger_than_it_may_be() -> None:
    written = Written()
    told = _held(written, [str(n) for n in range(MAX_BATCH + 3)])
    assert [len(go) for go in written.goes] == [1, MAX_BATCH, 3]
    assert [one.result() for one in told] == [str(n) for n in range(MAX_BATCH + 3)]


def test_whoever_gives_up_waiting_holds_up_nobody() -> None:
    written = Written()

    def give_up(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(written.queue.run, "first")
        assert written.is_entered.wait(WAIT_S)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(TimeoutError):
            written.queue.run("mine")
        signal.signal(signal.SIGALRM, before)
        later = pool.submit(written.queue.run, "later")
        _wait_for(written, 1)
        written.gate.set()
        assert later.result(WAIT_S) == "later alone"
    assert written.goes == [["first"], ["later"]]


def test_a_forked_child_does_not_wait_for_the_parents_leader() -> None:
    written = Written()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(written.queue.run, "first")
        assert written.is_entered.wait(WAIT_S)
        child = ledger_stores.start_child(lambda: written.queue.run("in the child"))
        until = time.monotonic() + WAIT_S
        while not ledger_stores.has_ended(child) and time.monotonic() < until:
            time.sleep(0.01)
        if not ledger_stores.has_ended(child):
            os.kill(child, signal.SIGKILL)
        written.gate.set()
    assert ledger_stores.exit_code(child) == 0


def test_nobody_of_a_go_is_told_before_what_belongs_to_all_of_it_is_done() -> None:
    written, gate, is_begun = Written(), threading.Event(), threading.Event()

    def before_wake() -> None:
        is_begun.set()
        assert gate.wait(WAIT_S)

    written.queue = GroupCommit(written.alone, written.several, before_wake)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(written.queue.run, "first")
        assert written.is_entered.wait(WAIT_S)
        told = []
        for place, act in enumerate(("a", "b")):
            told.append(pool.submit(written.queue.run, act))
            _wait_for(written, place + 1)
        written.gate.set()
        assert is_begun.wait(WAIT_S)
        later = pool.submit(written.queue.run, "later")
        assert later.result(WAIT_S) == "later alone"  # the next lead meanwhile
        assert not any(one.done() for one in told)
        gate.set()
        assert [one.result(WAIT_S) for one in told] == ["a", "b"]
