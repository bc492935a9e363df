"""A twin's error on the real rows: paid apart and first, exact in its reach, with its noise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.choice_plan import Candidate
from sfumato.features.synthetic.distance_to_rows import MOST, marginals_of
from sfumato.features.synthetic.misfit_plan import TwinError, TwinErrorPlan, make_misfits
from sfumato.features.synthetic.misfit_release import misfit
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.lab.audit import audit
from sfumato.lab.platform_noise import NumpyRandomSource
from sfumato.query.measure import Cells, Measure
from sfumato.query.request import Request
from sfumato.query.sql.select import read_sql
from sfumato.release.guarantees.central_dp import noisy_misfits
from sfumato.release.release_order import Asker, Order, ReleaseContext
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.sealed import Sealed
from support.scripted_engine import ScriptedEngine
from support.small_vaults import PATIENTS_CARD, card, open_with, write_csv, write_patients

CANARY = "canary-4711"
BY = (
    "SELECT zip, COUNT(*) AS n FROM clinic GROUP BY zip",
    "SELECT FLOOR(age / 40) AS a, COUNT(*) AS n FROM clinic GROUP BY a",
    "SELECT FLOOR(age / 40) AS a, zip, COUNT(*) AS n FROM clinic GROUP BY a, zip",
)
SHAPES = ((2,), (3,), (3, 2))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("misfit")
    text = PATIENTS_CARD.replace("3.0", "1000").replace("1.0", "1000")
    with open_with(folder, "clinic", write_patients(folder / "p.csv"), text) as vault:
        yield vault


def misfits(
    vault: OpenVault, epsilon: str = "1", *, scale: int = 1, expected: Sequence[int] = (2, 1, 1)
) -> TwinErrorPlan:
    """Return two numbers: of both columns alone, and of the pair."""
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    candidates = [
        Candidate(read_sql(sql, "clinic"), np.full(shape, size * scale, dtype=np.int64))
        for sql, shape, size in zip(BY, SHAPES, expected, strict=True)
    ]
    numbers = (
        TwinError("1", scale, tuple(candidates[:2])),
        TwinError("2", scale, tuple(candidates[2:])),
    )
    return make_misfits(listing.card, numbers, Fraction(epsilon))


def order(vault: OpenVault, op: str) -> Order:
    listing = vault.house.catalogue.find("clinic")
    assert listing is not None
    request = Request(read_sql(BY[0], "clinic"))
    return Order(listing.card, listing.table, request, Asker("owner"), op, lambda _: listing.card)


def door_of(vault: OpenVault, reading: Callable[[Measure], Sealed[Cells]]) -> ReleaseContext:
    return replace(vault.house.queries.door, engine=ScriptedEngine(reading))


def empty(measure: Measure) -> Sealed[Cells]:
    return Sealed(Cells((np.zeros(measure.cells, dtype=np.int64),)))


def spent(vault: OpenVault, name: str = "clinic") -> float:
    return float(vault[name].budget["spent"]["epsilon"])


# --- how far one person moves a number ------------------------------------------------------------


def counts(rows: Sequence[tuple[int, int]]) -> list[list[Sealed[Cells]]]:
    """Return the counts of zips, of ages, and of both, as an engine gives them: ages first."""
    zips, ages, both = (np.zeros(n, dtype=np.int64) for n in (2, 3, 6))
    for place, age in rows:
        zips[place] += 1
        ages[age] += 1
        both[age * 2 + place] += 1
    sealed = [Sealed(Cells((part,))) for part in (zips, ages, both)]
    return [sealed[:2], sealed[2:]]


def exact(asked: TwinErrorPlan, rows: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    nothing = [np.zeros(1, dtype=np.int64) for _ in asked.numbers]
    return noisy_misfits(counts(rows), asked, nothing)


@pytest.mark.parametrize("scale", [1, 3])
def test_no_person_moves_a_number_by_more_than_its_noise_covers_and_some_do(
    shared: OpenVault, scale: int
) -> None:
    """Brute force: every table of up to four people, and everybody who could join it."""
    asked = misfits(shared, scale=scale)
    reach = [int(one.noise.parameter * Fraction(1, 2)) for one in asked.numbers]  # each has half
    cells = list(product(range(2), range(3)))
    most = [0, 0]
    for size in range(5):
        for rows in combinations_with_replacement(cells, size):
            before = exact(asked, rows)
            for joins in cells:
                after = exact(asked, (*rows, joins))
                moved = [abs(a - b) for a, b in zip(after, before, strict=True)]
                assert all(m <= r for m, r in zip(moved, reach, strict=True)), (rows, joins)
                most = [max(pair) for pair in zip(most, moved, strict=True)]
    assert most == reach == [2 * scale, scale]


def test_no_person_of_many_rows_moves_a_number_further_on_a_real_engine(tmp_path: Path) -> None:
    """The same with rows that an engine reads: somebody with nine rows joins."""
    dice = random.Random(5)
    base = [(f"p{n}", dice.randrange(120), "10001", 0) for n in range(12)]
    header = ("patient_id", "age", "zip", "salary")
    text = PATIENTS_CARD.replace("[caps]", "max_rows = 9\nmax_groups = 6\n[caps]", 1)
    read: list[tuple[int, ...]] = []
    for n in range(4):
        joins = [("new", dice.randrange(120), "10002", 0) for _ in range(9)] if n else []
        folder = tmp_path / str(n)
        folder.mkdir()
        source = write_csv(folder / "p.csv", header, [*base, *joins])
        with open_with(folder, "clinic", source, text) as opened:
            listing = opened.house.catalogue.find("clinic")
            assert listing is not None
            candidates = [
                Candidate(
                    replace(read_sql(sql, "clinic"), max_groups=1, max_rows=1),
                    np.ones(shape, dtype=np.int64),
                )
                for sql, shape in zip(BY, SHAPES, strict=True)
            ]
            asked = make_misfits(
                listing.card, [TwinError("all", 1, tuple(candidates))], Fraction(1)
            )
            sealed = [opened.house.engine.measure(listing.table, p.measure) for p in asked.plans]
            read.append(noisy_misfits([sealed], asked, [np.zeros(1, dtype=np.int64)]))
    assert asked.numbers[0].noise.parameter == 3
    moved = {abs(one[0] - read[0][0]) for one in read[1:]}
    assert max(moved) <= 3


@pytest.mark.parametrize(("sold", "is_accused"), [("1", False), ("6", True)])
def test_the_numbers_that_leave_the_door_are_audited(
    shared: OpenVault, sold: str, is_accused: bool
) -> None:
    asked = misfits(shared, sold, expected=(0, 0, 0))

    def run(data: list[tuple[int, int]], runs: int, dice: np.random.Generator) -> NDArray[np.int64]:
        sealed, bits = counts(data), NumpyRandomSource(dice)
        draws = [one.noise.sample(runs, bits) for one in asked.numbers]
        found = [
            noisy_misfits(sealed, asked, [one[n : n + 1] for one in draws]) for n in range(runs)
        ]
        return np.asarray(np.array(found).sum(axis=1), dtype=np.int64)

    found = audit(
        run, [(0, 0)] * 5, [(0, 0)] * 6, epsilon=1, alpha=1e-4, most=8192,
        dice=np.random.default_rng(1),
    )  # fmt: skip
    assert found.is_violated is is_accused, found.finding


# --- at the door ----------------------------------------------------------------------------------


def test_the_charge_stands_before_a_row_is_read(shared: OpenVault) -> None:
    before, seen = spent(shared), []

    def reading(measure: Measure) -> Sealed[Cells]:
        seen.append(spent(shared))
        return empty(measure)

    misfit(door_of(shared, reading), order(shared, "first"), misfits(shared, "9"))
    assert seen == [before + 9] * 3
    assert spent(shared) == before + 9


def test_the_same_again_is_free_and_reads_nothing(shared: OpenVault) -> None:
    engine = ScriptedEngine(empty)
    door = replace(shared.house.queries.door, engine=engine)
    first = misfit(door, order(shared, "again"), misfits(shared))
    before, reads = spent(shared), engine.reads
    assert misfit(door, order(shared, "again"), misfits(shared)) == first
    assert (spent(shared), engine.reads) == (before, reads)
    with pytest.raises(Refused, match="op-reused"):
        misfit(door, order(shared, "again"), misfits(shared, scale=2))


@pytest.mark.parametrize("error", [EngineStopped(), ValueError(f"cannot convert {CANARY}")])
def test_what_fails_stays_paid_and_says_nothing(shared: OpenVault, error: Exception) -> None:
    def reading(_measure: Measure) -> Sealed[Cells]:
        raise error

    before = spent(shared)
    with pytest.raises(Refused) as refused:
        misfit(door_of(shared, reading), order(shared, f"f{type(error)}"), misfits(shared))
    assert (refused.value.code, refused.value.__context__) == ("question-failed", None)
    assert CANARY not in str(refused.value)
    assert spent(shared) == before + 1
    for shape in shared.house.data_sets.frozen_shapes():
        shared.house.data_sets.thaw(shape)


def test_a_sum_that_could_pass_the_exact_integers_is_refused_unpaid(shared: OpenVault) -> None:
    with pytest.raises(Refused, match="noise-out-of-range"):
        misfits(shared, scale=2**60)


# --- of a twin ------------------------------------------------------------------------------------

CARD = """
unit = "who"
budget = { epsilon = 500, delta = 1e-4 }
[caps]
user = { epsilon = 120, delta = 1e-5 }
[columns.zip]
type = "text"
keys = ["a", "b", "c"]
[columns.sick]
type = "boolean"
[columns.age]
type = "integer"
lower = 0
upper = 31
"""
HEADER = ("who", "zip", "sick", "age")


def people(count: int = 1500) -> list[tuple[object, ...]]:
    dice = random.Random(1)
    made: list[tuple[object, ...]] = []
    for n in range(count):
        place = dice.choice("aab")
        sick = dice.random() < (0.7 if place == "b" else 0.2)
        made.append((f"p{n}", place, sick, dice.randrange(8) + 20 * sick))
    return made


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("error")
    source = write_csv(folder / "x.csv", HEADER, people())
    with open_with(folder, "clinic", source, CARD) as opened:
        yield opened


def shares(rows: Sequence[Sequence[object]], of: tuple[int, ...], whole: int) -> dict[Any, float]:
    found = Counter(tuple(row[c] for c in of) for row in rows)
    return {key: count / whole for key, count in found.items()}


def apart_by_hand(twin: list[dict[str, str]], size: int, whole: int) -> float:
    """Return the mean distance of marginals, in categories as the twin counts them."""
    real = [(z, str(s).lower(), int(str(a)) // 2) for _, z, s, a in people()]
    return distance(real, twin, size, whole)


def distance(
    real: Sequence[Sequence[object]],
    twin: list[dict[str, str]],
    size: int,
    whole: int | None = None,
) -> float:
    """Return the same of these people, of whom there are said to be so many."""
    made = [(row["zip"], row["sick"], int(row["age"]) // 2 if row["age"] else None) for row in twin]
    found = []
    for of in combinations(range(3), size):
        one, two = shares(real, of, whole or len(real)), shares(made, of, len(made))
        found.append(sum(abs(one.get(k, 0) - two.get(k, 0)) for k in {*one, *two}) / 2)
    return float(np.mean(found))


@pytest.mark.parametrize("rows", [None, 900])
def test_the_error_is_that_of_the_twins_own_rows_on_the_real_ones(
    vault: OpenVault, rows: int | None
) -> None:
    terms: Any = {"epsilon": 4, "delta": 0, "method": "independent", "rows": rows}
    twin = vault["clinic"].dp_twin(**terms, op=f"of {rows}", error_epsilon=20)
    stamp: Any = twin.stamp
    found = twin.rows()
    for size in (1, 2, 3):
        one = stamp["error"]["of"]["clinic"][str(size)]
        by_hand = apart_by_hand(found, size, stamp["people"]["clinic"])
        assert one["marginals"] == (3, 3, 1)[size - 1]
        assert one["error"] == pytest.approx(by_hand, abs=12 * one["std"])
        assert one["interval"][0] <= one["error"] <= one["interval"][1]
        assert one["std"] < 0.002
    assert stamp["error"]["of"]["clinic"]["2"]["error"] > 0.05  # all pairs are lost


def test_the_error_is_a_price_of_its_own_and_the_twin_is_the_same(vault: OpenVault) -> None:
    terms: Any = {"epsilon": 2, "delta": 0, "op": "mine", "rows": 50}
    one = vault["clinic"].dp_twin(**terms)
    paid = spent(vault)
    other = vault["clinic"].dp_twin(**terms, error_epsilon=0.25)
    assert spent(vault) - paid == pytest.approx(0.25, abs=1e-9)
    assert one.rows() == other.rows()
    assert "error" not in one.stamp
    again = vault["clinic"].dp_twin(**terms, error_epsilon=0.25)
    assert again.files == other.files
    assert spent(vault) - paid == pytest.approx(0.25, abs=1e-9)
    assert "at 95 %" in repr(other)


def test_an_error_that_does_not_fit_beside_its_twin_is_refused_with_nothing_paid(
    tmp_path: Path,
) -> None:
    source = write_csv(tmp_path / "x.csv", HEADER, people(50))
    with open_with(tmp_path, "clinic", source, CARD.replace("120", "1")) as opened:
        terms: Any = {"epsilon": 0.75, "delta": 0, "error_epsilon": 0.5}
        assert opened["clinic"].dp_twin_price(**terms)["fits"] is False
        with pytest.raises(Refused, match="budget-exceeded"):
            opened["clinic"].dp_twin(**terms)
        assert spent(opened) == 0
        opened["clinic"].dp_twin(**{**terms, "error_epsilon": 0.25})
        assert 0.999 < spent(opened) <= 1


def test_one_operation_id_may_be_of_a_twin_of_every_data_set_each_with_its_error(
    tmp_path: Path,
) -> None:
    source = write_csv(tmp_path / "x.csv", HEADER, people(50))
    with open_with(tmp_path, "clinic", source, CARD) as opened:
        opened.add("error", source, card('people = "clinic"' + CARD))
        for name in ("clinic", "error"):
            stamp: Any = opened[name].dp_twin(epsilon=1, op="t", error_epsilon=1).stamp
            assert set(stamp["error"]["of"]) == {name}, stamp["error"]


def test_the_ledger_says_what_was_measured_and_its_sheet_holds(vault: OpenVault) -> None:
    vault["clinic"].dp_twin(epsilon=1, delta=0, method="independent", error_epsilon=0.5)
    found: Any = vault.house.desk.audit.releases(2**62, 1, "clinic")["releases"]
    assert "how far 7 marginals of clinic lie from those of a twin" in found[0]["says"]
    assert vault.house.desk.audit.sheet(found[0]["entry"])["mechanism"] == "discrete laplace"


def test_of_many_columns_as_many_marginals_are_drawn_by_the_seed() -> None:
    sizes = [3] * 20
    assert len(marginals_of(sizes, 1, Seeded("s"))) == 20
    three = marginals_of(sizes, 3, Seeded("s"))
    assert len(three) == len(set(three)) == MOST
    assert all(one == tuple(sorted(set(one))) for one in three)
    assert marginals_of(sizes, 3, Seeded("s")) == three
    assert marginals_of([300, 300], 2, Seeded("s")) == []


def test_the_interval_of_an_error_counts_the_noise_of_the_number_of_people_too(
    tmp_path: Path,
) -> None:
    """The true error divides by the true number of people; a twin knows a noisy one."""
    source = write_csv(tmp_path / "x.csv", HEADER, people(150))
    real = [(z, str(s).lower(), int(str(a)) // 2) for _, z, s, a in people(150)]
    held = []
    with open_with(tmp_path, "clinic", source, CARD.replace("120", "500")) as opened:
        for n in range(50):
            twin = opened["clinic"].dp_twin(
                epsilon=0.5, delta=0, method="independent", rows=300, op=f"t{n}", error_epsilon=4
            )
            stamp: Any = twin.stamp
            for size in (1, 2, 3):
                low, high = stamp["error"]["of"]["clinic"][str(size)]["interval"]
                truth = distance(real, twin.rows(), size)
                held.append(low <= truth <= high)
    assert np.mean(held) >= 0.87  # of 150 that hang together; without that noise 60 % or less
