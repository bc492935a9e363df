"""The processes of a site that hold callers' tensors: how many there are, and when they end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated.tensors.tensor_messages import decode, encode  # noqa: E402
from sfumato.features.federated.tensors.tensor_processes import RoomLimits, TensorProcesses  # noqa: E402

ADA = ("ada", "1")


@contextmanager
def rooms_of(**limits: Any) -> Iterator[TensorProcesses]:
    """Rooms with these limits, ended with the block."""
    rooms = TensorProcesses(RoomLimits(**limits))
    try:
        yield rooms
    finally:
        rooms.close()


def say(rooms: TensorProcesses, number: int, **words: Any) -> Any:
    header = {"session": "s", "number": number, "more": False, "table": None}
    return decode(rooms.say(ADA, header, encode(words)))


def until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, for as long as the busiest machine may take."""
    end = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_is_asked_nothing_ends_and_its_caller_gets_another() -> None:
    with rooms_of(idle_s=2.0) as rooms:
        key = say(rooms, 1, do="put", value=torch.ones(1))["said"]["key"]
        process = rooms._open[ADA]
        until(lambda: not process.is_alive())
        assert say(rooms, 2, do="get", key=key.key)["refused"][0] == "remote-unknown"
        assert rooms._open[ADA] is not process


def test_a_process_that_does_not_answer_is_ended() -> None:
    with rooms_of(answer_s=2.0) as rooms:
        say(rooms, 1, do="list")
        process = rooms._open[ADA]
        os.kill(process._process.pid, signal.SIGSTOP)
        with pytest.raises(Refused, match=r"remote-refused.*All its tensors are gone"):
            say(rooms, 2, do="list")
        assert not process.is_alive()
        assert rooms._open == {}


def test_what_is_saved_for_gradients_takes_no_more_than_the_owner_lets_it() -> None:
    """A graph holds what no object does any more; then the process ends, and not the machine."""
    with rooms_of(memory_mb=16) as rooms:
        key = say(rooms, 1, do="put", value=torch.zeros(1 << 18, requires_grad=True))["said"]["key"]
        process = rooms._open[ADA]._process.pid
        begun, grown = _resident_mb(process), [0.0]
        with pytest.raises(Refused, match="remote-refused"):
            _deepen(rooms, key, lambda: grown.append(_resident_mb(process) - begun))
        assert max(grown) < 5 * 16


def _deepen(rooms: TensorProcesses, key: Any, look: Callable[[], None]) -> None:
    """Compute with what was computed, a megabyte a time, and drop what stands before it."""
    old: list[str] = []
    for number in range(2, 400):
        look()
        words = {"do": "call", "name": "tanh", "args": (key,), "named": {}, "dropped": old}
        told = say(rooms, number, **words)
        if "refused" in told:
            raise Refused(*told["refused"])
        old, key = [key.key], told["said"]["key"]


def _resident_mb(process: int) -> float:
    with open(f"/proc/{process}/statm", encoding="ascii") as told:
        return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_there_are_so_many_of_all_and_fewer_of_one_user() -> None:
    with rooms_of(rooms=3) as rooms:
        for caller in (ADA, ("ada", "2"), ADA, ("eve", "3")):
            rooms._room(caller)
        for caller in (("ada", "4"), ("eve", "5")):
            with pytest.raises(Refused, match="too-many"):
                rooms._room(caller)
        assert len(rooms._open) == 3
    with rooms_of(rooms=9) as rooms:
        for token in "12":
            rooms._room(("ada", token))
        with pytest.raises(Refused, match="too-many"):
            rooms._room(("ada", "3"))
