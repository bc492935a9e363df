"""Whoever asks little does not wait for whoever asks much."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.query.measure import Cells, Measure
from sfumato.server.ipc.call_metrics import CallMetrics, to_nowhere
from sfumato.server.ipc.door_server import DoorEnd
from sfumato.server.ipc.edge_client import Answered, DoorConnection
from sfumato.server.ipc.fair_semaphore import FairSemaphore, Limit
from sfumato.vault.sealed import Sealed
from sfumato.vault.users import Caller
from support.scripted_engine import ScriptedEngine
from support.small_vaults import PATIENTS_CARD, card, make_vault, write_patients

FLOOD = 52  # two at work and fifty that wait
USERS = ("ada", "bob", "cyn")


@pytest.fixture(scope="module")
def vault() -> Iterator[OpenVault]:
    """Return a vault whose path is short enough for a socket beside it."""
    folder = Path(tempfile.mkdtemp(prefix="sf-", dir="/tmp"))
    text = PATIENTS_CARD.replace("3.0", "1000").replace("user = { epsilon = 1.0 }", "")
    with sfumato.open(make_vault(folder)) as opened:
        opened.add("patients", write_patients(folder / "p.csv"), card(text))
        for name in USERS:
            opened.enrol(name, "researchers")
        yield opened
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def tokens(vault: OpenVault) -> dict[str, str]:
    """Return a token of each user."""
    access, made = vault.house.desk.access, {}
    for name in USERS:
        link = access.invite(Caller("it", frozenset({"operate"})), name, ["researcher"])
        made[name] = str(access.take_up(str(link["invitation"]), "a word of mine", name)["token"])
    return made


class Gated(ScriptedEngine):
    """An engine that reads when it is let; it notes whose question it was."""

    def __init__(self) -> None:
        super().__init__(self._read)
        self.began: list[str] = []
        self.go = threading.Semaphore(0)

    def _read(self, measure: Measure) -> Sealed[Cells]:
        (above,) = re.findall(r"constant=.*?(\d+)", repr(measure.where)) or ["0"]
        self.began.append(USERS[int(above) // 1000 - 1])
        assert self.go.acquire(timeout=120)
        return Sealed(Cells(tuple(np.zeros(measure.cells, np.int64) for _ in measure.tallies)))


async def until(is_so: Any) -> None:  # Any: a function of nothing
    for _ in range(20_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never was so")


def test_a_third_user_is_read_next_whatever_two_have_waiting(
    vault: OpenVault, tokens: dict[str, str]
) -> None:
    engine = Gated()
    desk = vault.house.desk
    door = replace(desk.queries.door, engine=engine)
    end = DoorEnd(
        replace(desk, queries=replace(desk.queries, door=door)),
        quantum_s=0, tally=CallMetrics(to_nowhere),
    )  # fmt: skip

    async def run() -> list[Answered]:
        path, is_ready = vault.house.folder.parent / "line", asyncio.Event()
        serving = asyncio.create_task(end.serve(path, is_ready.set))
        await is_ready.wait()
        line = DoorConnection(path)

        def ask(user: str, number: int) -> asyncio.Task[Answered]:
            above = 1000 * (USERS.index(user) + 1) + number
            sql = f"SELECT SUM(age) AS s FROM patients WHERE age <> {above}"
            body = json.dumps({"sql": sql, "epsilon": 0.01, "op": f"{user}-{number}"}).encode()
            params: dict[str, object] = {"data_set": "patients"}
            call = line.call("ask", token=tokens[user], params=params, body=body)
            return asyncio.create_task(call)

        try:
            floods = [ask(user, n) for n in range(FLOOD) for user in USERS[:2]]
            await until(lambda: engine.began and end._turns.counts() == (4, 2 * FLOOD - 4))
            for number in range(2, 8):
                engine.go.release()
                await until(lambda: len(engine.began) == number)  # noqa: B023  # at once
            third = ask("cyn", 0)
            waiting = end._reading.counts
            await until(lambda: third.done() or "cyn" in {w.user for w in end._reading._queue})
            assert waiting()[0] == 1
            engine.go.release()  # the reading that is under way, and no other
            await until(lambda: third.done() or len(engine.began) > 7)
            assert engine.began[7:] == ["cyn"]
            engine.go.release(10 * FLOOD)
            return await asyncio.gather(third, *floods)
        finally:
            line.close()
            engine.go.release(10 * FLOOD)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    answers = asyncio.run(run())
    assert {one.code for one in answers} == {None}
    by_turns = engine.began[8:26]
    assert abs(by_turns.count("ada") - by_turns.count("bob")) <= 2


async def held(turns: FairSemaphore, user: str, order: list[str], end: asyncio.Event) -> str:
    try:
        async with turns.turn(user):
            order.append(user)
            await end.wait()
    except Refused as refused:
        return refused.code
    return "done"


async def soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_places_that_are_idle_are_given_though_the_queue_is_full() -> None:
    async def run() -> tuple[list[str], list[str]]:
        turns, order, end = FairSemaphore(Limit()), list[str](), asyncio.Event()
        floods = [
            asyncio.create_task(held(turns, user, order, end))
            for _ in range(FLOOD) for user in ("ada", "bob")
        ]  # fmt: skip
        await soon()
        assert turns.counts() == (4, 100)
        third = asyncio.create_task(held(turns, "cyn", order, end))
        await soon()
        second = asyncio.create_task(held(turns, "cyn", order, end))
        await soon()
        before = list(order)
        end.set()
        return before, [await third, await second, *await asyncio.gather(*floods)]

    before, ended = asyncio.run(run())
    assert before[-2:] == ["cyn", "cyn"]
    assert set(ended) == {"done"}


def test_a_place_is_kept_for_who_has_none_and_a_full_queue_takes_them_in() -> None:
    async def run() -> None:
        turns, order = FairSemaphore(Limit(4, 2, waiting=6)), list[str]()
        ends = [asyncio.Event() for _ in range(20)]
        tasks = [
            asyncio.create_task(held(turns, user, order, ends[place]))
            for place, user in enumerate(["ada", "ada", "bob", "bob", *["ada", "bob"] * 4])
        ]
        await soon()
        assert (order, turns.counts()) == (["ada", "ada", "bob"], (3, 6))
        assert turns.refused == 3  # the queue holds six
        tasks += [
            asyncio.create_task(held(turns, user, order, ends[12 + place]))
            for place, user in enumerate(["cyn", "dan", "eve"])
        ]
        await soon()
        assert (order[3:], turns.counts()) == (["cyn"], (4, 8))
        ends[0].set()  # of ada's: dan has none, and came before eve
        await soon()
        assert order[4:] == ["dan"]
        ends[2].set()  # of bob's; he waits longest, and eve has none
        await soon()
        assert order[5:] == ["eve"]
        for one in ends:
            one.set()
        await asyncio.gather(*tasks)
        assert turns.counts() == (0, 0)

    asyncio.run(run())


acts = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["come", "go", "leave"])))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(acts, st.integers(1, 4), st.integers(1, 3))
def test_nobody_waits_while_they_may_begin_and_who_has_none_goes_first(
    acts: list[tuple[str, str]], at_once: int, of_one: int
) -> None:
    """Whatever comes, gives up and ends in whatever order."""

    async def run() -> None:
        turns = FairSemaphore(Limit(at_once, of_one, waiting=4, waiting_of_one=3))
        working: list[tuple[str, asyncio.Event, asyncio.Task[str]]] = []
        for user, act in acts:
            order, end = list[str](), asyncio.Event()
            mine = [one for one in working if one[0] == user]
            waiting_before = {one.user for one in turns._queue}
            if act == "come":
                task = asyncio.create_task(held(turns, user, order, end))
                working.append((user, end, task))
            elif mine and act == "go":
                mine[0][1].set()
            elif mine:
                mine[-1][2].cancel()
            await soon()
            working = [one for one in working if not one[2].done()]
            running, waiting = turns.counts()
            assert running <= at_once
            assert max(turns._running.values(), default=0) <= of_one
            assert running + waiting == len(working)
            assert not any(turns._is_free(one.user) for one in turns._queue)
            if waiting_before and running == at_once:
                assert waiting <= 4 + len(set("abcde"))
        for _, _, task in working:
            task.cancel()
        await asyncio.gather(*(one[2] for one in working), return_exceptions=True)
        assert turns.counts() == (0, 0)

    asyncio.run(run())
