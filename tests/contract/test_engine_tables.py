"""Several tables of one card: joined on the person, or a public one looked up; on every engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.expression import Arithmetic, Compare, Constant, IsNull, Not, Predicate, Ref
from sfumato.query.measure import (
    Join,
    Key,
    Measure,
    PhysicalPersonColumn,
    PhysicalPersonJoin,
    PhysicalPersonTable,
    Tally,
)
from sfumato.vault.engine_port import Engine
from support.engine_rows import (
    SALT,
    Numbers,
    Row,
    added_up,
    answers,
    card_of,
    joined_rows,
    numbers,
    prepare,
    rows_beside,
    stored_rows,
    write_source,
)
from support.kernel_oracle import kernel_order, orders_by_kernel

WIDE = 10**6
SEEDS = {"duckdb": 4, "postgres": 2, "spark": 1}
MEASURES = {"duckdb": 60, "postgres": 40, "spark": 15}
LOOKED_UP = {"duckdb": 40, "postgres": 40, "spark": 12}
HEADERS = [
    ["who", "town", "age"],
    ["pid", "place", "cost", "who"],
    ["who", "drug"],
    ["town", "region", "size"],
]
CARD = card_of(
    "who",
    {
        "town": {"type": "text"},
        "age": {"type": "integer", "lower": 0, "upper": 99},
    },
    limits={"rows_per_person": 4},
    tables={
        "visits": {
            "unit": "pid",
            "limits": {"rows_per_person": 7},
            "columns": {
                "place": {"type": "text", "keys": ["a", "b", "c"]},
                "cost": {"type": "integer", "lower": -9, "upper": 10**6},
            },
        },
        "drugs": {"columns": {"drug": {"type": "text"}}},
        "towns": {
            "public": True,
            "key": "town",
            "columns": {
                "town": {"type": "text"},
                "region": {"type": "text", "keys": ["n", "s"]},
                "size": {"type": "integer", "lower": 0, "upper": 50},
            },
        },
    },
)
WIDTHS = [len(table.columns) for table in CARD.every_table]
TYPES = [[column.type for column in table.columns] for table in CARD.every_table]
TOWNS = [
    ["1", "n", "5"], ["2", "s", "60"], ["3", "", ""], ["", "n", "3"], ["9", "s", "1"],
    ["B", "s", "9"], ["é", "n", "2"], ["a", "n", "45"],
    ["x", "s", "7"], ["z", "n", "30"], ["b", "s", "4"],
]  # fmt: skip
Maker = Callable[[bytes], Engine]


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(SALT)
    yield made
    made.close()


def random_tables(dice: random.Random, people: int = 8) -> list[list[list[str]]]:
    """Return tables of which hardly one is empty, with people who are in several of them."""
    sizes = [30, 50, 20]
    if dice.random() < 0.15:  # of one of the first seeds
        sizes[dice.randrange(3)] = 0
    names = [f"p{i}" for i in range(people)] + ["", " p1 "]
    costs = [dice.randint(-20, 120) for _ in range(10)] + [dice.randint(0, 10**6) for _ in range(5)]
    return [
        [
            [dice.choice(names[3:]), dice.choice([*"1234abBé", ""]), str(dice.randint(0, 120))]
            for _ in range(sizes[0])
        ],
        [
            [dice.choice(names), dice.choice("abcz"), str(dice.choice(costs)), "p0"]
            for _ in range(sizes[1])
        ],
        [[dice.choice(names[:-3]), dice.choice(["x", "a", "b", ""])] for _ in range(sizes[2])],
        TOWNS,
    ]  # fmt: skip


def prepared(engine: Engine, folder: Path, tables: Sequence[list[list[str]]]) -> str:
    folder.mkdir(exist_ok=True)
    pairs = zip(HEADERS, tables, strict=True)
    paths = [write_source(folder / f"s{i}.csv", h, rows) for i, (h, rows) in enumerate(pairs)]
    return prepare(engine, paths[0], CARD, others=paths[1:])[0]


def twins(folder: Path, tables: Sequence[list[list[str]]]) -> list[list[Row]]:
    """Return what DuckDB's preparation makes of the tables, which the other engines copy."""
    duck = DuckDBEngine(SALT, memory_mb=1024, threads=1)
    table = prepared(duck, folder / "twin", tables)
    duck.close()
    return [stored_rows(table, place) for place in range(len(tables))]


@dataclass
class Asking:
    """Random tables side by side, and what can be asked of them."""

    dice: random.Random

    def some_measure(self) -> Measure:
        """Return a measure with bounds that bite, or with none."""
        return self.measure(self.dice.choice((1, 2, WIDE)), self.dice.choice((1, 2, 5, WIDE)))

    def measure(self, max_groups: int, max_rows: int) -> Measure:
        first = self.dice.choice((0, 1, 2))
        joins, seen = list(self.joins(first)), [first]
        seen += [join.table for join in joins]
        columns = [(t, c) for t in seen for c in range(WIDTHS[t])]
        places = {pair: i for i, pair in enumerate(columns)}
        inner = self.dice.random() < 0.5
        if inner:
            return self.of_people(Measure(
                None,
                (),
                (Tally("rows"), Tally("sum", Ref("u0")), Tally("values", Ref("u1"))),
                True,
                1,
                1,
                PhysicalPersonTable(self.where(places), self.columns(places), max_rows),
                first,
                tuple(joins),
            ))  # fmt: skip
        tallies = [Tally("rows"), Tally("people"), *self.tallies(places)]
        return Measure(
            self.where(places),
            self.keys(places),
            tuple(dict.fromkeys(tallies)),
            True,
            max_groups,
            max_rows,
            None,
            first,
            tuple(joins),
        )

    def of_people(self, measure: Measure) -> Measure:
        """Return it with further tables of people beside it, or none; and all that they give."""
        beside, start = [], WIDTH
        tallies, wheres = list(measure.tallies), [measure.where] * 6
        for _ in range(self.dice.choice((0, 1, 1, 2))):
            beside.append(self.beside())
            wheres += [Compare(Ref(f"u{start}"), ">", Constant("number", "1"))]
            wheres += [IsNull(Ref(f"u{start}"))]
            both = Arithmetic("+", Ref("u0"), Ref(f"u{start + 1}"))
            tallies += [Tally("sum", Ref(f"u{start}")), Tally("sum", both, clamp=(0, 10**6))]
            tallies += [Tally("values", Ref(f"u{start + 1}"))]
            start += WIDTH
        place = self.dice.randrange(start)
        sizes = (9, None) if place % WIDTH == 0 else (None,)
        key = Key(Ref(f"u{place}"), self.dice.choice(sizes))
        made = replace(
            measure,
            where=self.dice.choice(wheres),
            keys=self.dice.choice(((), (key,))),
            tallies=tuple(tallies),
            joined_person_tables=tuple(beside),
        )
        return self.looking_up(made, start) if self.dice.random() < 0.6 else made

    def looking_up(self, measure: Measure, start: int) -> Measure:
        """Return it with a text of one of the tables of people looked up among the towns."""
        text, size = Ref(f"u{self.dice.randrange(2, start, WIDTH)}"), Ref(f"v{start + 2}")
        region = Ref(f"k{start + 1}")
        keys = (Key(region, 2), Key(text, None), Key(Ref(f"v{start}"), None))
        wheres = [
            *[measure.where] * 4,
            Compare(size, "<", Constant("number", "40")),
            IsNull(region),
        ]
        wheres += [Compare(text, sign, Constant("text", "B")) for sign in ("=", "!=")]
        join = Join(3, start, WIDTHS[3], int(text.column[1:]), 0, self.keeps_all())
        return replace(
            measure,
            where=self.dice.choice(wheres),
            keys=self.dice.choice(((), *((key,) for key in keys), keys[:2])),
            tallies=(*measure.tallies, Tally("sum", size), Tally("values", Ref(f"v{start}"))),
            lookups=(join,),
        )

    def beside(self) -> PhysicalPersonJoin:
        table = self.dice.choice((0, 1, 2))
        joins = tuple(self.joins(table))
        seen = [table, *(join.table for join in joins)]
        columns = [(t, c) for t in seen for c in range(WIDTHS[t])]
        places = {pair: i for i, pair in enumerate(columns)}
        source = PhysicalPersonTable(
            self.where(places), self.columns(places), self.dice.choice((1, 3, WIDE))
        )
        return PhysicalPersonJoin(source, table, joins, self.keeps_all())

    def joins(self, first: int) -> Iterator[Join]:
        start, town, seen = WIDTHS[first], 0 if first == 0 else None, [first]
        for table in self.dice.sample((0, 1, 2), 3):
            if table != first and self.dice.random() < 0.6:
                also = self.also(seen, table)
                yield Join(table, start, WIDTHS[table], keeps_all=self.keeps_all(), also=also)
                town = start if table == 0 else town
                start += WIDTHS[table]
                seen.append(table)
        if town is not None and self.dice.random() < 0.7:
            also = self.also(seen, 3) if self.dice.random() < 0.2 else ()
            yield Join(3, start, WIDTHS[3], town, 0, self.keeps_all(), also)

    def keeps_all(self) -> bool:
        return self.dice.random() < 0.5

    def also(self, seen: Sequence[int], table: int) -> tuple[tuple[int, int], ...]:
        """Return texts or numbers that the join holds equal besides the person, or none."""
        before = [TYPES[t][c] for t in seen for c in range(WIDTHS[t])]
        pairs = [
            (i, j) for i, of in enumerate(before) for j, t in enumerate(TYPES[table]) if of == t
        ]
        return tuple(self.dice.sample(pairs, min(len(pairs), self.dice.choice((0, 0, 0, 0, 1, 2)))))

    def keys(self, places: dict[tuple[int, int], int]) -> tuple[Key, ...]:
        found = [
            Key(Ref(f"k{places[pair]}"), size) for pair, size in PUBLIC.items() if pair in places
        ]
        found += [Key(Ref(f"v{places[pair]}"), None) for pair in PRIVATE if pair in places]
        return tuple(self.dice.sample(found, min(len(found), self.dice.choice((0, 1, 1, 2)))))

    def tallies(self, places: dict[tuple[int, int], int]) -> Iterator[Tally]:
        for pair in NUMBERS:
            if pair in places:
                value = Ref(f"v{places[pair]}")
                yield Tally("sum", value, clamp=self.dice.choice((None, (0, 100))))
                yield Tally("values", value)
                yield Tally("distinct", value, max_distinct=self.dice.choice((1, 2, WIDE)))

    def columns(self, places: dict[tuple[int, int], int]) -> tuple[PhysicalPersonColumn, ...]:
        numbers = [Ref(f"v{places[pair]}") for pair in NUMBERS if pair in places]
        value = self.dice.choice(numbers) if numbers else None
        texts = [Ref(f"v{places[pair]}") for pair in TEXTS if pair in places]
        text = PhysicalPersonColumn(self.dice.choice(("min", "max")), self.dice.choice(texts))
        return (
            PhysicalPersonColumn("rows"),
            PhysicalPersonColumn("rows") if value is None else PhysicalPersonColumn("max", value),
            text,
        )

    def where(self, places: dict[tuple[int, int], int]) -> Predicate | None:
        if self.dice.random() < 0.5:
            return None
        most = self.dice.choice(("40", "90"))
        found: list[Predicate] = [
            Compare(Ref(f"v{places[pair]}"), "<", Constant("number", most))
            for pair in NUMBERS
            if pair in places
        ]
        found += [IsNull(Ref(f"v{places[pair]}")) for pair in [(3, 1), (1, 0)] if pair in places]
        return self.dice.choice([None, *found, *map(Not, found)])


PUBLIC = {(1, 0): 3, (3, 1): 2}
PRIVATE = [(0, 0), (2, 0)]
NUMBERS = [(0, 1), (1, 1), (3, 2)]
TEXTS = [(0, 0), (1, 0), (2, 0)]
WIDTH = 3  # of a table of people: rows, a number and a text


@dataclass
class Met:
    """Of each kind of question, how many of its answers are not empty."""

    found: dict[str, list[bool]] = field(default_factory=dict)

    def note(self, measure: Measure, by_hand: Numbers) -> None:
        """Note whether something is in the answer."""
        self.found.setdefault(kind_of(measure), []).append(bool(by_hand))

    def is_mostly(self, kinds: Sequence[str]) -> bool:
        """Say whether two in three answers of just these kinds have something in them."""
        shares = {kind: sum(some) / len(some) for kind, some in self.found.items()}
        return set(shares) == set(kinds) and min(shares.values()) > 2 / 3


KINDS = ("rows", "people", "rows", "joined", "looked up")


def kind_of(measure: Measure) -> str:
    if measure.source is None:
        return "rows"
    return (
        "looked up" if measure.lookups else "joined" if measure.joined_person_tables else "people"
    )


ByHand = Callable[[Measure], Numbers]


def telling(
    dice: random.Random, draw: Callable[[], Measure], of: str, by_hand: ByHand
) -> tuple[Measure, Numbers]:
    """Return a measure of that kind and its answer; where nothing is in it, every tenth."""
    while True:
        measure = draw()
        if kind_of(measure) == of:
            found = by_hand(measure)
            if found or dice.random() < 0.1:
                return measure, found


def reading(table: str, kind: str, stored: Sequence[list[Row]]) -> ByHand:
    """Return who adds measures up by hand, in the order that this engine chooses cells by."""

    def by_hand(measure: Measure) -> Numbers:
        order = kernel_order if orders_by_kernel(table, measure, kind) else None
        others = rows_beside(measure, stored)
        return added_up(measure, joined_rows(measure, stored), order=order, others=others)

    return by_hand


def test_tables_beside_each_other_are_added_up_as_by_hand(
    engine: Engine, kind: str, tmp_path: Path
) -> None:
    met = Met()
    for seed in range(SEEDS[kind]):
        dice = random.Random(seed)
        tables = random_tables(dice)
        table = prepared(engine, tmp_path / f"{seed}", tables)
        by_hand = reading(table, kind, twins(tmp_path / f"{seed}", tables))
        for place in range(MEASURES[kind]):
            of = KINDS[place % len(KINDS)]
            measure, found = telling(dice, Asking(dice).some_measure, of, by_hand)
            assert numbers(engine, table, measure) == found, measure
            met.note(measure, found)
    assert met.is_mostly(KINDS)


def looking(dice: random.Random) -> Measure:
    """Return people of a table, perhaps beside those of another, who are looked up among towns."""
    asking = Asking(dice)
    first, *others = dice.sample((0, 1, 2), dice.choice((1, 2)))

    def each(table: int) -> PhysicalPersonTable:
        columns = asking.columns({(table, c): c for c in range(WIDTHS[table])})
        return PhysicalPersonTable(None, columns, dice.choice((1, 3, WIDE)))

    tallies = (Tally("rows"), Tally("sum", Ref("u0")))
    beside = tuple(PhysicalPersonJoin(each(table), table, (), keeps_all=True) for table in others)
    made = Measure(None, (), tallies, True, 1, 1, each(first), first, joined_person_tables=beside)
    made = asking.looking_up(made, WIDTH * (1 + len(beside)))
    return replace(made, where=dice.choice((made.where, None, None)))


def test_what_people_look_up_is_added_up_as_by_hand(
    engine: Engine, kind: str, tmp_path: Path
) -> None:
    """Of tables that are full."""
    dice, met = random.Random(11), Met()
    tables = random_tables(dice)
    while not all(tables[:3]):
        tables = random_tables(dice)
    table = prepared(engine, tmp_path / "full", tables)
    by_hand = reading(table, kind, twins(tmp_path / "full", tables))
    for _ in range(LOOKED_UP[kind]):
        measure, found = telling(dice, lambda: looking(dice), "looked up", by_hand)
        assert numbers(engine, table, measure) == found, measure
        met.note(measure, found)
    assert met.is_mostly(["looked up"])


def test_without_a_person_exactly_their_own_part_is_missing(engine: Engine, tmp_path: Path) -> None:
    """Who is in any of the tables is numbered anew without the others being moved."""
    dice = random.Random(7)
    tables = random_tables(dice, people=6)
    while not all(tables[:3]):
        tables = random_tables(dice, people=6)
    joins = (Join(0, 2, 2, keeps_all=True), Join(3, 4, 3, 2, 0, keeps_all=True))
    keys = (Key(Ref("k0"), 3),)
    tallies = (Tally("rows"), Tally("people"), Tally("sum", Ref("v1")), Tally("sum", Ref("v3")))
    measure = Measure(None, keys, tallies, True, 2, 3, None, 1, joins)

    def asked(rows: Sequence[list[list[str]]], name: str) -> list[list[int]]:
        return answers(engine, prepared(engine, tmp_path / name, rows), measure)

    whole = asked(tables, "whole")
    for person in ("p3", "p4", "p5"):
        rest = [[r for r in t if r[0].strip() != person] for t in tables[:3]]
        own = [[r for r in t if r[0].strip() == person] for t in tables[:3]]
        without = asked([*rest, TOWNS], f"without-{person}")
        alone = asked([*own, TOWNS], f"alone-{person}")
        assert (np.array(without) + alone == whole).all()


def test_a_public_table_has_each_key_once(engine: Engine, tmp_path: Path) -> None:
    tables = [*random_tables(random.Random(1))[:3], [*TOWNS, ["1", "s", "4"]]]
    with pytest.raises(Refused, match="source-unreadable") as refused:
        prepared(engine, tmp_path / "twice", tables)
    assert "'town'" in str(refused.value)


def test_a_public_table_has_each_key_once_in_every_engine(engine: Engine, tmp_path: Path) -> None:
    """Two texts that PostgreSQL cannot tell apart would be two rows for whoever has either."""
    tables = random_tables(random.Random(1))[:3]
    people = [
        write_source(tmp_path / f"s{i}.csv", HEADERS[i], rows) for i, rows in enumerate(tables)
    ]
    towns = tmp_path / "towns.parquet"
    twice = "unnest(['a' || chr(0), 'a' || chr(65533)]) AS town, 'n' AS region, 1 AS size"
    duckdb.sql(f"COPY (SELECT {twice}) TO '{towns}' (FORMAT parquet)")
    with pytest.raises(Refused, match="source-unreadable"):
        prepare(engine, people[0], CARD, others=(*people[1:], towns))


def test_each_table_alone_is_its_own_rows(engine: Engine, tmp_path: Path) -> None:
    """Nothing of one table, neither people nor words nor sizes, is taken from another."""
    dice = random.Random(3)
    visits = [[f"p{i}", dice.choice("abc"), str(i), "p0"] for i in range(100)]
    drugs = [[f"p{i}", f"drug {i % 7}"] for i in range(60, 130)]
    table = prepared(engine, tmp_path / "all", [[["p7", "1", "5"]], visits, drugs, TOWNS])
    few = Measure(None, (Key(Ref("k0"), 3),), (Tally("rows"), Tally("people")), True, 1, 1, table=1)
    names = Measure(None, (Key(Ref("v0"), None),), few.tallies, True, 1, 1, table=2)
    lower = Compare(Ref("v1"), "<", Constant("number", "50"))
    joined = replace(few, table=2, keys=(), joins=(Join(1, 1, 2),))
    for measure, rows in ((few, visits), (replace(few, where=lower), visits[:50])):
        counts = [sum(row[1] == place for row in rows) for place in "abc"]
        assert answers(engine, table, measure) == [counts, counts]
    for measure in (names, replace(names, where=Not(IsNull(Ref("v0"))))):
        assert numbers(engine, table, measure) == {(f"drug {i}",): (10, 10) for i in range(7)}
    assert answers(engine, table, joined) == [[40], [40]]
