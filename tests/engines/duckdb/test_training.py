"""Learning from a prepared table: whoever is left out, nobody else's part of a sum moves."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from sfumato.dp.learning.integer_network import SUM_BITS
from sfumato.dp.learning.poisson_sampling import PoissonSample
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.engines.duckdb import training
from sfumato.engines.duckdb.engine import DuckDBEngine, Limits
from sfumato.engines.duckdb.training import train
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.release.unseal import unseal
from sfumato.system import child_process
from sfumato.vault.card.data_card import Card, read_card
from support import warm_workers
from support.engine_rows import prepare, write_source
from support.seeded_dice import SeededDice

MEMBERS = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))
AGREEMENT = Agreement("clinics", bytes(32), MEMBERS, 3, 1)
HEADER = ("who", "age", "pay", "ill")
ROWS = [
    ("p0", "30", "10.5", "true"), ("p0", "30", "10.5", "true"), ("p0", "30", "10.5", "true"),
    ("p1", "", "20", "false"), ("p1", "55", "", "true"), ("p1", "70", "99.5", "false"),
    ("p2", "-999999", "1e17", "true"),
    ("p3", "0", "0", "false"), ("p3", "100", "100", "true"),
    ("p4", "41", "7", ""),
    ("p5", "41", "7", "false"),
    ("p6", "41", "7", "false"),
    ("", "41", "7", "true"),
    *((f"q{n}", str(n), str(n / 2), str(n % 2 == 0).lower()) for n in range(20)),
]  # fmt: skip


def a_card(**changed: Any) -> Card:
    columns: dict[str, Any] = {
        "age": {"type": "integer", "lower": 0, "upper": 100},
        "pay": {"type": "number", "lower": 0, "upper": 100, "step": Fraction(1, 2)},
        "ill": {"type": "boolean"},
    }
    budget = {"epsilon": Fraction(90), "delta": Fraction(1, 1000)}
    shape = {"budget": budget, "columns": columns, "unit": "who", "max_rows": 2, **changed}
    return read_card("people", shape)


def a_plan(card: Card | None = None, **changed: Any) -> TrainPlan:
    shape = {
        "name": "ab" * 32, "features": ["age", "pay"], "target": "ill", "hidden": [5],
        "rounds": 1, "clip": Fraction(1, 2), "max_rows": 2, "activation": "tanh", **changed,
    }  # fmt: skip
    lesson = read_training_task(shape)
    return plan_training(card or a_card(), lesson, AGREEMENT, Fraction(9), Fraction(1, 10**6))


def sums_of(
    engine: DuckDBEngine, folder: Path, rows: list[Any], plans: list[TrainPlan]
) -> list[np.ndarray]:
    """What the engine adds up of these rows, prepared anew, for each of the plans."""
    folder.mkdir()
    table, _ = prepare(engine, write_source(folder / "rows.csv", HEADER, rows), a_card())
    found = []
    for plan in plans:
        flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4")
        with duckdb.connect(table, read_only=True) as connection:
            found.append(train(connection, plan.order(table, flat.tobytes()), {}))
    return found


def test_whoever_is_left_out_moves_the_sum_by_no_more_than_the_clip(tmp_path: Path) -> None:
    """Neighbours of soundness rule 1: rows twice, missing, far out, too many, of nobody."""
    own: dict[str, Any] = {"local": 3, "rate": 1, "each": "person"}
    plans = [a_plan(max_rows=1), a_plan(max_rows=2), a_plan(**own)]
    places = range(len(plans))
    engine = DuckDBEngine(bytes(32))
    try:
        whole = sums_of(engine, tmp_path / "whole", ROWS, plans)
        nobody = sums_of(engine, tmp_path / "nobody", [r for r in ROWS if not r[0]], plans)
        longest = [0] * len(plans)
        for who in ("p0", "p1", "p2"):
            rest = sums_of(engine, tmp_path / who, [r for r in ROWS if r[0] != who], plans)
            alone = sums_of(
                engine, tmp_path / f"{who} alone", [r for r in ROWS if r[0] == who], plans
            )
            for place in places:
                assert (whole[place] - rest[place] == alone[place]).all()
                squared = sum(int(one) ** 2 for one in alone[place])
                longest[place] = max(longest[place], squared)
    finally:
        engine.close()
    most = int(plans[0].lesson.clip * 2**SUM_BITS) ** 2
    assert max(longest) <= most
    assert min(longest) > 0.9 * most  # somebody is as long as they may be
    assert not any(one.any() for one in nobody)


def test_nothing_hangs_on_how_many_rows_are_fetched_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [a_plan(), a_plan(local=2, rate=Fraction(1, 2)), a_plan(local=2, rate=1, each="person")]
    engine = DuckDBEngine(bytes(32))
    try:
        whole = sums_of(engine, tmp_path / "whole", ROWS, plans)
        monkeypatch.setattr(training, "_CELLS", 6)
        few = sums_of(engine, tmp_path / "few", ROWS, plans)
        monkeypatch.setattr(training, "_OWN", 1)
        alone = sums_of(engine, tmp_path / "alone", ROWS, plans)
        monkeypatch.setattr(training, "_HELD", 10**12)
        kept = sums_of(engine, tmp_path / "kept", ROWS, plans)
    finally:
        engine.close()
    for place in range(3):
        assert (whole[place] == few[place]).all()
        assert (whole[place] == alone[place]).all()
        assert (whole[place] == kept[place]).all()


class Counting:
    """A connection, and how often it was asked."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection, self.asked = connection, 0

    def execute(self, *said: Any) -> Any:
        self.asked += 1
        return self.connection.execute(*said)


def test_a_later_round_fetches_nothing_that_an_earlier_one_has(tmp_path: Path) -> None:
    """And another lesson nothing that is not its own: other columns, or more rows of a person."""
    some = {"features": ["age"], "hidden": []}
    card = a_card(limits={"rows": 1000})
    courses: list[dict[str, Any]] = [{}, {"max_rows": 1}, {"local": 2, "rate": 1}, some]
    plans = [a_plan(card, **course) for course in courses]
    engine = DuckDBEngine(bytes(32))
    try:
        table, _ = prepare(engine, write_source(tmp_path / "rows.csv", HEADER, ROWS), card)
    finally:
        engine.close()
    kept: training.Kept = {}
    with duckdb.connect(table, read_only=True) as connection:
        for plan in (*plans, *plans):
            counting: Any = Counting(connection)
            flats = [
                np.random.default_rng(seed).normal(size=plan.size).astype("<f4").tobytes()
                for seed in (1, 2)
            ]
            alone, _ = (train(connection, plan.order(table, flat), {}) for flat in flats)
            first = train(counting, plan.order(table, flats[0]), kept)
            asked = counting.asked
            other = train(counting, plan.order(table, flats[1]), kept)
            assert counting.asked == asked
            assert (first == alone).all()
            assert (first != other).any()
            assert len(kept) == 1


def test_parts_on_threads_add_up_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = a_card(limits={"rows": 1000})
    plans = [a_plan(card), a_plan(card, local=2, rate=1)]
    engine = DuckDBEngine(bytes(32))
    try:
        table, _ = prepare(engine, write_source(tmp_path / "rows.csv", HEADER, ROWS), card)
    finally:
        engine.close()
    monkeypatch.setattr(training, "_LONG", 1)
    with duckdb.connect(table, read_only=True) as connection:
        for plan in plans:
            flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
            alone, parted = (
                train(connection, plan.order(table, flat), {}, threads) for threads in (1, 3)
            )
            assert alone.any()
            assert (alone == parted).all()


SAMPLED: list[dict[str, Any]] = [
    {}, {"max_rows": 1}, {"local": 3, "rate": 1, "each": "person"},
]  # fmt: skip


@pytest.mark.parametrize("unit", ["who", "row"])
def test_a_round_is_of_those_whose_coins_say_yes_and_of_all_their_rows(
    tmp_path: Path, unit: str
) -> None:
    """Everybody's part alone, by coins for one person each: the sum is that of those who are in."""
    card = a_card(unit=unit, limits={"rows": 1000}, **({"max_rows": 1} if unit == "row" else {}))
    engine = DuckDBEngine(bytes(32))
    try:
        table, _ = prepare(engine, write_source(tmp_path / "rows.csv", HEADER, ROWS), card)
    finally:
        engine.close()
    key = "person" if unit == "who" else "rowid"
    for course in SAMPLED:
        course = {**course, **({"max_rows": 1} if unit == "row" else {})}
        plan = a_plan(card, sample=Fraction(1, 2), **course)
        flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
        seen: set[int] = set()
        with duckdb.connect(table, read_only=True) as connection:
            everybody = training._last(connection, key) + 1
            alone = [
                train(connection, replace(plan.order(table, flat, a_coin()), coins=One(who)), {})
                for who in range(everybody)
            ]
            kept: training.Kept = {}
            for seed in range(6):
                whole = train(connection, a_plan(card, **course).order(table, flat), kept)
                assert (whole == np.sum(alone, axis=0)).all()
                coins = plan.coins(SeededDice(seed))
                assert coins is not None
                is_in = coins.tossed(everybody)
                found = train(connection, plan.order(table, flat, coins), kept)
                wanted = sum((alone[who] for who in np.flatnonzero(is_in)), np.zeros_like(alone[0]))
                assert (found == wanted).all()
                seen.add(int(is_in.sum()))
        assert len(seen) > 1
        assert sum(map(np.any, alone)) > 5


class One(PoissonSample):
    """Coins by which one person alone is in."""

    def __init__(self, who: int) -> None:
        super().__init__(bytes(32), 1)
        object.__setattr__(self, "who", who)

    def tossed(self, people: int) -> Any:
        found = np.zeros(people, dtype=np.bool_)
        found[vars(self)["who"]] = True
        return found


def a_coin() -> PoissonSample:
    return PoissonSample.fresh(Fraction(1, 2), SeededDice(0))


def test_a_persons_rows_are_in_or_out_together(tmp_path: Path) -> None:
    """Two rows of each: what a coin of p0's moves is both of them, never one."""
    rows = [(f"p{n}", "40", str(n), "true") for n in range(40) for _ in range(2)]
    card, engine = a_card(), DuckDBEngine(bytes(32))
    try:
        table, _ = prepare(engine, write_source(tmp_path / "rows.csv", HEADER, rows), card)
        one, two = (a_plan(card, sample=Fraction(1, 2), max_rows=most) for most in (1, 2))
        flat = np.random.default_rng(1).normal(size=one.size).astype("<f4").tobytes()
        for seed in range(5):
            orders = [plan.order(table, flat, plan.coins(SeededDice(seed))) for plan in (one, two)]
            orders = [replace(order, clip=4.0) for order in orders]  # so that no row is cut
            first, both = (unseal(engine.learn(order)) for order in orders)
            assert first.any()
            assert (both == 2 * first).all()
    finally:
        engine.close()


def test_coins_that_say_no_to_all_leave_an_empty_sum(tmp_path: Path) -> None:
    """And the worker goes on: the next round is read."""
    card, engine = a_card(), DuckDBEngine(bytes(32))
    try:
        table, _ = prepare(engine, write_source(tmp_path / "rows.csv", HEADER, ROWS), card)
        for course in SAMPLED:
            plan = a_plan(card, sample=Fraction(1, 2), **course)
            flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
            order = plan.order(table, flat, plan.coins(SeededDice(1)))
            for below, is_somebody in ((1, False), ((1 << 64) - 1, True)):
                found = unseal(engine.learn(replace(order, coins=PoissonSample(bytes(32), below))))
                assert found.shape == (plan.size,)
                assert found.any() == is_somebody
    finally:
        engine.close()


def test_a_sample_has_the_time_of_everybody() -> None:
    """Seconds and megabytes of a round depend on the card alone (soundness rule 13)."""
    card = a_card(limits={"rows": 10**9})
    whole, few = a_plan(card), a_plan(card, sample=Fraction(1, 1000))
    flat = bytes(4 * whole.size)
    orders = whole.order("", flat), few.order("", flat, few.coins(SeededDice(1)))
    times = {Limits().deadline_of(one.most_rows, one.row_s) for one in orders}
    assert len(times) == 1


def test_matrices_are_multiplied_on_no_thread_that_waits_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would spin: of several sites on one machine that was more than all that they learn."""
    counted = "import numpy; os.write(1, b'%d' % len(os.listdir('/proc/self/task')))"
    begin = "from sfumato.{module} import main; main()"
    assert begin in child_process._START
    monkeypatch.setattr(child_process, "_START", child_process._START.replace(begin, counted))
    monkeypatch.setattr(child_process.ChildProcess, "__init__", warm_workers.begin_cold)
    child = child_process.ChildProcess("engines.duckdb.worker")
    try:
        assert child.read(1, time.monotonic() + 300) == b"1"
    finally:
        child.let_go()
        child._process.wait()


def test_another_table_is_not_learnt_from_what_was_kept_of_one(tmp_path: Path) -> None:
    card = a_card(limits={"rows": 1000})
    engine, plan, found = DuckDBEngine(bytes(32)), a_plan(card), []
    flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
    try:
        tables = []
        for name, rows in (("all", ROWS), ("few", ROWS[:7])):
            (tmp_path / name).mkdir()
            source = write_source(tmp_path / name / "rows.csv", HEADER, rows)
            tables.append(prepare(engine, source, card)[0])
        for place in (0, 0, 1, 0):
            found.append(unseal(engine.learn(plan.order(tables[place], flat))))
        with duckdb.connect(tables[1], read_only=True) as connection:
            wanted = train(connection, plan.order(tables[1], flat), {})
    finally:
        engine.close()
    assert (found[0] == found[1]).all()
    assert (found[0] == found[3]).all()
    assert (found[2] == wanted).all()
    assert (found[2] != found[0]).any()


def test_one_person_of_many_rows_takes_room_for_one_only(tmp_path: Path) -> None:
    """Else a lesson would be stopped by one person, and so tell of them (soundness rule 13)."""
    card = a_card(max_rows=400, limits={"rows": 10_000, "rows_per_person": 400})
    plan = a_plan(card, hidden=[512], max_rows=400, local=1, rate=1, each="person")
    flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
    others = [(f"q{n}", str(n % 100), "1", "true") for n in range(300)]
    many = [("p0", str(n % 100), "1", "true") for n in range(400)]
    engine, found, peaks = DuckDBEngine(bytes(32)), [], []
    try:
        for name, rows in (("without", others), ("with", others + many), ("alone", many)):
            folder = tmp_path / name
            folder.mkdir()
            table, _ = prepare(engine, write_source(folder / "rows.csv", HEADER, rows), card)
            with duckdb.connect(table, read_only=True) as connection:
                tracemalloc.start()
                found.append(train(connection, plan.order(table, flat), {}))
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    finally:
        tracemalloc.stop()
        engine.close()
    assert (found[1] == found[0] + found[2]).all()
    assert found[2].any()
    assert peaks[1] < 1.5 * (peaks[0] + peaks[2])


def test_the_most_that_one_person_may_be_is_fetched_at_once() -> None:
    """What a lesson lets a person be, and no more, fits what is fetched of anybody else's rows."""
    own: dict[str, Any] = {
        "name": "ab" * 32, "target": "ill", "rounds": 1, "clip": 1, "local": 1, "rate": 1,
        "features": [f"x{n}" for n in range(1025)], "each": "person",
    }  # fmt: skip
    assert read_training_task({**own, "max_rows": training._CELLS // 1025})
    with pytest.raises(Refused, match=r"bad-request.*max_rows times the number of features"):
        read_training_task({**own, "max_rows": training._CELLS // 1025 + 1})


def test_a_lesson_has_ten_times_what_it_needs_by_the_card() -> None:
    """Else a long lesson is stopped or not by how many rows there are (soundness rule 13)."""
    small = a_plan(a_card(limits={"rows": 10**6}), hidden=[900], max_rows=1)
    order = small.order("", bytes(4 * small.size))
    assert Limits().deadline_of(10**6) == 60
    deadline = Limits().deadline_of(10**6, order.row_s)
    assert deadline == pytest.approx(10 * 10**6 * order.row_s)
    assert deadline > 10 * 10**6 * 10e-6  # a row of so many numbers takes 10 microseconds
    more = a_plan(a_card(), hidden=[900], max_rows=1, local=100, rate=1)
    steps = more.order("", bytes(4 * more.size)).row_s
    assert steps == pytest.approx(100 * order.row_s)
    own = a_plan(a_card(), hidden=[900], max_rows=1, local=100, rate=1, each="person")
    assert own.order("", bytes(4 * own.size)).row_s > 2 * steps
    assert Limits().deadline_of(10**9, steps) == 86_400
    assert Limits(deadline_s=3).deadline_of(10**9, steps) == 3


def test_a_row_is_a_person_where_a_card_knows_no_other(tmp_path: Path) -> None:
    """Then its own steps are those of one row, whatever the rows beside it."""
    card = a_card(unit="row", max_rows=1)
    plan = a_plan(card, local=2, rate=1, each="person", max_rows=1)
    engine, found = DuckDBEngine(bytes(32)), []
    try:
        for name, rows in (("two", ROWS[2:7]), ("one", ROWS[2:3]), ("other", ROWS[3:7])):
            folder = tmp_path / name
            folder.mkdir()
            table, _ = prepare(engine, write_source(folder / "rows.csv", HEADER, rows), card)
            flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4")
            with duckdb.connect(table, read_only=True) as connection:
                found.append(train(connection, plan.order(table, flat.tobytes()), {}))
    finally:
        engine.close()
    assert (found[0] == found[1] + found[2]).all()
    assert found[1].any()
