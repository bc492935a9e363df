"""The door: charge first, then look; whatever goes wrong stays paid and says nothing."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Bug, Refused
from sfumato.query.measure import Cells, Measure
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release import ledger_guard as ledger_module
from sfumato.release.guarded_release import release
from sfumato.release.ledger_guard import Ledger
from sfumato.release.release_order import Asker, Order, ReleaseContext
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.ledger_entries import Charge, Outcome
from sfumato.vault.sealed import Sealed
from support.ledger_stores import asked
from support.scripted_engine import Reading, ScriptedEngine
from support.small_vaults import PATIENTS_CARD, make_vault, open_with, write_patients

CANARY = "canary-4711"
COUNT = "SELECT COUNT(*) AS n FROM clinic"


def zeros(measure: Measure) -> Sealed[Cells]:
    return Sealed(Cells(tuple(np.zeros(measure.cells, dtype=np.int64) for _ in measure.tallies)))


def stopped(_measure: Measure) -> Sealed[Cells]:
    raise EngineStopped


def broken(_measure: Measure) -> Sealed[Cells]:
    raise ValueError(f"could not convert {CANARY}")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("release")
    text = PATIENTS_CARD.replace("3.0", "1000").replace("1.0", "1000")
    with open_with(folder, "clinic", write_patients(folder / "p.csv"), text) as vault:
        yield vault


@pytest.fixture(autouse=True)
def thawed(shared: OpenVault) -> None:
    for shape in shared.house.data_sets.frozen_shapes():
        shared.house.data_sets.thaw(shape)


def order_of(vault: OpenVault, op: str, sql: str = COUNT, epsilon: str = "0.5") -> Order:
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    request = Request(read_sql(sql, "clinic"), epsilon=Fraction(epsilon))
    return Order(
        listing.card, listing.table, request, Asker("owner"), op, lambda _: listing.card, fresh=True
    )


def door_of(vault: OpenVault, reading: Reading) -> tuple[ReleaseContext, ScriptedEngine]:
    engine = ScriptedEngine(reading)
    return replace(vault.house.queries.door, engine=engine), engine


def spent(vault: OpenVault) -> float:
    return float(vault["clinic"].budget["spent"]["epsilon"])


def test_the_charge_is_durable_before_a_row_is_read(shared: OpenVault) -> None:
    before, seen = spent(shared), []
    ledger = shared.house.ledger

    def reading(measure: Measure) -> Sealed[Cells]:
        mark = ledger.anchor.read()
        seen.append((spent(shared), None if mark is None else mark.seq, ledger.store.head().seq))
        return zeros(measure)

    door, _ = door_of(shared, reading)
    release(door, order_of(shared, "durable"))
    ((paid, marked, head),) = seen
    assert paid == pytest.approx(before + 0.5)
    assert marked == head


@pytest.mark.parametrize("reading", [stopped, broken])
def test_a_failed_question_still_pays_and_stays_failed(shared: OpenVault, reading: Reading) -> None:
    before = spent(shared)
    sql = f"SELECT COUNT(*) AS n FROM clinic WHERE age = {30 + (reading is broken)}"
    door, engine = door_of(shared, reading)
    order = order_of(shared, f"failing-{reading.__name__}", sql)
    for _ in range(3):
        with pytest.raises(Refused) as refused:
            release(door, order)
        assert refused.value.code == "question-failed"
    assert spent(shared) == pytest.approx(before + 0.5)
    assert engine.reads == 1


def test_two_who_ask_the_same_new_question_at_once_pay_the_data_set_once(
    shared: OpenVault,
) -> None:
    before = spent(shared)
    reading, go_on = threading.Event(), threading.Event()

    def slowly(measure: Measure) -> Sealed[Cells]:
        reading.set()
        assert go_on.wait(30)
        return zeros(measure)

    door, engine = door_of(shared, slowly)
    sql = "SELECT COUNT(*) AS n FROM clinic WHERE age = 77"
    orders = [
        replace(order_of(shared, f"both-{user}", sql), asker=Asker(user), fresh=False)
        for user in ("ann", "bob")
    ]
    answers: dict[str, Json] = {}

    def ask(order: Order) -> None:
        answers[order.asker.user] = release(door, order).answer

    first, second = (threading.Thread(target=ask, args=(order,)) for order in orders)
    first.start()
    assert reading.wait(30)
    second.start()
    second.join(0.3)
    assert second.is_alive()  # it waits, and has paid nothing yet
    assert spent(shared) == pytest.approx(before + 0.5)
    go_on.set()
    first.join(30)
    second.join(30)
    assert answers["ann"] == answers["bob"]
    assert engine.reads == 1
    assert spent(shared) == pytest.approx(before + 0.5)


def test_who_has_waited_long_enough_is_refused_and_has_paid_nothing(
    shared: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "WAIT_S", 0.2)
    reading, go_on = threading.Event(), threading.Event()

    def slowly(measure: Measure) -> Sealed[Cells]:
        reading.set()
        assert go_on.wait(30)
        return zeros(measure)

    door, _ = door_of(shared, slowly)
    sql = "SELECT COUNT(*) AS n FROM clinic WHERE age = 78"
    ann, bob = (
        replace(order_of(shared, f"long-{user}", sql), asker=Asker(user), fresh=False)
        for user in ("ann", "bob")
    )
    first = threading.Thread(target=release, args=(door, ann))
    first.start()
    assert reading.wait(30)
    before = spent(shared)
    with pytest.raises(Refused) as refused:
        release(door, bob)
    go_on.set()
    first.join(30)
    assert refused.value.code == "ledger-busy"
    assert spent(shared) == before


def test_an_engines_complaint_never_gets_out(shared: OpenVault) -> None:
    door, _ = door_of(shared, broken)
    with pytest.raises(Refused) as refused:
        release(door, order_of(shared, "complaint"))
    told = "".join(traceback.format_exception(refused.value))
    assert CANARY not in told
    assert refused.value.__context__ is None
    assert refused.value.__cause__ is None


def test_being_stopped_or_broken_looks_the_same_to_the_asker(shared: OpenVault) -> None:
    told = []
    for reading in (stopped, broken):
        door, _ = door_of(shared, reading)
        sql = f"SELECT COUNT(*) AS n FROM clinic WHERE age = {40 + (reading is broken)}"
        with pytest.raises(Refused) as refused:
            release(door, order_of(shared, f"same-{reading.__name__}", sql))
        for shape in shared.house.data_sets.frozen_shapes():
            shared.house.data_sets.thaw(shape)
        told.append((refused.value.code, refused.value.cause, refused.value.next_step))
    assert told[0] == told[1]


def test_a_stopped_shape_is_frozen_until_the_owner_thaws_it(shared: OpenVault) -> None:
    sql = "SELECT COUNT(*) AS n FROM clinic WHERE age = 50"
    door, _ = door_of(shared, stopped)
    with pytest.raises(Refused):
        release(door, order_of(shared, "freezing", sql))
    working, engine = door_of(shared, zeros)
    before = spent(shared)
    with pytest.raises(Refused) as refused:
        release(working, order_of(shared, "frozen", sql, "0.25"))
    assert refused.value.code == "question-frozen"
    assert (engine.reads, spent(shared)) == (0, before)
    for waiting in shared.house.data_sets.frozen_shapes():
        shared.house.data_sets.thaw(waiting)
    assert shared.house.data_sets.frozen_shapes() == ()
    release(working, order_of(shared, "thawed", sql, "0.25"))


def test_a_refused_question_reads_no_row_and_pays_nothing(shared: OpenVault) -> None:
    door, engine = door_of(shared, zeros)
    before = spent(shared)
    refusals = (
        ("SELECT SUM(name) AS s FROM clinic", "0.5"),
        ("SELECT age, COUNT(*) AS s FROM clinic GROUP BY age", "0.5"),
        (COUNT, "1001"),
    )
    for number, (sql, epsilon) in enumerate(refusals):
        order = order_of(shared, f"refused-{number}", sql, epsilon)
        with pytest.raises(Refused):
            release(door, order)
    assert (engine.reads, spent(shared)) == (0, before)


def test_that_nobody_meets_a_condition_is_not_told_by_a_failure(shared: OpenVault) -> None:
    far = 10**18  # from zero, and the two next to each other: the mean's noise is as for 0 and 1
    for age in (20, 109):  # which some have, and nobody has
        one_of_two = f"CASE WHEN age = {age} THEN {far} WHEN age > 109 THEN {far + 1} END"
        sql = f"SELECT AVG({one_of_two}) AS m FROM clinic WHERE zip IN ('10001', '10002')"
        assert shared["clinic"].ask(sql, epsilon=1).rows


def test_an_answer_of_the_wrong_shape_fails_like_any_other(shared: OpenVault) -> None:
    def narrow(_measure: Measure) -> Sealed[Cells]:
        return Sealed(Cells((np.zeros(3, dtype=np.int64),)))

    door, _ = door_of(shared, narrow)
    with pytest.raises(Refused) as refused:
        release(door, order_of(shared, "narrow"))
    assert refused.value.code == "question-failed"


def test_a_part_beyond_what_was_proved_fails_to_either_side(shared: OpenVault) -> None:
    for place, beyond in enumerate((2**62 + 1, -(2**62) - 1, -(2**63))):  # abs of the last is it
        door, _ = door_of(shared, partial(only, beyond))
        with pytest.raises(Refused) as refused:
            release(door, order_of(shared, f"beyond {place}"))
        assert refused.value.code == "question-failed"


def only(number: int, measure: Measure) -> Sealed[Cells]:
    cells = np.full(measure.cells, number, dtype=np.int64)
    return Sealed(Cells(tuple(cells for _ in measure.tallies)))


def test_a_price_is_the_same_whatever_the_rows_are(tmp_path: Path) -> None:
    prices = []
    for people in (3, 300):
        folder = tmp_path / str(people)
        folder.mkdir()
        source = write_patients(folder / "p.csv", people)
        with open_with(folder, "clinic", source, PATIENTS_CARD) as vault:
            sql = "SELECT zip, COUNT(*), SUM(salary), AVG(age) FROM clinic GROUP BY zip"
            prices.append(vault["clinic"].price(sql, epsilon=0.5).shape)
    assert prices[0] == prices[1]


CLOSED: list[Callable[[Sealed[int]], object]] = [
    str, bytes, bool, int, float, hash, len, iter, list, format,
    lambda s: f"{s:>3}", lambda s: s == 471147, lambda s: s < 471147, lambda s: s + 1,
    lambda s: 1 + s, lambda s: s[0], lambda s: 1 in s, lambda s: {s}, "{}".format,
    pickle.dumps, copy.copy, copy.deepcopy, json.dumps, vars,
    lambda s: np.asarray([1]) + s, lambda s: s.__held,
]  # fmt: skip


@pytest.mark.parametrize("use", CLOSED)
def test_a_sealed_value_cannot_be_used(use: Callable[[Sealed[int]], object]) -> None:
    with pytest.raises((Bug, TypeError, AttributeError)) as refused:
        use(Sealed(471147))
    assert "471147" not in str(refused.value)


def test_a_sealed_value_shows_nothing_of_itself() -> None:
    assert repr(Sealed(471147)) == repr(Sealed("x")) == "Sealed(...)"
    with pytest.raises(Bug):
        type("Open", (Sealed,), {})


def test_who_waits_is_more_patient_the_more_rows_the_card_lets_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine may take 5 microseconds for each of them; whoever waits gives it twice as long."""
    seen: list[int] = []
    plain = Ledger.charge

    def charge(ledger: Ledger, asked: Charge) -> Outcome:
        seen.append(asked.wait_limit_s)
        return plain(ledger, asked)

    monkeypatch.setattr(Ledger, "charge", charge)
    for rows in (1000, 10**10):
        (tmp_path / str(rows)).mkdir()
        text = PATIENTS_CARD + f"\n[limits]\nrows = {rows}\n"
        source = write_patients(tmp_path / "p.csv")
        with open_with(tmp_path / str(rows), "clinic", source, text) as vault:
            vault["clinic"].ask("SELECT COUNT(*) FROM clinic", epsilon=0.1)
    assert seen == [7200, 100_000]


def test_who_waits_for_an_answer_is_refused_once_they_may_not_ask_any_more(
    tmp_path: Path,
) -> None:
    with sfumato.open(make_vault(tmp_path)) as vault:
        ledger = vault.house.ledger
        ledger.charge(asked("first", wait_limit_s=60))

        def may_still() -> None:
            raise Refused("data-set-frozen", "It was frozen meanwhile.", "Ask the owner.")

        with pytest.raises(Refused) as refused:
            ledger.charge(asked("second", user="bob", wait_limit_s=60, check_access=may_still))
    assert refused.value.code == "data-set-frozen"
