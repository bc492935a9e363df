"""Closes a stream's days and kills itself at one step of the closing; started by test_stream_kills.

The vault, its engine, ledger and files are real; only the moment of the kill is the test's.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager
from dataclasses import replace

import sfumato
from sfumato.query.measure import Cells
from sfumato.vault.engine_port import CountPeriodOrder, PeriodState, StreamEngine, StreamStates
from sfumato.vault.sealed import Sealed
from sfumato.vault.users import Caller


def die() -> None:
    """End as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """The door's engine and its kept state, until the step is reached for that day."""

    def __init__(self, engine: StreamEngine, kept: StreamStates, step: str, day: int) -> None:
        self._engine, self._kept = engine, kept
        self._step, self._day = step, day

    def _at(self, step: str, end: int) -> None:
        if (self._step, self._day) == (step, end):
            die()

    def count_period(self, order: CountPeriodOrder) -> Sealed[Cells]:
        self._at("before-counting", order.end)
        return self._engine.count_period(order)

    def lock(self, stream: str) -> AbstractContextManager[None]:
        return self._kept.lock(stream)

    def find(self, stream: str, end: int) -> PeriodState | None:
        return self._kept.find(stream, end)

    def draft(self, stream: str) -> AbstractContextManager[str]:
        return self._kept.draft(stream)

    def save(self, stream: str, end: int, draft: str, words: dict[str, object]) -> PeriodState:
        self._at("counted", end)
        made = self._kept.save(stream, end, draft, words)
        self._at("kept", end)
        return made

    def drop_before(self, stream: str, end: int) -> None:
        self._at("written", end)
        self._kept.drop_before(stream, end)


OWNER = Caller("owner", frozenset({"own"}))


def main(folder: str, step: str, day: str, until: str) -> None:
    """Close up to the day; die on the way, or print what the faces print."""
    with sfumato.open(folder) as vault:
        streams = vault.house.desk.streams
        deadly = Deadly(streams.door.engine, streams.door.kept, step, int(day))
        door = replace(streams.door, engine=deadly, kept=deadly)
        replace(streams, door=door).close(OWNER, "visits", "daily", until)


if __name__ == "__main__":
    main(*sys.argv[1:])
