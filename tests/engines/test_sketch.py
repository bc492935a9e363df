"""The same people under another name are noticed; others are not."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from engine_rows import SALT, card_of, prepare, sketch_of, write_source
from sfumato.core.card import Card
from sfumato.engines.duckdb import DuckDBEngine
from sfumato.engines.sketch import KEPT, Fingerprint, containment

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


@pytest.mark.parametrize("count", [6, 1500])
@pytest.mark.parametrize("units", [("id", "id"), ("row", "row"), ("id", "row")])
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
    assert all(len(marks) <= KEPT for marks in (shape["rows"], *shape["columns"]))


def test_another_secret_makes_another_sketch(engine: DuckDBEngine, tmp_path: Path) -> None:
    other = DuckDBEngine(b"\x09" * 32, threads=1)
    texts = []
    for made in (engine, other):
        source = write_source(tmp_path / "s.csv", HEADER, people(1, 100))
        prepare(made, source, card("id", HEADER))
        texts.append(sketch_of(source).read_text())
    other.close()
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
