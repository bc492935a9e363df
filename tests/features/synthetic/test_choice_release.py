"""A private choice at the door: charged first, settled once, and as private as it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Bug, Refused
from sfumato.features.synthetic.choice_plan import Candidate, PrivateChoicePlan, make_distances
from sfumato.features.synthetic.choice_release import choose
from sfumato.lab.audit import audit
from sfumato.lab.platform_noise import NumpyRandomSource
from sfumato.query.measure import Cells, Measure
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release.guarantees.central_dp import MAX_PART, add_noise, choose_farthest
from sfumato.release.release_order import Asker, Order, ReleaseContext
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.sealed import Sealed
from support.scripted_engine import ScriptedEngine
from support.seeded_dice import SeededDice
from support.small_vaults import PATIENTS_CARD, open_with, write_patients

CANARY = "canary-4711"
BY = (
    "SELECT zip, COUNT(*) AS n FROM clinic GROUP BY zip",
    "SELECT FLOOR(age / 40) AS a, COUNT(*) AS n FROM clinic GROUP BY a",
)
SHAPES = (2, 3)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("choose")
    text = PATIENTS_CARD.replace("3.0", "1000").replace("1.0", "1000")
    with open_with(folder, "clinic", write_patients(folder / "p.csv"), text) as vault:
        yield vault


def counted(*parts: list[int]) -> Callable[[Measure], Sealed[Cells]]:
    """Return an engine's reading that answers these counts, in turn for ever."""
    state = {"next": 0}

    def reading(measure: Measure) -> Sealed[Cells]:
        found = parts[state["next"] % len(parts)]
        state["next"] += 1
        assert measure.cells == len(found)
        return Sealed(Cells((np.array(found, dtype=np.int64),)))

    return reading


def distances(
    vault: OpenVault, epsilon: str = "1", weights: tuple[int, int] = (1, 1)
) -> PrivateChoicePlan:
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    candidates = [
        Candidate(read_sql(sql, "clinic"), np.full(size, 10, dtype=np.int64), 0, weight, (0, i + 1))
        for i, (sql, size, weight) in enumerate(zip(BY, SHAPES, weights, strict=True))
    ]
    return make_distances(listing.card, candidates, "one", Fraction(epsilon))


def order(vault: OpenVault, op: str) -> Order:
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    request = Request(read_sql(BY[0], "clinic"))
    return Order(listing.card, listing.table, request, Asker("owner"), op, lambda _: listing.card)


def door_of(vault: OpenVault, reading: Callable[[Measure], Sealed[Cells]]) -> ReleaseContext:
    return replace(vault.house.queries.door, engine=ScriptedEngine(reading))


def spent(vault: OpenVault) -> float:
    return float(vault["clinic"].budget["spent"]["epsilon"])


def test_the_charge_stands_before_a_row_is_read(shared: OpenVault) -> None:
    before, seen = spent(shared), []
    answer = counted([10, 10], [10, 10, 90])

    def reading(measure: Measure) -> Sealed[Cells]:
        seen.append(spent(shared))
        return answer(measure)

    assert choose(door_of(shared, reading), order(shared, "first"), distances(shared, "9")) == (1,)
    assert seen == [before + 9, before + 9]


def test_the_same_choice_again_is_free_and_reads_nothing(shared: OpenVault) -> None:
    engine = ScriptedEngine(counted([10, 10], [90, 10, 10]))
    door = replace(shared.house.queries.door, engine=engine)
    first = choose(door, order(shared, "again"), distances(shared))
    before, reads = spent(shared), engine.reads
    assert choose(door, order(shared, "again"), distances(shared)) == first
    assert (spent(shared), engine.reads) == (before, reads)


def test_another_choice_under_the_same_operation_is_refused(shared: OpenVault) -> None:
    door = door_of(shared, counted([1, 1], [1, 1, 1]))
    choose(door, order(shared, "mine"), distances(shared))
    with pytest.raises(Refused) as refused:
        choose(door, order(shared, "mine"), distances(shared, "2"))
    assert refused.value.code == "op-reused"


@pytest.mark.parametrize("error", [EngineStopped(), ValueError(f"cannot convert {CANARY}")])
def test_a_choice_that_fails_stays_paid_and_says_nothing(
    shared: OpenVault, error: Exception
) -> None:
    def reading(_measure: Measure) -> Sealed[Cells]:
        raise error

    before = spent(shared)
    with pytest.raises(Refused) as refused:
        choose(door_of(shared, reading), order(shared, f"f{type(error)}"), distances(shared))
    assert (refused.value.code, refused.value.__context__) == ("question-failed", None)
    assert CANARY not in str(refused.value)
    assert spent(shared) == before + 1
    for shape in shared.house.data_sets.frozen_shapes():
        shared.house.data_sets.thaw(shape)


def test_the_ledger_says_what_was_chosen_among_and_no_count(shared: OpenVault) -> None:
    choose(door_of(shared, counted([77_777, 0], [0, 0, 0])), order(shared, "l"), distances(shared))
    found: Any = shared.house.desk.audit.releases(2**62, 1, "clinic")["releases"]
    (last,) = found
    assert "the choice of one among 2 marginals" in last["says"]
    text = " ".join(e.body for e in shared.house.ledger.store.entries())
    assert "77777" not in text
    sheet = shared.house.desk.audit.sheet(last["entry"])
    assert sheet["mechanism"] == "exponential mechanism"


def test_a_choice_costs_an_eighth_of_epsilon_squared_in_rho(shared: OpenVault) -> None:
    before = shared["clinic"].budget["spent"]["rho"]
    choose(
        door_of(shared, counted([1, 1], [1, 1, 1])), order(shared, "rho"), distances(shared, "2")
    )
    after = shared["clinic"].budget["spent"]["rho"]
    assert after - before == pytest.approx(4 / 8)


def test_the_rate_takes_the_most_that_a_person_moves_any_candidate(shared: OpenVault) -> None:
    assert distances(shared).rate == Fraction(1, 2)
    assert distances(shared, weights=(1, 7)).rate == Fraction(1, 14)
    listing = shared.house.catalogue.find("clinic")
    assert listing is not None
    wide = replace(read_sql(BY[0], "clinic"), max_groups=2, max_rows=5)
    one = Candidate(wide, np.zeros(2, dtype=np.int64))
    assert make_distances(listing.card, [one], "one", Fraction(1)).rate == Fraction(1, 20)


def test_a_choice_that_nobody_moves_is_a_fault_before_it_is_charged(shared: OpenVault) -> None:
    with pytest.raises(Bug):
        distances(shared, weights=(0, 0))


def test_what_is_expected_is_put_where_the_questions_cells_are(shared: OpenVault) -> None:
    """GROUP BY says a before zip, or zip before a; cells have one order of their own."""
    listing = shared.house.catalogue.find("clinic")
    assert listing is not None
    flats = []
    for keys, turned in (("a, zip", True), ("zip, a", False)):
        sql = f"SELECT FLOOR(age / 40) AS a, zip, COUNT(*) AS n FROM clinic GROUP BY {keys}"
        expected = np.arange(6, dtype=np.int64).reshape(2, 3)  # by zip, by a
        one = Candidate(read_sql(sql, "clinic"), expected.T if turned else expected)
        flats.append(make_distances(listing.card, [one], "one", Fraction(1)).expected[0].tolist())
    assert flats[0] == flats[1]


def test_a_distance_counts_as_often_as_its_weight(shared: OpenVault) -> None:
    near, far = ([15, 10], [10, 10, 20])  # five off, thrice, and ten off, once
    asked = distances(shared, "1000", (3, 1))
    sealed = [Sealed(Cells((np.array(part, dtype=np.int64),))) for part in (near, far)]
    assert choose_farthest(sealed, asked, SeededDice(1)) == (0,)


def chosen_at_the_lock(asked: PrivateChoicePlan) -> Callable[..., NDArray[np.int64]]:
    """Return what the door does with sealed counts, as a mechanism over the counts."""

    def run(data: list[list[int]], runs: int, dice: np.random.Generator) -> NDArray[np.int64]:
        sealed = [Sealed(Cells((np.array(part, dtype=np.int64),))) for part in data]
        bits = NumpyRandomSource(dice)
        return np.array([choose_farthest(sealed, asked, bits)[0] for _ in range(runs)])

    return run


@pytest.mark.parametrize(("sold", "is_accused"), [("1", False), ("6", True)])
def test_the_choice_at_the_door_is_audited(shared: OpenVault, sold: str, is_accused: bool) -> None:
    """One person more moves one question's distance up and the other's down."""
    pair = [[10, 10], [9, 10, 10]], [[11, 10], [10, 10, 10]]
    found = audit(
        chosen_at_the_lock(distances(shared, sold)),
        *pair,
        epsilon=1,
        alpha=1e-4,
        most=8192,
        dice=np.random.default_rng(1),
    )
    assert found.is_violated is is_accused, found.finding


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_part_beyond_what_a_plan_may_prove_is_a_bug(sign: int) -> None:
    drawn = np.zeros(1, dtype=np.int64)

    def total(part: int) -> int:
        sealed = Sealed(Cells((np.array([part], dtype=np.int64),)))
        return int(add_noise(sealed, [0], [drawn], SeededDice(1)).parts[0][0])

    assert total(sign * MAX_PART) == sign * MAX_PART
    with pytest.raises(Bug, match="passed the bound"):
        total(sign * MAX_PART + sign)
