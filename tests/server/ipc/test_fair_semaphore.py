"""Places are handed on in order, threads give back what was raised, JSON is the same both ways."""

from __future__ import annotations

import asyncio
import json
import threading
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Bug
from sfumato.server.ipc.fair_semaphore import FairSemaphore, Limit
from sfumato.server.ipc.worker_threads import Threads
from sfumato.wire.json_text import _spelled, json_text

texts = st.text(max_size=5)
numbers = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.fractions(),
    st.decimals(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), texts, numbers),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(texts, inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(values)
def test_the_quick_way_writes_what_the_slow_one_does(value: object) -> None:
    assert json_text(value) == _spelled(value)


def test_a_decimal_and_a_fraction_are_written_exactly() -> None:
    assert json_text({"a": Fraction(1, 3)}) == '{"a": "1/3"}'
    assert json_text([Fraction(1, 3), Decimal("0.10")]) == '["1/3", 0.10]'


@pytest.mark.parametrize("value", [float("nan"), Decimal("NaN"), [float("inf")], {"a": b""}])
def test_what_is_no_json_is_written_nowhere(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        json_text(value)
    assert json.loads(json_text({"a": [1]})) == {"a": [1]}


async def _hold(
    turns: FairSemaphore, user: str, name: str, order: list[str], end: asyncio.Event
) -> None:
    async with turns.turn(user):
        order.append(name)
        await end.wait()


async def _soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_places_are_handed_on_in_the_order_of_coming() -> None:
    async def run() -> list[str]:
        turns, order = FairSemaphore(Limit(1, 1)), list[str]()
        ends = {name: asyncio.Event() for name in "abcd"}
        tasks = [
            asyncio.create_task(_hold(turns, name, name, order, ends[name])) for name in "abcd"
        ]
        await _soon()
        tasks[1].cancel()  # who gives up waits no more
        for name in "acd":
            assert order[-1] == name
            ends[name].set()
            await _soon()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(run()) == ["a", "c", "d"]


def test_a_place_that_was_handed_to_somebody_who_is_gone_goes_on() -> None:
    async def run() -> list[str]:
        turns, order = FairSemaphore(Limit(1, 1)), list[str]()
        ends = {name: asyncio.Event() for name in "abc"}
        tasks = [asyncio.create_task(_hold(turns, n, n, order, ends[n])) for n in "abc"]
        await _soon()
        ends["a"].set()
        while tasks[0] not in asyncio.all_tasks() or not tasks[0].done():
            await asyncio.sleep(0)
            if not turns._queue or turns._queue[0].user != "b":
                break
        tasks[1].cancel()  # the place is theirs already, and they have not come for it
        await _soon()
        ends["b"].set()
        ends["c"].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(run())[-1] == "c"


def test_one_user_is_passed_over_and_another_is_let_in() -> None:
    async def run() -> list[str]:
        turns, order, end = FairSemaphore(Limit(2, 1)), list[str](), asyncio.Event()
        tasks = [
            asyncio.create_task(_hold(turns, user, f"{user}{place}", order, end))
            for place, user in enumerate(["ada", "ada", "bob"])
        ]
        await _soon()
        before = list(order)
        end.set()
        await asyncio.gather(*tasks)
        return before

    assert asyncio.run(run()) == ["ada0", "bob2"]


def test_what_a_thread_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("mine")

    async def run() -> int:
        threads = Threads(2, "test")
        with pytest.raises(KeyError, match="mine"):
            await threads.done(fail)
        return await threads.done(max, 3, 4)

    assert asyncio.run(run()) == 4


def test_what_no_future_takes_is_raised_too() -> None:
    async def run() -> None:
        with pytest.raises(Bug):
            await asyncio.wait_for(Threads(1, "test").done(next, iter(())), 20)

    asyncio.run(run())


def test_whoever_waits_no_more_spoils_no_thread() -> None:
    async def run() -> str:
        threads, gate = Threads(1, "test"), threading.Event()
        waiting = asyncio.create_task(threads.done(gate.wait, 20))
        await _soon()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.set()
        return await threads.done(str, "still here")

    assert asyncio.run(run()) == "still here"


def test_no_more_threads_work_than_there_may_be() -> None:
    async def run() -> set[str]:
        threads, both = Threads(2, "test"), threading.Barrier(2)

        def name() -> str:
            both.wait(20)
            return threading.current_thread().name

        return set(await asyncio.gather(*(threads.done(name) for _ in range(10))))

    assert asyncio.run(run()) == {"test 1", "test 2"}
