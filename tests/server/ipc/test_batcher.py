"""What comes while a lane is busy is done together, and each is told their own end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from sfumato.dp.refusal import Refused
from sfumato.server.ipc.door_server import MOST, Batcher
from sfumato.server.ipc.worker_threads import Threads

WAIT_S = 60


class Doubling:
    """Work that doubles numbers once a gate is open, and remembers what came together."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.together: list[list[int]] = []

    def work(self, items: Sequence[int]) -> list[int | Refused]:
        self.together.append(list(items))
        assert self.gate.wait(WAIT_S)
        if 13 in items:
            raise KeyError("thirteen")
        if 99 in items:
            raise Refused("service-down", "The disk is full.", "Wait.")
        return [2 * one if one else Refused("bad-request", "None.", "Give one.") for one in items]


def ended(*groups: Sequence[int]) -> tuple[list[object], list[list[int]]]:
    """Return how each item ended, where the groups came one after another to a busy lane."""

    async def run() -> list[object]:
        lane = Batcher(done.work, Threads(1, "lane"))
        tasks: list[asyncio.Task[int]] = []
        for group in groups:
            tasks += [asyncio.create_task(lane.done(one)) for one in group]
            for _ in range(5):
                await asyncio.sleep(0)
        done.gate.set()
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)
        return list(found)

    done = Doubling()
    return asyncio.run(run()), done.together


def test_what_comes_while_it_is_busy_is_done_in_one_go() -> None:
    given, together = ended([1], [2, 3], [4])
    assert given == [2, 4, 6, 8]
    assert together == [[1], [2, 3, 4]]


def test_a_refusal_is_ones_own() -> None:
    given, together = ended([1], [2, 0, 3])
    assert [given[0], given[1], given[3]] == [2, 4, 6]
    assert isinstance(given[2], Refused)
    assert len(together) == 2


def test_a_fault_is_its_bringers_and_nobody_elses() -> None:
    given, together = ended([1], [2, 13, 3])
    assert [given[0], given[1], given[3]] == [2, 4, 6]
    assert isinstance(given[2], KeyError)
    assert together == [[1], [2, 13, 3], [2], [13], [3]]


def test_a_refusal_of_all_is_told_to_all_and_not_tried_again() -> None:
    given, together = ended([1], [99, 3])
    assert given[0] == 2
    assert [getattr(one, "code", None) for one in given[1:]] == ["service-down"] * 2
    assert len(together) == 2


def test_no_more_than_so_many_are_in_one_go() -> None:
    _, together = ended([1], [2] * (MOST + 1))
    assert [len(some) for some in together] == [1, MOST, 1]


def test_whoever_waits_no_more_spoils_nobodys_turn() -> None:
    async def run() -> tuple[int, list[list[int]]]:
        done = Doubling()
        lane = Batcher(done.work, Threads(1, "lane"))
        first = asyncio.create_task(lane.done(1))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        done.gate.set()
        return await asyncio.wait_for(lane.done(5), WAIT_S), done.together

    assert asyncio.run(run())[0] == 10


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_goes_at_once_as_threads(threads: int) -> None:
    async def run() -> int:
        both = threading.Barrier(threads)

        def work(items: Sequence[int]) -> list[int | Refused]:
            both.wait(WAIT_S)
            return list(items)

        lane = Batcher(work, Threads(threads, "lane"))
        tasks = []
        for one in range(threads):
            tasks.append(asyncio.create_task(lane.done(one)))
            for _ in range(3):
                await asyncio.sleep(0)
        return sum(await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S))

    assert asyncio.run(run()) == sum(range(threads))


def late_ones(late_s: float | None, most: int = 1) -> list[list[int]]:
    """Return what was begun of three that came at once, while the first of them takes long."""
    gate = threading.Event()
    begun: list[list[int]] = []

    def work(items: Sequence[int]) -> list[int]:
        begun.append(list(items))
        if 1 in items:
            assert gate.wait(WAIT_S)
        return list(items)

    async def run() -> None:
        lane = Batcher(work, Threads(8, "lane"), most=most, late_s=late_s)
        tasks = [asyncio.create_task(lane.done(one)) for one in (1, 2, 3)]
        if late_s is None or most > 1:
            gate.set()
        else:
            await asyncio.wait_for(asyncio.gather(*tasks[1:]), WAIT_S)  # the first is still at work
            assert not tasks[0].done()
            gate.set()
        await asyncio.wait_for(asyncio.gather(*tasks), WAIT_S)

    asyncio.run(run())
    return begun


def test_who_is_late_holds_up_nobody() -> None:
    assert sorted(late_ones(0.01)) == [[1], [2], [3]]


def test_no_more_lie_in_one_go_than_it_takes() -> None:
    assert late_ones(60.0, most=2) == [[1, 2], [3]]


def test_one_is_at_work_until_it_is_late() -> None:
    together = 0
    most = 0

    def work(items: Sequence[int]) -> list[int]:
        nonlocal together, most
        together += 1
        most = max(most, together)
        threading.Event().wait(0.01)
        together -= 1
        return list(items)

    async def run() -> None:
        lane = Batcher(work, Threads(8, "lane"), most=1, late_s=WAIT_S)
        await asyncio.gather(*(lane.done(one) for one in range(10)))

    asyncio.run(run())
    assert most == 1
