"""Stored parts and stored histograms: nobody moves anybody else, and no number is off by one."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest import prepare as prepare_module
from sfumato.engines.ingest.prepare_order import order_header
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.prepared_table import (
    PreparedTable,
    path_of,
    prepared_table,
    read_prepared_table,
)
from sfumato.engines.shared.rank_path import lower_stored
from sfumato.engines.shared.stored_parts import MAX_PREFIX_SUMS, lower_parts, parts_of
from sfumato.query.expression import Arithmetic, Compare, Constant, Expr, LiteralValue, Ref
from sfumato.query.measure import Key, Measure, PhysicalPersonColumn, PhysicalPersonTable, Tally
from sfumato.vault.engine_port import PrepareOrder, SourceFile
from support.engine_rows import SALT, added_up, card_of, numbers, prepare, stored_rows, write_source

GROUPS, MOST = 3, 3  # the card's own bounds
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "k": {"type": "text", "keys": ["d", "a", "c", "b"]},
    "v": {"type": "number", "lower": -3, "upper": 3, "step": Fraction(1, 2)},
    "b": {"type": "boolean"},
    "t": {"type": "text"},
    "w": {"type": "integer"},
    "h": {"type": "integer", "lower": 0, "upper": 2**52},
}
CARD = card_of(
    "who",
    COLUMNS,
    max_groups=GROUPS,
    max_rows=MOST,
    limits={"rows": 10_000, "rows_per_person": 9},
)
HEADER = ["who", *COLUMNS]
ROOM = Room(512, 2, "", ())
TALLIES = (
    Tally("rows"),
    Tally("people"),
    Tally("values", Ref("v1")),
    Tally("sum", Ref("v1")),
    Tally("sum", Ref("v1"), 2, -5),
    Tally("sum", Ref("v1"), clamp=(-3, 4)),
    Tally("sum", Ref("v1"), clamp=(2, 4)),  # nothing is not clamped up to 2
    Tally("sum", Ref("v1"), 3, 1, (-9, 8)),
    Tally("sum", Ref("v5"), clamp=(1, 2**52 + 1)),
)
KEYS = {"nothing": (), "four": (Key(Ref("k0"), 4),), "two": (Key(Ref("k2"), 2),)}
KNOWN = prepared_table(CARD)[0]
Rows = Sequence[Sequence[object]]


def word(number: int) -> Expr:
    return LiteralValue(Constant("number", str(number)))


HALVES = Arithmetic("/", Arithmetic("-", Ref("v1"), word(-6)), word(2))
HISTOGRAM = Tally("histogram", HALVES, size=5)  # of the codes 0 to 6: the largest are nobody's


def some_rows(seed: int, people: int, count: int) -> list[list[object]]:
    draw = random.Random(seed)
    return [
        [
            f"p{min(draw.randrange(people), draw.randrange(people))}",
            draw.choice(["a", "b", "c", "d", "z", ""]),
            draw.choice(["", "", *range(-3, 4)]),
            draw.choice(["t", "f", ""]),
            draw.choice("xyz"),
            draw.randrange(9),
            draw.choice([0, 1, 2**52]),
        ]
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(engine: DuckDBEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("parts")
    return prepare(engine, write_source(folder / "s.csv", HEADER, some_rows(1, 60, 900)), CARD)[0]


def is_of_parts(measure: Measure, known: PreparedTable = KNOWN) -> bool:
    """Say whether the measure is answered from stored parts."""
    stored = lower_stored(measure, known)
    return stored is not None and all(" FROM parts" in statement.sql for statement in stored)


# --- what they add up ----------------------------------------------------------------------------


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("bounds", [*itertools.product([1, 2, 3], repeat=2)])
@pytest.mark.parametrize("tallies", [TALLIES, TALLIES[:1], TALLIES[6:7]])
def test_parts_add_up_what_the_rules_say(
    engine: DuckDBEngine, table: str, tallies: tuple[Tally, ...], bounds: tuple[int, int], keys: str
) -> None:
    measure = Measure(None, KEYS[keys], tallies, True, *bounds)
    assert is_of_parts(measure)
    found = numbers(engine, table, measure)
    assert found == added_up(measure, stored_rows(table))
    assert found


def test_parts_of_nobody_add_up_to_nothing(engine: DuckDBEngine, tmp_path: Path) -> None:
    empty, _ = prepare(engine, write_source(tmp_path / "s.csv", HEADER, []), CARD)
    for keys in KEYS.values():
        measure = Measure(None, keys, (*TALLIES, HISTOGRAM), True, 2, MOST)
        assert lower_stored(measure, KNOWN) is not None
        assert numbers(engine, empty, measure) == {}


def test_each_table_of_a_card_has_parts_by_its_own_bounds(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    visits = {"v": COLUMNS["v"], "k": COLUMNS["k"]}
    card = card_of(
        "who",
        COLUMNS,
        max_groups=GROUPS,
        max_rows=MOST,
        tables={"visits": {"unit": "who", "max_rows": 4, "columns": visits}},
    )
    draw = random.Random(3)
    rows = [
        [f"p{draw.randrange(9)}", draw.randrange(-3, 4), draw.choice("abcd")] for _ in range(300)
    ]
    others = write_source(tmp_path / "visits.csv", ["who", "v", "k"], rows)
    source = write_source(tmp_path / "s.csv", HEADER, some_rows(2, 9, 60))
    made, _ = prepare(engine, source, card, others=[others])
    for most, is_parts in ((4, True), (MOST, True), (5, False)):
        tallies = (Tally("rows"), Tally("people"), Tally("sum", Ref("v0"), clamp=(-3, 4)))
        measure = Measure(None, (Key(Ref("k1"), 4),), tallies, True, 2, most, table=1)
        assert is_of_parts(measure, prepared_table(card)[1]) is is_parts
        assert numbers(engine, made, measure) == added_up(measure, stored_rows(made, 1))


# --- nobody moves anybody else -------------------------------------------------------------------

tables = st.integers(0, 10**6).map(lambda seed: some_rows(seed, 5, 25))
Stored = dict[str, Counter[tuple[int, ...]]]
MOST_ROWS_OF = {  # how many rows of a stored table one person may have
    "parts_all": 1,
    "parts0": GROUPS,
    "parts2": 2,
    "firsts_all": MOST - 1,
    "firsts0": GROUPS * (MOST - 1),
    "firsts2": 2 * (MOST - 1),
}


def stored_parts(folder: Path, rows: Rows) -> Stored:
    """Prepare in this process; return the rows of each table of parts."""
    source = write_source(folder / "s.csv", HEADER, rows)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "rows.duckdb").unlink(missing_ok=True)
    order = PrepareOrder((SourceFile(str(source)),), "", CARD, SALT, (), "")
    prepare_module.prepare(ROOM, SALT.hex(), order_header(order, work))
    with duckdb.connect(str(work / "rows.duckdb"), read_only=True) as connection:
        return {
            name: Counter(connection.execute(f"SELECT * FROM {name}").fetchall())
            for name in MOST_ROWS_OF
        }


@given(tables)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_parts_are_the_others_and_the_persons_own_which_are_few_and_small(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows
) -> None:
    folder = tmp_path_factory.mktemp("neighbours")
    whole = stored_parts(folder, rows)
    for person in {row[0] for row in rows}:
        mine = stored_parts(folder, [row for row in rows if row[0] == person])
        others = stored_parts(folder, [row for row in rows if row[0] != person])
        for name, most in MOST_ROWS_OF.items():
            assert whole[name] == others[name] + mine[name]
            assert mine[name].total() <= most
            assert all(part[-5] <= MOST for part in mine[name])  # n, before n1, s1, n5, s5
        for name in ("parts0", "parts2"):
            places = sorted(part[1] for part in mine[name].elements())
            assert places == [*range(1, len(places) + 1)]
        for of in ("_all", "0", "2"):  # one row of every size that the part had on its way
            wanted = [(*part[:-5], n) for part in mine[f"parts{of}"] for n in range(1, part[-5])]
            assert Counter(first[:-4] for first in mine[f"firsts{of}"].elements()) == Counter(
                wanted
            )


# --- where they do not serve ---------------------------------------------------------------------

GOOD = Measure(None, KEYS["four"], TALLIES, True, GROUPS, MOST)
OTHERS = {
    "another bound on rows": replace(GOOD, max_rows=MOST + 1),
    "more groups than are stored": replace(GOOD, max_groups=GROUPS + 1),
    "a filter": replace(GOOD, where=Compare(Ref("v1"), "<", Constant("number", "3"))),
    "an expression of a key": replace(GOOD, keys=(Key(Arithmetic("+", Ref("k0"), word(0)), 4),)),
    "two keys": replace(GOOD, keys=(*KEYS["four"], *KEYS["two"])),
    "a private text": replace(GOOD, keys=(Key(Ref("v3"), None),)),
    "an expression": replace(GOOD, tallies=(Tally("sum", Arithmetic("*", Ref("v1"), word(2))),)),
    "a code": replace(GOOD, tallies=(Tally("sum", Ref("k0")),)),
    "a column without bounds": replace(GOOD, tallies=(Tally("sum", Ref("v4")),)),
    "a column of texts": replace(GOOD, tallies=(Tally("values", Ref("v3")),)),
    "different values": replace(GOOD, tallies=(Tally("distinct", Ref("v1"), max_distinct=1),)),
    "one of several": replace(GOOD, tallies=(*TALLIES, Tally("values", Ref("v3")))),
    "rows for people": replace(GOOD, by_person=False),
    "a table of people": Measure(
        None,
        (),
        (Tally("rows"),),
        True,
        GROUPS,
        MOST,
        PhysicalPersonTable(None, (PhysicalPersonColumn("rows"),), 5),
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_parts_serve_nothing_else(what: str) -> None:
    assert is_of_parts(GOOD)
    assert not is_of_parts(OTHERS[what])


def test_parts_compare_places_only_where_some_do_not_count() -> None:
    parts = KNOWN.parts
    assert parts is not None
    for keys, groups, has_place in (("four", 2, True), ("four", 3, False), ("two", 2, False)):
        measure = Measure(None, KEYS[keys], TALLIES, True, groups, MOST)
        statement = lower_parts(measure, parts, 0)
        assert statement is not None
        assert ("place" in statement.sql) is has_place


@pytest.mark.parametrize("rows", range(1, MOST + 2))
def test_firsts_are_read_only_where_fewer_rows_count_than_are_stored(rows: int) -> None:
    stored = lower_stored(replace(GOOD, max_rows=rows), KNOWN)
    assert (stored is not None and " FROM firsts0" in stored[0].sql) is (rows < MOST)


def test_a_card_of_many_groupings_and_numbers_has_no_firsts() -> None:
    number = next(column for column in CARD.columns if column.name == "v")
    few = parts_of([number] * MAX_PREFIX_SUMS, 1, 9)
    many = parts_of([number] * (MAX_PREFIX_SUMS + 1), 1, 9)
    keyed = parts_of([CARD.columns[0], *[number] * (MAX_PREFIX_SUMS // 2 + 1)], 1, 9)
    assert [parts.least_rows for parts in (few, many, keyed)] == [1, 9, 9]


def test_a_table_without_firsts_is_still_read(engine: DuckDBEngine, tmp_path: Path) -> None:
    made, _ = prepare(engine, write_source(tmp_path / "s.csv", HEADER, some_rows(1, 9, 60)), CARD)
    shape = json.loads(path_of(Path(made)).read_text("ascii"))
    for known in shape["tables"]:
        del known["parts"]["has_firsts"]
    path_of(Path(made)).write_text(json.dumps(shape), "ascii")
    with duckdb.connect(made) as connection:
        for name in ("firsts_all", "firsts0", "firsts2"):
            connection.execute(f"DROP TABLE {name}")
    for rows in range(1, MOST + 2):
        measure = replace(GOOD, max_rows=rows, tallies=TALLIES[3:5])
        assert is_of_parts(measure, read_prepared_table(Path(made))[0]) is (rows == MOST)
        assert numbers(engine, made, measure) == added_up(measure, stored_rows(made))


def test_a_sum_that_could_pass_what_is_stored_is_not_stored() -> None:
    columns = CARD.columns
    assert parts_of(columns, 1, 2**10).summed == (1, 5)
    assert parts_of(columns, 1, 2**10 + 1).summed == (1,)


def test_rows_that_are_nobodys_have_no_parts() -> None:
    assert prepared_table(card_of("row", COLUMNS))[0].parts is None


def test_a_table_of_an_older_house_has_no_parts(engine: DuckDBEngine, tmp_path: Path) -> None:
    made, _ = prepare(engine, write_source(tmp_path / "s.csv", HEADER, some_rows(1, 9, 60)), CARD)
    text = path_of(Path(made)).read_text("ascii")
    path_of(Path(made)).write_text(text.replace('"version": 3', '"version": 2'), "ascii")
    assert read_prepared_table(Path(made)) == ()
    assert numbers(engine, made, GOOD) == added_up(GOOD, stored_rows(made))


# --- histograms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("bounds", [*itertools.product([1, 2, 5], repeat=2)])
def test_histograms_by_ranks_count_the_rows_that_the_rules_say(
    engine: DuckDBEngine, table: str, bounds: tuple[int, int], keys: str
) -> None:
    tallies = (Tally("rows"), HISTOGRAM, Tally("people"), replace(HISTOGRAM, size=3))
    measure = Measure(None, KEYS[keys], tallies, True, *bounds)
    stored = lower_stored(measure, KNOWN)
    assert stored is not None
    assert [s.tallies for s in stored] == [(0, 2), (1,), (3,)]
    assert numbers(engine, table, measure) == added_up(measure, stored_rows(table))


@pytest.mark.parametrize("what", ["a filter", "an expression of a key", "two keys"])
def test_ranks_make_no_other_histogram(what: str) -> None:
    assert lower_stored(replace(OTHERS[what], tallies=(HISTOGRAM,)), KNOWN) is None


def test_ranks_make_no_histogram_of_private_texts() -> None:
    measure = Measure(None, (Key(Ref("v3"), None),), (HISTOGRAM,), True, 2, 2)
    assert lower_stored(measure, KNOWN) is None
