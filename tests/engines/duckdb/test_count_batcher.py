"""Counts that wait at once: the rows are read once for all, and each is what it is alone."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sfumato.dp.refusal import Bug
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.shared.message_frames import Header
from sfumato.query.expression import All, AnyOf, Compare, Constant, Not, Predicate, Ref
from sfumato.query.measure import Cells, Measure, Tally
from sfumato.query.printing.batched_counts import count_scan
from sfumato.query.printing.statements import lower
from sfumato.release.unseal import unseal
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.sealed import Sealed
from support.engine_rows import SALT, answers, card_of, prepare, write_source

WAIT_S = 60
CARD = card_of(
    "row",
    {
        "a": {"type": "integer", "lower": 0, "upper": 99},
        "b": {"type": "integer", "lower": 0, "upper": 99},
        "t": {"type": "text"},
    },
)
Row = tuple[int | None, int, str]


class Watched(DuckDBEngine):
    """An engine that says how many numbers each request to its worker is for."""

    def __init__(self) -> None:
        super().__init__(SALT, memory_mb=512, threads=2)
        self.asked: list[int] = []

    def _ask(self, request: Header, deadline_s: float, memory_mb: int) -> bytes | None:
        if request["do"] == "measure":
            layout = request["layout"]
            assert isinstance(layout, dict)
            self.asked.append(len(layout["sizes"]))
        return super()._ask(request, deadline_s, memory_mb)

    def held(self) -> threading.Lock:
        return self._lock.lock

    def is_ready(self) -> bool:
        return self._child is not None and self._child.is_ready()

    def is_queue_of(self, waiting: int) -> bool:
        """Say whether one leads and so many wait."""
        queue = self._batcher._queue
        return queue._is_led and len(queue._queue) == waiting


@pytest.fixture
def engine() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.close()


def rows_of(seed: int) -> list[Row]:
    luck = random.Random(seed)
    return [
        (luck.choice([None, *range(100)]), luck.randrange(100), luck.choice("xyz'"))
        for _ in range(500)
    ]


def table_of(engine: DuckDBEngine, folder: Path, name: str, rows: Sequence[Row]) -> str:
    lines = [["" if a is None else a, b, t] for a, b, t in rows]
    return prepare(engine, write_source(folder / f"{name}.csv", ["a", "b", "t"], lines), CARD)[0]


def counting(where: Predicate, times: int = 1) -> Measure:
    return Measure(where, (), (Tally("rows"),) * times, False, 1, 1)


def above(column: int, number: int) -> Predicate:
    return Compare(Ref(f"v{column}"), ">", Constant.of(number))


def is_text(text: str) -> Predicate:
    return Compare(Ref("v2"), "=", Constant.of(text))


ASKED: list[tuple[Predicate, int]] = [
    (above(0, 30), 1),
    (Not(above(0, 30)), 2),
    (is_text("'"), 1),
    (All((above(0, 10), is_text("x"))), 1),
    (AnyOf((above(1, 90), is_text("y"))), 3),
    (above(1, 1000), 1),
]


def by_hand(rows: Sequence[Row], number: int) -> int:
    return sum(HOLDS[number](*row) for row in rows)


HOLDS: list[Callable[[int | None, int, str], bool]] = [
    lambda a, b, t: a is not None and a > 30,
    lambda a, b, t: a is not None and not a > 30,
    lambda a, b, t: t == "'",
    lambda a, b, t: a is not None and a > 10 and t == "x",
    lambda a, b, t: b > 90 or t == "y",
    lambda a, b, t: False,
]


def together(
    engine: Watched, wanted: Sequence[tuple[str, Measure]]
) -> list[Future[list[list[int]]]]:
    """Ask all while the worker is busy; the first waits for it, the others for the first."""
    asked: list[Future[list[list[int]]]] = []
    with ThreadPoolExecutor(len(wanted)) as threads, engine.held():
        for place, one in enumerate(wanted):
            asked.append(threads.submit(answers, engine, *one))
            within(partial(engine.is_queue_of, place))
    return asked


def within(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_what_waits_is_counted_in_one_go_and_each_is_told_its_own(
    engine: Watched, tmp_path: Path
) -> None:
    rows = rows_of(1)
    table = table_of(engine, tmp_path, "one", rows)
    wanted = [(table, counting(*one)) for one in ASKED]
    found = together(engine, [wanted[0], *wanted])
    assert engine.asked == [1, 9]
    assert [one.result() for one in found[1:]] == [
        [[by_hand(rows, number)]] * times for number, (_, times) in enumerate(ASKED)
    ]


def test_each_is_the_same_alone(engine: Watched, tmp_path: Path) -> None:
    rows = rows_of(2)
    table = table_of(engine, tmp_path, "one", rows)
    for number, (where, times) in enumerate(ASKED):
        assert answers(engine, table, counting(where, times)) == [[by_hand(rows, number)]] * times
    assert engine.asked == [times for _, times in ASKED]


def test_two_tables_are_read_in_a_go_each(engine: Watched, tmp_path: Path) -> None:
    several = {name: rows_of(seed) for seed, name in enumerate(("one", "other"))}
    tables = {name: table_of(engine, tmp_path, name, rows) for name, rows in several.items()}
    names = ["one", "other", "one", "other"]
    wanted = [(tables[name], counting(above(0, 30))) for name in names]
    found = together(engine, [wanted[0], *wanted])
    assert engine.asked == [1, 2, 2]
    assert [one.result() for one in found[1:]] == [[[by_hand(several[name], 0)]] for name in names]


def test_one_that_fails_stops_no_other(engine: Watched, tmp_path: Path) -> None:
    rows = rows_of(3)
    table = table_of(engine, tmp_path, "one", rows)
    fails = counting(above(77, 1))  # there is no such column
    good = [counting(*ASKED[number]) for number in (0, 3)]
    found = together(engine, [(table, one) for one in (good[0], good[0], fails, good[1])])
    assert engine.asked == [1, 3, 1, 1, 1]
    assert [found[place].result() for place in (1, 3)] == [
        [[by_hand(rows, number)]] for number in (0, 3)
    ]
    error = found[2].exception()
    assert type(error) is EngineStopped
    assert error.__context__ is None


def test_a_worker_that_is_killed_before_a_go_is_replaced_for_all(
    engine: Watched, tmp_path: Path
) -> None:
    rows = rows_of(4)
    table = table_of(engine, tmp_path, "one", rows)
    answers(engine, table, counting(*ASKED[0]))
    pid = engine.worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    within(lambda: not engine.is_ready())
    found = together(engine, [(table, counting(*one)) for one in ASKED])
    assert [one.result() for one in found] == [
        [[by_hand(rows, number)]] * times for number, (_, times) in enumerate(ASKED)
    ]


def test_a_long_condition_is_looked_at_alone(engine: Watched, tmp_path: Path) -> None:
    rows = rows_of(5)
    table = table_of(engine, tmp_path, "one", rows)
    long = AnyOf(tuple(above(0, 30) for _ in range(400)))
    measure = counting(long)
    assert len(lower(measure, "duckdb")[0].sql) > 200_000 / 64
    wanted = [(table, counting(above(0, 30)))] * 2
    found = together(engine, wanted)
    assert answers(engine, table, measure) == [[by_hand(rows, 0)]]
    assert [one.result() for one in found] == [[[by_hand(rows, 0)]]] * 2


@pytest.mark.parametrize(
    "measure",
    [
        Measure(None, (), (Tally("rows"),), False, 1, 1),
        Measure(above(0, 1), (), (Tally("values", Ref("v0")),), False, 1, 1),
        Measure(above(0, 1), (), (Tally("people"),), True, 1, 1),
    ],
    ids=["no condition", "values", "people"],
)
def test_what_is_no_count_of_rows_is_no_look(measure: Measure) -> None:
    assert count_scan(measure, "duckdb") is None


def test_other_engines_pick_rows_out_first() -> None:
    assert count_scan(counting(above(0, 1)), "postgres") is None
    assert count_scan(counting(above(0, 1)), "spark") is None


def test_several_at_once_are_each_what_they_are_alone(engine: Watched, tmp_path: Path) -> None:
    several = {name: rows_of(seed) for seed, name in enumerate(("one", "other"), 6)}
    tables = {name: table_of(engine, tmp_path, name, rows) for name, rows in several.items()}
    wanted = [(name, number) for number in range(len(ASKED)) for name in ("one", "other")]
    found = engine.count_batch(
        [(tables[name], counting(*ASKED[number])) for name, number in wanted]
    )
    assert engine.asked == [9, 9]
    assert [numbers(one) for one in found] == [
        [by_hand(several[name], number)] * ASKED[number][1] for name, number in wanted
    ]


def test_of_several_at_once_what_fails_is_itself_alone(engine: Watched, tmp_path: Path) -> None:
    rows = rows_of(8)
    table = table_of(engine, tmp_path, "one", rows)
    good, fails = counting(*ASKED[0]), counting(above(77, 1))  # there is no such column
    found = engine.count_batch([(table, one) for one in (good, fails, good)])
    assert engine.asked == [3, 1, 1, 1]
    assert isinstance(found[1], EngineStopped)
    assert [numbers(found[place]) for place in (0, 2)] == [[by_hand(rows, 0)]] * 2


def test_no_more_lie_in_a_statement_than_it_holds(engine: Watched, tmp_path: Path) -> None:
    rows = rows_of(9)
    table = table_of(engine, tmp_path, "one", rows)
    short, long = counting(above(0, 30)), counting(AnyOf(tuple(above(0, 30) for _ in range(400))))
    found = engine.count_batch([(table, one) for one in (short, short, long, *[short] * 70)])
    assert engine.asked == [2, 1, 64, 6]
    assert [numbers(one) for one in found] == [[by_hand(rows, 0)]] * 73


def test_what_is_no_count_of_rows_is_never_counted_so(engine: Watched, tmp_path: Path) -> None:
    table = table_of(engine, tmp_path, "one", rows_of(10))
    other = Measure(above(0, 1), (), (Tally("values", Ref("v0")),), False, 1, 1)
    with pytest.raises(Bug, match="counted with others"):
        engine.count_batch([(table, counting(above(0, 1))), (table, other)])


def numbers(found: Sealed[Cells] | EngineStopped) -> list[int]:
    assert isinstance(found, Sealed)
    return [int(part[0]) for part in unseal(found).parts]
