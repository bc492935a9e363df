"""The same people under another name are noticed; others are not."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import duckdb
import pytest

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest.person_sketch import (
    KEPT,
    Fingerprint,
    Sketch,
    are_alike,
    containment,
    have_shared_rows,
    read_sketch,
)
from sfumato.lab.generate import _townsperson
from sfumato.lab.sample_data import MEDICAL
from sfumato.vault.card.data_card import Card
from support.engine_rows import SALT, card_of, prepare, sketch_of, write_source

Rows = list[list[str]]
HEADER = ["id", "age", "wage", "town"]


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


def card(unit: str, header: list[str]) -> Card:
    return card_of(unit, {header[1]: {"type": "text"}})


def people(seed: int, count: int) -> Rows:
    dice = random.Random(seed)
    return [
        [f"{dice.getrandbits(40):x}", str(dice.randint(18, 90)), f"{dice.randint(0, 99_999)}.50",
         dice.choice(["Graz", "Linz", "Wien"])]
        for _ in range(count)
    ]  # fmt: skip


def seems_known(  # one question, all that it depends on
    engine: DuckDBEngine, folder: Path, known: tuple[list[str], Rows, str], new: Path, asked: Card
) -> bool:
    """Say whether the new source is taken for the known one's people."""
    header, rows, unit = known
    source = write_source(folder / "known.csv", header, rows)
    prepare(engine, source, card(unit, header))
    sketches = (("the known", str(sketch_of(source))),)
    return prepare(engine, new, asked, sketches=sketches)[1].same_people == ("the known",)


def shuffled(rows: Rows) -> Rows:
    return random.Random(5).sample(rows, len(rows))


VARIANTS: dict[str, Callable[[list[str], Rows], tuple[list[str], Rows]]] = {
    "the same file": lambda h, r: (h, r),
    "shuffled": lambda h, r: (h, shuffled(r)),
    "one row more": lambda h, r: (h, [*r, ["new", "50", "1.25", "Graz"]]),
    "one row less": lambda h, r: (h, r[1:]),
    "columns renamed": lambda _, r: (["a", "b", "c", "d"], r),
    "columns in another order": lambda h, r: (h[::-1], [row[::-1] for row in r]),
    "half of the rows": lambda h, r: (h, shuffled(r)[: (len(r) + 1) // 2]),
    "twice as many rows": lambda h, r: (h, r + people(99, len(r))),
    "spaces and spelling": lambda h, r: (h, [[f" {c.upper()} " for c in row] for row in r]),
    "all of it": lambda h, r: (["z", *h[:0:-1]], shuffled([[row[0], *row[:0:-1]] for row in r])),
}


@pytest.fixture(scope="module")
def known(engine: DuckDBEngine, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the sketch of so many people under that unit, made once."""

    @functools.cache
    def sketched(count: int, unit: str) -> Path:
        source = tmp_path_factory.mktemp("known") / "known.csv"
        write_source(source, HEADER, people(1, count))
        prepare(engine, source, card(unit, HEADER))
        return sketch_of(source)

    return sketched


@pytest.mark.parametrize(
    ("count", "units"),
    [(6, ("id", "id")), (6, ("row", "row")), (6, ("id", "row")), (1500, ("id", "row"))],
)
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_same_people_are_noticed(  # noqa: PLR0917  # one argument for each thing that varies
    engine: DuckDBEngine,
    known: Callable[..., Path],
    tmp_path: Path,
    variant: Callable[[list[str], Rows], tuple[list[str], Rows]],
    units: tuple[str, str],
    count: int,
) -> None:
    header, changed = variant(HEADER, people(1, count))
    new = write_source(tmp_path / "new.csv", header, changed)
    asked = card("row" if units[1] == "row" or "id" not in header else "id", header)
    sketches = (("the known", str(known(count, units[0]))),)
    assert prepare(engine, new, asked, sketches=sketches)[1].same_people == ("the known",)


def test_people_are_known_by_their_identifiers_alone(engine: DuckDBEngine, tmp_path: Path) -> None:
    rows = people(1, 400)
    other = [[row[0], "x" + row[1]] for row in rows]
    new = write_source(tmp_path / "new.csv", ["code", "note"], other)
    known = (HEADER, rows, "id")
    assert seems_known(engine, tmp_path, known, new, card("code", ["code", "note"]))


def test_people_with_many_rows_are_known_by_a_table_with_one_row_each(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    rows = people(1, 300)
    visits = [[row[0], str(i)] for row in rows for i in range(20)]
    new = write_source(tmp_path / "new.csv", HEADER, rows)
    known = (["id", "visit"], visits, "id")
    assert seems_known(engine, tmp_path, known, new, card("id", HEADER))


def test_a_parquet_copy_is_known(engine: DuckDBEngine, tmp_path: Path) -> None:
    rows = people(1, 300)
    source = write_source(tmp_path / "here.csv", HEADER, rows)
    new = tmp_path / "new.parquet"
    duckdb.sql(f"COPY (FROM read_csv('{source}')) TO '{new}' (FORMAT parquet)")
    assert seems_known(engine, tmp_path, (HEADER, rows, "row"), new, card("row", HEADER))


@pytest.mark.parametrize("count", [6, 1500])
@pytest.mark.parametrize("unit", ["id", "row"])
def test_other_people_are_others(
    engine: DuckDBEngine, tmp_path: Path, count: int, unit: str
) -> None:
    new = write_source(tmp_path / "new.csv", HEADER, people(2, count))
    known = (HEADER, people(1, count), unit)
    assert not seems_known(engine, tmp_path, known, new, card(unit, HEADER))


def test_few_answers_of_others_are_not_the_same_people(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    header = ["sex", "smokes"]
    tables = [
        [[random.Random(seed * 7919 + i).choice("mf"), "yn"[i % 3 == 0]] for i in range(500)]
        for seed in (1, 2)
    ]
    new = write_source(tmp_path / "new.csv", header, tables[1])
    assert not seems_known(engine, tmp_path, (header, tables[0], "row"), new, card("row", header))
    new = write_source(tmp_path / "copy.csv", header, shuffled(tables[0]))
    assert seems_known(engine, tmp_path, (header, tables[0], "row"), new, card("row", header))


@pytest.mark.parametrize(("unit", "known"), [("row", False), ("nr", True)])
def test_a_row_number_names_people_only_if_the_card_says_so(
    engine: DuckDBEngine, tmp_path: Path, unit: str, known: bool
) -> None:
    header = ["nr", *HEADER]
    tables = [[[str(i + 1), *r] for i, r in enumerate(people(s, 300))] for s in (1, 2)]
    new = write_source(tmp_path / "new.csv", header, tables[1])
    before = (header, tables[0], unit)
    assert seems_known(engine, tmp_path, before, new, card(unit, header)) is known


# --- parts of rows: a table with no column that names anybody -------------------------------------

TOWN = ["age", "zip", "salary", "ill"]
Change = Callable[[Rows], Rows]
Sketcher = Callable[[Rows], Sketch]


def town(seed: int, count: int = 1000) -> Rows:
    dice = random.Random(seed)
    return [_townsperson(dice).split(",") for _ in range(count)]


def medical() -> Rows:
    return [line.split(",") for line in MEDICAL.read_text().splitlines()[1:]]


def without(rows: Rows, *places: int) -> Rows:
    return [[cell for i, cell in enumerate(row) if i not in places] for row in rows]


def half(rows: Rows) -> Rows:
    return shuffled(rows)[: len(rows) // 2]


def blurred(rows: Rows) -> Rows:
    """Return the rows with one cell in twenty changed."""
    dice = random.Random(8)
    return [[cell if dice.random() > 0.05 else f"{cell}1" for cell in row] for row in rows]


def clinic(seed: int) -> Rows:
    """Return people as a clinic may write them down, and who they are in the first column."""
    dice = random.Random(seed)
    return [
        [f"p{dice.getrandbits(40):x}", str(dice.randint(18, 80)), str(int(dice.gauss(120, 15))),
         str(int(dice.gauss(170, 10))), str(int(dice.gauss(75, 12))), dice.choice("mf")]
        for _ in range(1000)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def sketched(engine: DuckDBEngine, tmp_path_factory: pytest.TempPathFactory) -> Sketcher:
    def take(rows: Rows) -> Sketch:
        header = [f"c{i}" for i in range(len(rows[0]))]
        source = write_source(tmp_path_factory.mktemp("rows") / "s.csv", header, rows)
        prepare(engine, source, card_of("row", {"c0": {"type": "text"}}))
        found = read_sketch(sketch_of(source))
        assert found is not None
        return found

    return take


COPIES: dict[str, Change] = {
    "a constant column more": lambda rows: [[*row, "x"] for row in rows],
    "two columns more": lambda rows: [[str(i), *row, "x"] for i, row in enumerate(rows)],
    **{f"no {TOWN[i]}": functools.partial(lambda i, rows: without(rows, i), i) for i in range(4)},
    **{
        f"no {TOWN[i]}, no {TOWN[j]}": functools.partial(lambda *a: without(a[2], *a[:2]), i, j)
        for i in range(4)
        for j in range(i)
    },
    **{
        f"half of the rows, no {TOWN[i]}": functools.partial(
            lambda i, rows: without(half(rows), i), i
        )
        for i in range(4)
    },
    "a row and a column more, reversed": lambda rows: [
        ["x", *row[::-1]] for row in [*rows, ["5", "00311", "7", "true"]]
    ],
    "cells changed": blurred,
    "cells changed, no salary": lambda rows: without(blurred(rows), 2),
    "adults alone, a column more": lambda rows: [[*r, "x"] for r in rows if int(r[0]) > 30],
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES.keys())
def test_people_without_a_name_are_noticed_by_parts_of_their_rows(
    sketched: Sketcher, change: Change
) -> None:
    assert are_alike(sketched(medical()), sketched(change(medical())))


@pytest.mark.parametrize("dropped", [(0,), (0, 1), (0, 5), (0, 2, 3)], ids=str)
@pytest.mark.parametrize("change", [list, half, blurred, COPIES["a constant column more"]])
def test_people_are_noticed_without_their_identifier(
    sketched: Sketcher, change: Change, dropped: tuple[int, ...]
) -> None:
    copy = without(change(clinic(1)), *dropped)
    assert are_alike(sketched(clinic(1)), sketched(copy))


def workers(seed: int) -> Rows:
    """Return people by columns of few answers: only two together tell them apart."""
    dice = random.Random(seed)
    return [
        [dice.choice("abcdefghijkl"), dice.choice("abcdefghijk"), dice.choice("mf")]
        for _ in range(600)
    ]


def test_columns_of_few_answers_are_noticed_two_by_two(sketched: Sketcher) -> None:
    known = sketched(workers(1))
    assert are_alike(known, sketched(without(shuffled(workers(1))[:450], 2)))


OTHERS: dict[str, Callable[[int], Rows]] = {
    "towns": town,
    "towns of several sizes": lambda seed: town(seed, (200, 500, 1000, 3000)[seed % 4]),
    "towns without salaries": lambda seed: without(town(seed), 2),
    "ages alone": lambda seed: without(town(seed), 1, 2, 3),
    "zips and illness": lambda seed: without(town(seed), 0, 2),
    "workers": workers,
    "clinics": lambda seed: without(clinic(seed), 0),
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS.keys())
def test_another_draw_of_the_same_town_is_of_other_people(
    sketched: Sketcher, others: Callable[[int], Rows]
) -> None:
    hold_apart(sketched(others(seed)) for seed in range(7))


@pytest.mark.slow
@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS.keys())
def test_many_draws_of_the_same_town_are_of_other_people(
    sketched: Sketcher, others: Callable[[int], Rows]
) -> None:
    hold_apart(sketched(others(seed)) for seed in range(7, 45))


def hold_apart(sketches: Iterable[Sketch]) -> None:
    assert not any(are_alike(a, b) for a, b in itertools.combinations(sketches, 2))


def test_two_tables_of_one_vault_are_of_other_people(sketched: Sketcher) -> None:
    assert not are_alike(sketched(medical()), sketched(clinic(1)))


def test_a_calendar_says_nothing_of_people(sketched: Sketcher) -> None:
    days = [f"2020-{month:02d}-{day:02d}" for month in range(1, 13) for day in range(1, 29)]
    tables = [
        [[day, ward, str(random.Random(f"{seed}{day}{ward}").randint(0, 50))]
         for day in days for ward in "ABC"]
        for seed in (1, 2)
    ]  # fmt: skip
    assert not are_alike(sketched(tables[0]), sketched(tables[1]))


def test_numbered_rows_with_some_numbers_twice_say_nothing(sketched: Sketcher) -> None:
    tables = [
        [[str(number), str(dice.randint(0, 99)), dice.choice("ab")]
         for number in range(1, 401) for _ in range(dice.choice((1, 1, 1, 2)))]
        for dice in (random.Random(1), random.Random(2))
    ]  # fmt: skip
    assert not are_alike(sketched(tables[0]), sketched(tables[1]))


@pytest.mark.parametrize(("share", "alike"), [(1.0, True), (0.7, True), (0.3, False), (0, False)])
@pytest.mark.parametrize("values", [100, 10**9])
def test_half_of_the_rows_is_the_edge(share: float, alike: bool, values: int) -> None:
    dice = random.Random(6)
    pool = [dice.randrange(values) for _ in range(12_000)]
    kept = int(share * 4000)
    first, second = pool[:4000], pool[4000 - kept : 8000 - kept]
    one, other = (
        Fingerprint(tuple(sorted(Counter(rows).items())[:KEPT])) for rows in (first, second)
    )
    assert have_shared_rows(one, other) is alike


# --- sketches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{}", '{"sketch": 2}', "[1]", '{"sketch": 1, "rows": 3}'])
def test_a_sketch_that_cannot_be_read_may_be_of_anyone(
    engine: DuckDBEngine, tmp_path: Path, text: str
) -> None:
    (tmp_path / "broken.json").write_text(text)
    new = write_source(tmp_path / "new.csv", HEADER, people(1, 30))
    sketches = tuple((name, str(tmp_path / f"{name}.json")) for name in ("lost", "broken"))
    _, found = prepare(engine, new, card("row", HEADER), sketches=sketches)
    assert found.same_people == ("broken", "lost")


def test_a_sketch_holds_hashes_and_no_text(engine: DuckDBEngine, tmp_path: Path) -> None:
    rows = people(1, 2000)
    source = write_source(tmp_path / "s.csv", HEADER, rows)
    prepare(engine, source, card("id", HEADER))
    text = sketch_of(source).read_text()
    assert not any(word in text for word in ("id", "wage", "Graz", rows[0][0]))
    shape = json.loads(text)
    assert all(len(marks) <= KEPT for marks in (shape["rows"], *shape["columns"], *shape["parts"]))


def test_another_secret_makes_another_sketch(engine: DuckDBEngine, tmp_path: Path) -> None:
    texts = []
    for salt in (SALT, b"\x09" * 32):
        source = write_source(tmp_path / "s.csv", HEADER, people(1, 100))
        prepare(engine, source, card("id", HEADER), salt=salt)
        texts.append(sketch_of(source).read_text())
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("shared", "least", "most"), [(1.0, 1, 1), (0.7, 0.6, 0.8), (0.2, 0.1, 0.3)]
)
def test_containment_is_estimated_well(shared: float, least: float, most: float) -> None:
    dice = random.Random(4)
    one = [(dice.getrandbits(64), 0) for _ in range(20_000)]
    other = one[: int(shared * 20_000)] + [(dice.getrandbits(64), 0) for _ in range(15_000)]
    first, second = (Fingerprint(tuple(sorted(s)[:KEPT])) for s in (one, other))
    expected = containment(first, second) * min(len(one), len(other)) / len(one)
    assert least <= expected <= most


def test_nothing_is_in_nothing() -> None:
    assert containment(Fingerprint(()), Fingerprint(())) == 0
