"""What the host ended is read again under the same charge; what a question did is not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.app.vault import OpenVault
from sfumato.dp.ports import IntegerArray, RandomSource
from sfumato.dp.refusal import Refused
from sfumato.query.measure import Cells, Measure
from sfumato.query.partition_selection_price import PricedPartitionSelection
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release import charged_reads as looking_module
from sfumato.release.charged_reads import LOST, MEMORY_DEATHS, PAUSES_S
from sfumato.release.guarded_release import answer_all, begin_all, release
from sfumato.release.release_order import Asker, Order, PaidOrder, Release, ReleaseContext
from sfumato.vault.engine_port import MEMORY, SIGNAL, START, EngineLost, EngineStopped
from sfumato.vault.sealed import Sealed
from support.scripted_engine import Reading, ScriptedEngine
from support.small_vaults import open_with, write_csv

PAID = Fraction("0.01")
WARDS = ("north", "south")
CARD = """
unit = "who"
people = "patients"
budget = { epsilon = 1000, delta = 1e-4 }
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.zip]
type = "text"
keys = ["10001", "10002"]
[columns.ward]
type = "text"
"""


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("again")
    rows = [(f"p{n}", 20 + n % 60, ("10001", "10002")[n % 2], WARDS[n % 2]) for n in range(200)]
    source = write_csv(folder / "p.csv", ("who", "age", "zip", "ward"), rows)
    with open_with(folder, "clinic", source, CARD) as opened:
        yield opened


@pytest.fixture(autouse=True)
def at_once(vault: OpenVault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait before a reading, and no shape be frozen from before."""
    monkeypatch.setattr(looking_module, "PAUSES_S", (0,) * len(PAUSES_S))
    for shape in vault.house.data_sets.frozen_shapes():
        vault.house.data_sets.thaw(shape)


class Dying:
    """An engine that is lost so and so often, and then answers zeros."""

    def __init__(self, *deaths: str) -> None:
        self.deaths = list(deaths)
        self.answered = 0

    def __call__(self, measure: Measure) -> Sealed[Cells]:
        if self.deaths:
            raise EngineLost(self.deaths.pop(0))
        self.answered += 1
        return Sealed(Cells(tuple(np.zeros(measure.cells, np.int64) for _ in measure.tallies)))


def door_of(vault: OpenVault, reading: Reading) -> ReleaseContext:
    return replace(vault.house.queries.door, engine=ScriptedEngine(reading))


def order_of(vault: OpenVault, op: str, sql: str = "SELECT COUNT(*) AS n FROM clinic") -> Order:
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    request = Request(read_sql(sql, "clinic"), epsilon=PAID)
    card = listing.card
    return Order(card, listing.table, request, Asker("owner"), op, lambda _: card, fresh=True)


def spent(vault: OpenVault) -> float:
    return float(vault["clinic"].budget["spent"]["epsilon"])


def lost(vault: OpenVault) -> list[dict[str, object]]:
    return [json.loads(one.body) for one in vault.house.ledger.store.notes(LOST)]


def asked(vault: OpenVault, reading: Reading, op: str, sql: str | None = None) -> str | Release:
    """Return the answer, or the code of its refusal."""
    order = order_of(vault, op) if sql is None else order_of(vault, op, sql)
    try:
        return release(door_of(vault, reading), order)
    except Refused as refused:
        told = refused
    assert told.__context__ is None
    return told.code


@pytest.mark.parametrize("cause", [START, SIGNAL, MEMORY])
def test_what_the_host_ended_is_read_again_and_paid_once(vault: OpenVault, cause: str) -> None:
    before, told, reading = spent(vault), len(lost(vault)), Dying(cause, cause)
    answer = asked(vault, reading, f"again {cause}", "SELECT SUM(age) AS s FROM clinic")
    assert isinstance(answer, Release)
    assert spent(vault) == pytest.approx(before + float(PAID))
    assert (reading.answered, vault.house.data_sets.frozen_shapes()) == (1, ())
    shapes = {one["shape"] for one in lost(vault)[told:]}
    assert len(shapes) == 1
    assert [one["cause"] for one in lost(vault)[told:]] == [cause, cause]
    once_more = asked(vault, reading, f"again {cause}", "SELECT SUM(age) AS s FROM clinic")
    assert isinstance(once_more, Release)
    assert once_more.answer == answer.answer


def test_a_question_that_every_reading_loses_is_its_own_doing(vault: OpenVault) -> None:
    before, times = spent(vault), len(PAUSES_S) + 1
    reading = Dying(*[SIGNAL] * times)
    assert asked(vault, reading, "always") == "question-failed"
    assert (reading.deaths, reading.answered) == ([], 0)  # so often, and no more
    assert spent(vault) == pytest.approx(before + float(PAID))
    assert len(vault.house.data_sets.frozen_shapes()) == 1
    assert asked(vault, Dying(), "after") == "question-frozen"


def test_where_no_process_begins_nothing_was_read_and_nothing_is_frozen(vault: OpenVault) -> None:
    before = spent(vault)
    assert asked(vault, Dying(*[START] * 9), "never begun") == "question-failed"
    assert spent(vault) == pytest.approx(before + float(PAID))
    assert vault.house.data_sets.frozen_shapes() == ()
    assert isinstance(asked(vault, Dying(), "begun again"), Release)


def test_a_limit_of_its_own_is_not_read_again(vault: OpenVault) -> None:
    def stopped(_measure: Measure) -> Sealed[Cells]:
        raise EngineStopped

    engine = ScriptedEngine(stopped)
    with pytest.raises(Refused, match="question-failed"):
        release(replace(vault.house.queries.door, engine=engine), order_of(vault, "own"))
    assert engine.reads == 1
    assert len(vault.house.data_sets.frozen_shapes()) == 1


def test_a_death_that_rows_may_have_moved_is_counted_for_its_shape(vault: OpenVault) -> None:
    sql = "SELECT COUNT(*) AS n FROM clinic WHERE age > {}"
    for number in range(MEMORY_DEATHS):  # of constants it has many, so it could ask many bits
        assert isinstance(asked(vault, Dying(MEMORY), f"m{number}", sql.format(number)), Release)
    other = "SELECT SUM(age) AS s FROM clinic WHERE zip = '10001'"
    assert isinstance(asked(vault, Dying(MEMORY), "another's", other), Release)
    assert asked(vault, Dying(MEMORY), "one more", sql.format(9)) == "question-failed"
    assert asked(vault, Dying(), "then", sql.format(10)) == "question-frozen"
    for shape in vault.house.data_sets.frozen_shapes():
        vault.house.data_sets.thaw(shape)
    assert isinstance(asked(vault, Dying(MEMORY), "thawed", sql.format(11)), Release)


def test_kills_from_outside_freeze_nothing_however_many_there_were(vault: OpenVault) -> None:
    for number in range(20):
        sql = f"SELECT COUNT(*) AS n FROM clinic WHERE age > {number}"
        assert isinstance(asked(vault, Dying(SIGNAL), f"k{number}", sql), Release)
    assert vault.house.data_sets.frozen_shapes() == ()


def test_a_pass_that_was_lost_is_read_one_by_one(vault: OpenVault) -> None:
    class Passing(ScriptedEngine):
        """An engine whose one pass is lost."""

        def count_batch(self, wanted: list[tuple[str, Measure]]) -> list[EngineLost]:
            return [EngineLost(SIGNAL) for _ in wanted]

    told, engine = len(lost(vault)), Passing(Dying())
    door = replace(vault.house.queries.door, engine=engine)
    sql = "SELECT COUNT(*) AS n FROM clinic WHERE age > {}"
    paid = begin_all(door, [order_of(vault, f"p{n}", sql.format(n)) for n in range(3)])
    answers = answer_all(door, [one for one in paid if one is not None])  # type: ignore[misc]
    assert all(isinstance(one, Release) for one in answers)
    assert engine.reads == 3
    said = {"data_set": "clinic", "shape": None, "cause": SIGNAL}
    assert lost(vault)[told:] == [said]


def test_want_of_memory_in_a_pass_counts_for_every_shape_in_it(vault: OpenVault) -> None:
    """Together they may need what none needs alone: else two could ask bits without end."""

    class Passing(ScriptedEngine):
        """An engine whose every pass is lost, and that reads each alone."""

        def count_batch(self, wanted: list[tuple[str, Measure]]) -> list[EngineLost]:
            return [EngineLost(MEMORY) for _ in wanted]

    door = replace(vault.house.queries.door, engine=Passing(Dying()))
    ended: list[list[str]] = []
    for number in range(MEMORY_DEATHS + 1):
        texts = [f"ward = 'w{number}'", f"ward = 'w{number}' AND zip = '10001'"]
        sql = [f"SELECT COUNT(*) AS n FROM clinic WHERE {text}" for text in texts]
        paid = begin_all(door, [order_of(vault, f"t{number}{n}", one) for n, one in enumerate(sql)])
        answers = answer_all(door, [one for one in paid if isinstance(one, PaidOrder)])
        ended.append([one.code if isinstance(one, Refused) else "answered" for one in answers])
    assert ended == [*[["answered"] * 2] * MEMORY_DEATHS, ["question-failed"] * 2]
    assert len(vault.house.data_sets.frozen_shapes()) == 2


@pytest.mark.parametrize("lose", [(1,), (2,), (1, 2), (2, 3, 4), (1, 3)])
def test_keys_are_chosen_once_whatever_is_read_again(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch, lose: tuple[int, ...]
) -> None:
    """A second choice would be a second look at the odds: only the reading is done again."""
    chosen: list[bool] = []
    keep = PricedPartitionSelection.keep

    def counted(
        self: PricedPartitionSelection, counts: IntegerArray, dice: RandomSource
    ) -> NDArray[np.bool_]:
        chosen.append(True)
        return keep(self, counts, dice)

    reads, engine = itertools.count(1), vault.house.queries.door.engine

    def reading(measure: Measure) -> Sealed[Cells]:
        if next(reads) in lose:
            raise EngineLost(SIGNAL)
        return engine.measure(order.table, measure)

    order = order_of(
        vault, f"keys {lose}", "SELECT ward, MEDIAN(age) AS m FROM clinic GROUP BY ward"
    )
    sure = replace(order.request, epsilon=Fraction(60), delta=Fraction(1, 10**7))
    monkeypatch.setattr(PricedPartitionSelection, "keep", counted)
    answer = release(door_of(vault, reading), replace(order, request=sure)).answer
    assert (chosen, len(lost(vault)) >= len(lose)) == ([True], True)
    assert [row[0] for row in cast(Any, answer["rows"])] == ["north", "south"]
