"""What every engine must do: add up exactly, bound every person, and couple nobody to anybody."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Literal

import pytest
from scipy.stats import chi2

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.query.expression import (
    FIELDS,
    OPERATORS,
    SIGNS,
    UNITS,
    All,
    Among,
    AnyOf,
    Arithmetic,
    Case,
    Clamp,
    Coalesce,
    Compare,
    Constant,
    DateField,
    DateTrunc,
    Expr,
    IsNull,
    LiteralValue,
    Not,
    Operator,
    Predicate,
    Ref,
    StartsWith,
)
from sfumato.query.measure import Key, Measure, PhysicalPersonColumn, PhysicalPersonTable, Tally
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import Engine, EngineStopped
from support.engine_rows import (
    SALT,
    Row,
    added_up,
    answers,
    card_of,
    cleaned,
    numbers,
    prepare,
    stored_rows,
    write_source,
)
from support.kernel_oracle import kernel_order, orders_by_kernel

OTHER_SALT = bytes(range(1, 33))
WIDE = 10**6  # a bound that nobody reaches
SEEDS = {"duckdb": 3, "postgres": 2, "spark": 1}  # random tables, per test and engine
MANY = {"duckdb": 12, "postgres": 8, "spark": 2}  # of each part of `make slow`
MEASURES = {"duckdb": 40, "postgres": 20, "spark": 6}  # random measures of each
PAIRS = {"duckdb": 500, "postgres": 500, "spark": 30}  # people asked for one by one


Maker = Callable[[bytes], Engine]


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(SALT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def other_engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(OTHER_SALT)
    yield made
    made.close()


# --- random measures on random tables -------------------------------------------------------------

HEADER = ["who", "small", "whole", "free", "word", "flag", "day", "moment"]
CARD = card_of(
    "who",
    {
        "small": {"type": "number", "lower": -2, "upper": 3, "step": Fraction(1, 4)},
        "whole": {"type": "integer", "keys": [1, 2, 3]},
        "free": {"type": "number", "step": Fraction(1, 10)},
        "word": {"type": "text", "keys": ["a", "b c", "ü'"]},
        "flag": {"type": "boolean"},
        "day": {"type": "date", "keys": ["2020-02-29", "2021-01-01"]},
        "moment": {"type": "timestamp"},
    },
    nulls=["", "n/a"],
)
CELLS: dict[str, list[str]] = {
    "who": ["p1", "p2", " p3 ", "p4", "p5", "", "n/a"],
    "small": "0.125 -0.125 2.5 1e300 -1e300 +1.5 -2 3 0.37499999999999999999 n/a".split(),
    "whole": ["1", "2", "3", "2.5", "-2.5", "1e1", "0x10", "1_000", "", "9" * 30],
    "free": ["0.25", "-0.25", "1.05", "nan", "inf", "-inf", " 7 ", "1,5", "1e-5", "-1e-5"],
    "word": ["a", "b c", " a ", "ü'", "z", "", "n/a", "A", "B", "a%_?", "\U0001f600x", "\uffeee"],
    "flag": ["true", "F", "Yes", "n", "0", "1", "maybe", ""],
    "day": ["2020-02-29", "2021-01-01", "2021-02-29", "1969-12-28", "1969-12-29", "0001-01-01", ""],
    "moment": [
        "2020-01-01 10:00:00", "2020-01-01T10:00:00.5", "2020-01-01", "noon", "n/a",
        "1969-12-31 23:59:59.999999", "9999-12-31 23:00:00", "1950-03-31 01:02:03.000100",
    ],
}  # fmt: skip
WORDS = ["a", "b c", "ü'", "", "A", "B", "a%", "\U0001f600", "_"]
DATES = ["2020-02-29", "2020-12-31", "2021-01-01", "1969-12-29"]
MOMENTS = [f"2020-01-01 10:00:00.{f}" for f in ("000000", "500000", "100000")]
FRACTIONS = ("-8", "1/2", "10", "12", "25/2", "-1/3", "1", "2", "3", "0", "-2", "1" + "0" * 21)
WHOLE = (-7, -1, 0, 1, 2, 3, 10, 2**31 - 1, 3 * 10**9)
LARGE = 2**40  # nothing that a random expression makes is larger
Bounded = tuple[Expr, int]  # a number, and how far from zero it can be


@dataclass(frozen=True)
class Given:
    """What random expressions are made of."""

    numbers: tuple[Bounded, ...]
    texts: tuple[Expr, ...]
    flags: tuple[Expr, ...]
    dates: tuple[Expr, ...]
    moments: tuple[Expr, ...]


def ref(name: str) -> Expr:
    return Ref(name)


def held(name: str) -> Bounded:
    return Clamp(Ref(name), Constant.of(-1000), Constant.of(999)), 1000


ROWS = Given(
    ((ref("v0"), 12), held("v1"), held("v2")),
    (ref("v3"),),
    (ref("v4"),),
    (ref("v5"),),
    (ref("v6"),),
)


def random_rows(dice: random.Random, count: int) -> list[list[str]]:
    return [[dice.choice(CELLS[name]) for name in HEADER] for _ in range(count)]


def whole(value: int) -> Expr:
    return LiteralValue(Constant.of(value))


def random_number(dice: random.Random, given: Given, depth: int = 2) -> Expr:
    return _number(dice, given, depth)[0]


def _number(dice: random.Random, given: Given, depth: int) -> Bounded:
    made, most = _any_number(dice, given, depth)
    if most <= LARGE:
        return made, most
    return Clamp(made, Constant.of(-LARGE), Constant.of(LARGE)), LARGE


def _any_number(dice: random.Random, given: Given, depth: int) -> Bounded:
    if depth == 0 or dice.random() < 0.2:
        if dice.random() < 0.2:
            value = dice.choice(WHOLE)
            return whole(value), abs(value)
        return dice.choice(given.numbers)
    kind = dice.choice(("sign", "sign", "sign", "clamp", "coalesce", "case", "time"))
    times = (*given.dates, *given.moments)
    if kind == "time" and times:
        if dice.random() < 0.5:
            units = UNITS if given.moments else UNITS[:-1]
            of = given.moments if given.moments else times
            return DateTrunc(dice.choice(units), dice.choice(of)), 10**8
        fields = FIELDS if given.moments else FIELDS[:-1]
        return DateField(dice.choice(fields), dice.choice(given.moments or times)), 9999
    one, most = _number(dice, given, depth - 1)
    other, more = _number(dice, given, depth - 1)
    if kind == "clamp":
        low, high = sorted(dice.choices(range(-20, 21), k=2))
        ends = dice.choice(((low, high), (low, None), (None, high)))
        lower, upper = (None if end is None else Constant.of(end) for end in ends)
        return Clamp(one, lower, upper), max(most, 20)
    if kind == "coalesce":
        return Coalesce((one, other)), max(most, more)
    if kind == "case":
        whens = ((random_condition(dice, given, 2), one),)
        return Case(whens, other if dice.random() < 0.7 else None), max(most, more)
    sign = dice.choice(SIGNS)
    if sign == "*" and most * more > 2**60:
        sign = "-"
    return Arithmetic(sign, one, other), {"*": most * more, "/": most}.get(sign, most + more)


def random_text(dice: random.Random, given: Given) -> Expr:
    constant = LiteralValue(Constant("text", dice.choice(WORDS)))
    return _chosen(dice, given, dice.choice(given.texts), constant)


def random_flag(dice: random.Random, given: Given) -> Expr:
    constant = LiteralValue(Constant.of(dice.random() < 0.5))
    return _chosen(dice, given, dice.choice(given.flags), constant)


def _chosen(dice: random.Random, given: Given, column: Expr, constant: Expr) -> Expr:
    choice = dice.randrange(6)
    if choice == 0:
        return Coalesce((column, constant))
    if choice == 1:
        return Case(((random_condition(dice, given, 2), column),), constant)
    if choice == 2:
        return Case(((random_condition(dice, given, 2), constant),), None)
    return column


def random_value(dice: random.Random, given: Given) -> Expr:
    """Return an expression of any type."""
    makers: list[Callable[[random.Random, Given], Expr]] = [random_number]
    makers += [random_text] if given.texts else []
    makers += [random_flag] if given.flags else []
    if dice.random() < 0.2 and (*given.dates, *given.moments):
        return dice.choice((*given.dates, *given.moments))
    return dice.choice(makers)(dice, given)


def random_condition(dice: random.Random, given: Given, depth: int = 0) -> Predicate:
    choice = dice.randrange(3 if depth > 2 else 6)
    if choice == 0:
        return IsNull(random_value(dice, given))
    if choice in (1, 2):
        return random_comparison(dice, given)
    if choice == 3:
        return Not(random_condition(dice, given, depth + 1))
    parts = tuple(random_condition(dice, given, depth + 1) for _ in range(dice.randint(1, 3)))
    return All(parts) if choice == 4 else AnyOf(parts)


def random_comparison(dice: random.Random, given: Given) -> Predicate:
    kind = dice.choice(("number", "number", "text", "flag", "date", "moment"))
    if kind == "text" and given.texts:
        of = random_text(dice, given)
        if dice.random() < 0.4:
            return StartsWith(of, dice.choice(WORDS))
        words = [Constant("text", word) for word in WORDS]
        if not isinstance(of, Ref):  # only a column is asked for its order, and only here
            return Compare(of, dice.choice(("=", "!=")), dice.choice(words))
        return _compared(dice, of, words)
    if kind == "flag" and given.flags:
        signs: tuple[Operator, Operator] = ("=", "!=")
        return Compare(random_flag(dice, given), dice.choice(signs), Constant.of(True))
    if kind == "date" and given.dates:
        return _compared(dice, dice.choice(given.dates), [Constant("date", d) for d in DATES])
    if kind == "moment" and given.moments:
        moments = [Constant("timestamp", m) for m in MOMENTS]
        return _compared(dice, dice.choice(given.moments), moments)
    numbers = [Constant.of(Fraction(n)) for n in FRACTIONS]
    return _compared(dice, random_number(dice, given, 1), numbers)


def _compared(dice: random.Random, of: Expr, constants: list[Constant]) -> Predicate:
    if dice.random() < 0.3:
        return Among(of, tuple(dice.sample(constants, dice.randint(1, len(constants)))))
    return Compare(of, dice.choice(OPERATORS), dice.choice(constants))


PUBLIC = [Key(Ref("k1"), 3), Key(Ref("k3"), 3), Key(Ref("k5"), 2)]


def random_key(dice: random.Random, given: Given, private: float) -> Key:
    if dice.random() < private:
        return Key(random_value(dice, given), None)
    if given is ROWS and dice.random() < 0.6:
        return dice.choice(PUBLIC)
    size = dice.randint(1, 9)
    return Key(Arithmetic("-", random_number(dice, given, 1), whole(dice.randint(-3, 3))), size)


def random_tallies(dice: random.Random, given: Given, by_person: bool) -> tuple[Tally, ...]:
    number = random_number(dice, given)
    low, high = sorted(dice.sample(range(-40, 41), k=2))
    tallies = [
        Tally("rows"),
        Tally("values", random_value(dice, given)),
        Tally("sum", number, dice.randint(-3, 3), dice.randint(-9, 9)),
        Tally("sum", number, dice.randint(1, 3), dice.randint(-2, 2), clamp=(low, high)),
        Tally("histogram", random_number(dice, given, 1), size=dice.randint(1, 8)),
        Tally("distinct", random_value(dice, given), max_distinct=dice.choice((1, 2, WIDE))),
    ]
    dice.shuffle(tallies)
    some = tallies[: dice.randint(1, 4)]
    if by_person or not any(tally.kind in ("rows", "values", "sum") for tally in some):
        some.append(Tally("people"))
    return tuple(dict.fromkeys(some))


def random_people(dice: random.Random, max_rows: int) -> tuple[PhysicalPersonTable, Given]:
    """Return a table with one row for each person, and what can be computed of it."""
    kinds: tuple[Literal["sum", "min", "max"], ...] = ("sum", "min", "max")
    columns = [
        PhysicalPersonColumn("rows"),
        PhysicalPersonColumn("values", random_value(dice, ROWS)),
    ]
    columns += [
        PhysicalPersonColumn(dice.choice(kinds), random_number(dice, ROWS, 1)) for _ in range(2)
    ]
    columns += [PhysicalPersonColumn(dice.choice(kinds[1:]), Ref("v5"))]
    where = random_condition(dice, ROWS) if dice.random() < 0.6 else None
    numbers = tuple((ref(f"u{i}"), 2**20) for i in range(2))
    numbers += tuple((Clamp(Ref(f"u{i}"), Constant.of(-99), Constant.of(99)), 99) for i in (2, 3))
    return PhysicalPersonTable(where, tuple(columns), max_rows), Given(
        numbers, (), (), (ref("u4"),), ()
    )


def random_measure(
    dice: random.Random, by_person: bool, *, max_groups: int = WIDE, max_rows: int = WIDE
) -> Measure:
    given, source = ROWS, None
    if by_person and dice.random() < 0.25:
        source, given = random_people(dice, max_rows)
    private = dice.choice((0.0, 0.0, 0.5, 1.0))
    keys = [random_key(dice, given, private) for _ in range(dice.choice((0, 1, 1, 2, 3)))]
    return Measure(
        where=random_condition(dice, given) if dice.random() < 0.6 else None,
        keys=tuple(keys),
        tallies=random_tallies(dice, given, by_person),
        by_person=by_person,
        max_groups=1 if source is not None else max_groups,
        max_rows=1 if source is not None else max_rows,
        source=source,
    )


def without_few(measure: Measure) -> Measure:
    """Return the measure counting every different value that a person has."""
    tallies = [
        replace(t, max_distinct=WIDE) if t.kind == "distinct" else t for t in measure.tallies
    ]
    return replace(measure, tallies=tuple(dict.fromkeys(tallies)))


def check_random_measures(engine: Engine, folder: Path, seed: int, unit: str, count: int) -> None:
    """Hold random measures that no bound touches against a plain reading of the source."""
    dice = random.Random(seed)
    card = replace(CARD, unit=unit)
    rows = random_rows(dice, dice.choice((0, 1, 40, 120)))
    table, _ = prepare(engine, write_source(folder / "s.csv", HEADER, rows), card)
    by_hand = cleaned(card, HEADER, rows)
    for _ in range(count):
        measure = without_few(random_measure(dice, card.by_person))
        assert numbers(engine, table, measure) == added_up(measure, by_hand), measure


def check_random_bounds(engine: Engine, kind: str, folder: Path, seed: int, count: int) -> None:
    """Hold random measures whose bounds bite against the same secret order, reckoned by hand."""
    dice = random.Random(1000 + seed)
    source = write_source(folder / "s.csv", HEADER, random_rows(dice, 150))
    table, _ = prepare(engine, source, CARD)
    by_hand = rows_in_secret_order(source, CARD)
    for _ in range(count):
        groups, rows = dice.choice((1, 1, 2, 3)), dice.choice((1, 2, 5, WIDE))
        measure = random_measure(dice, True, max_groups=groups, max_rows=rows)
        order = kernel_order if orders_by_kernel(table, measure, kind) else None
        expected = added_up(measure, by_hand, order=order)
        assert numbers(engine, table, measure) == expected, measure


def rows_in_secret_order(source: Path, card: Card) -> list[Row]:
    """Return what DuckDB's preparation makes of the source, which the other engines copy."""
    duck = DuckDBEngine(SALT, memory_mb=1024, threads=1)
    copy = source.with_name(f"twin-{source.name}")
    copy.write_bytes(source.read_bytes())
    table, _ = prepare(duck, copy, card)
    duck.close()
    return stored_rows(table)


@pytest.mark.parametrize("unit", ["who", "row"])
def test_what_no_bound_touches_is_added_up_as_by_hand(
    engine: Engine, kind: str, tmp_path: Path, unit: str
) -> None:
    for seed in range(SEEDS[kind]):
        check_random_measures(engine, tmp_path, seed, unit, MEASURES[kind])


def test_where_a_bound_bites_the_secret_order_decides(
    engine: Engine, kind: str, tmp_path: Path
) -> None:
    for seed in range(SEEDS[kind]):
        check_random_bounds(engine, kind, tmp_path, seed, MEASURES[kind])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_more_random_measures(engine: Engine, kind: str, tmp_path: Path, part: int) -> None:
    for seed in range(100 * part + 100, 100 * part + 100 + MANY[kind]):
        check_random_measures(engine, tmp_path, seed, ("who", "row")[seed % 2], MEASURES[kind])
        check_random_bounds(engine, kind, tmp_path, seed, MEASURES[kind])


# --- bounds ---------------------------------------------------------------------------------------

VISITS = ["who", "place", "cost"]
PLACES = ["a", "b", "c", "d", "e"]
VISITS_CARD = card_of(
    "who",
    {
        "who": {"type": "text"},
        "place": {"type": "text", "keys": PLACES},
        "cost": {"type": "integer", "lower": -(10**9), "upper": 10**9},
    },
)
TALLIES = (Tally("rows"), Tally("people"), Tally("sum", Ref("v2")), Tally("values", Ref("v2")))
BOUNDED = Measure(None, (Key(Ref("k1"), 5),), TALLIES, True, 2, 3)


def visits(dice: random.Random, people: int = 12, rows: int = 150) -> list[list[str]]:
    """Return visits whose costs are all different, so that a sum tells which rows were kept."""
    names = [f"p{i}" for i in range(people)]
    return [
        [dice.choice(names), dice.choice(PLACES), "" if not i % 17 else str(dice.randint(1, 10**9))]
        for i in range(rows)
    ]


def only(person: str) -> Measure:
    return replace(BOUNDED, where=Compare(Ref("v0"), "=", Constant("text", person)))


def difference(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(one, other, strict=True)]


@pytest.fixture(scope="module")
def visited(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    source = tmp_path_factory.mktemp("visits") / "visits.csv"
    return prepare(engine, write_source(source, VISITS, visits(random.Random(1))), VISITS_CARD)[0]


def test_nobody_is_in_more_cells_or_has_more_rows_in_one_than_allowed(
    engine: Engine, visited: str
) -> None:
    for place in range(12):
        rows, people, total, values = answers(engine, visited, only(f"p{place}"))
        assert sum(people) == sum(1 for n in rows if n) == 2  # of five, everyone has at least three
        assert max(people) == 1
        assert max(rows) <= 3
        assert all(v <= n for v, n in zip(values, rows, strict=True))
        assert sum(abs(t) for t in total) <= 2 * 3 * 10**9


def test_the_bounds_are_used_up_and_not_undercut(engine: Engine, tmp_path: Path) -> None:
    rows = [["p", place, "7"] for place in PLACES for _ in range(10)]
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", VISITS, rows), VISITS_CARD)
    for groups, most in ((1, 1), (2, 3), (4, 9), (5, 10), (6, 11)):
        found = answers(engine, table, replace(BOUNDED, max_groups=groups, max_rows=most))
        cells, kept = min(groups, 5), min(most, 10)
        assert sorted(found[0]) == [0] * (5 - cells) + [kept] * cells
        assert [sum(tally) for tally in found] == [
            cells * kept, cells, 7 * cells * kept, cells * kept
        ]  # fmt: skip


def test_without_a_person_exactly_their_own_part_is_missing(
    engine: Engine, tmp_path: Path, visited: str
) -> None:
    rows = visits(random.Random(1))
    everyone = answers(engine, visited, BOUNDED)
    for place in range(12):
        name = f"p{place}"
        rest = [row for row in rows if row[0] != name]
        source = write_source(tmp_path / f"without_{name}.csv", VISITS, rest)
        table, _ = prepare(engine, source, VISITS_CARD)
        moved = difference(everyone, answers(engine, table, BOUNDED))
        assert moved == answers(engine, visited, only(name))
        assert sum(abs(n) for n in moved[2]) <= 2 * 3 * 10**9
        assert sum(moved[0]) <= 2 * 3


def test_the_parts_of_all_people_are_the_whole(engine: Engine, visited: str) -> None:
    parts = [answers(engine, visited, only(f"p{place}")) for place in range(12)]
    whole = [[sum(cell) for cell in zip(*tally, strict=True)] for tally in zip(*parts, strict=True)]
    assert whole == answers(engine, visited, BOUNDED)


def test_the_order_of_the_source_changes_nothing(
    engine: Engine, tmp_path: Path, visited: str
) -> None:
    rows = visits(random.Random(1))
    random.Random(2).shuffle(rows)
    table, _ = prepare(engine, write_source(tmp_path / "shuffled.csv", VISITS, rows), VISITS_CARD)
    assert answers(engine, table, BOUNDED) == answers(engine, visited, BOUNDED)


def test_another_secret_keeps_other_cells_and_other_rows(
    engine: Engine, other_engine: Engine, tmp_path: Path, visited: str
) -> None:
    source = write_source(tmp_path / "s.csv", VISITS, visits(random.Random(1)))
    table, _ = prepare(other_engine, source, VISITS_CARD, salt=OTHER_SALT)
    for groups, most in ((1, WIDE), (WIDE, 1)):
        measure = replace(BOUNDED, max_groups=groups, max_rows=most)
        assert answers(other_engine, table, measure) != answers(engine, visited, measure)


def test_which_cells_are_kept_hangs_on_the_engines_secret_too(
    engine: Engine, other_engine: Engine, visited: str
) -> None:
    measure = replace(BOUNDED, max_groups=1)
    if isinstance(engine, DuckDBEngine):  # stored ranks hang on the salt of the preparation
        measure = replace(measure, where=Not(IsNull(Ref("v1"))), keys=computed(BOUNDED.keys))
    assert answers(other_engine, visited, measure) != answers(engine, visited, measure)


def computed(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """Return the same keys by another name, of which no rank is stored."""
    return tuple(Key(Arithmetic("+", key.value, whole(0)), key.size) for key in keys)


def test_which_rows_are_kept_hangs_on_the_secret_of_the_order(
    engine: Engine, other_engine: Engine, tmp_path: Path, visited: str
) -> None:
    source = write_source(tmp_path / "s.csv", VISITS, visits(random.Random(1)))
    measure = replace(BOUNDED, max_groups=WIDE, max_rows=1)
    same, _ = prepare(other_engine, source, VISITS_CARD, salt=SALT)
    assert answers(engine, same, measure) == answers(engine, visited, measure)
    other, _ = prepare(other_engine, source, VISITS_CARD, salt=OTHER_SALT)
    assert answers(engine, other, measure) != answers(engine, visited, measure)


def test_a_filter_works_before_the_bounds(engine: Engine, visited: str) -> None:
    """Whoever has rows in the cell that is asked for is counted there, whatever else they have."""
    wanted = Compare(Ref("v1"), "=", Constant("text", "c"))
    free = replace(BOUNDED, where=wanted, max_groups=WIDE)
    assert answers(engine, visited, replace(free, max_groups=1)) == answers(engine, visited, free)


# --- the choice is uniform ------------------------------------------------------------------------


def p_value(observed: Sequence[int]) -> float:
    expected = sum(observed) / len(observed)
    statistic = sum((n - expected) ** 2 / expected for n in observed)
    return float(chi2.sf(statistic, len(observed) - 1))


def crowd(people: int) -> list[list[str]]:
    """Return people with one row in every place; the row's number differs by place."""
    return [[f"q{i}", place, "1"] for i in range(people) for place in PLACES]


def test_every_cell_of_a_person_is_kept_equally_often(
    engine: Engine, other_engine: Engine, tmp_path: Path
) -> None:
    source = write_source(tmp_path / "crowd.csv", VISITS, crowd(10_000))
    for asked, salt in ((engine, SALT), (other_engine, OTHER_SALT)):
        table, _ = prepare(asked, source, VISITS_CARD, salt=salt)
        (people,) = answers(
            asked, table, replace(BOUNDED, tallies=(Tally("people"),), max_groups=1)
        )
        assert sum(people) == 10_000
        assert p_value(people) > 1e-4
        assert len(set(people)) > 1  # chance, not turns


def test_every_pair_of_cells_is_kept_equally_often(
    engine: Engine, kind: str, tmp_path: Path
) -> None:
    source = write_source(tmp_path / "crowd.csv", VISITS, crowd(PAIRS[kind]))
    table, _ = prepare(engine, source, VISITS_CARD)
    pairs = dict.fromkeys(combinations(range(5), 2), 0)
    for place in range(PAIRS[kind]):
        (people,) = answers(engine, table, replace(only(f"q{place}"), tallies=(Tally("people"),)))
        pairs[next(p for p in pairs if people[p[0]] and people[p[1]])] += 1
    assert sum(pairs.values()) == PAIRS[kind]
    assert p_value(list(pairs.values())) > 1e-4


def test_every_row_of_a_person_is_kept_equally_often(engine: Engine, tmp_path: Path) -> None:
    marks = [1, 10**5, 10**10, 10**15]  # a sum of fewer than 10**5 marks tells how many of each
    card = card_of(
        "who", {"mark": {"type": "integer", "lower": 0, "upper": 10**15}}, limits={"rows": 10**5}
    )
    rows = [[f"q{i}", str(mark)] for i in range(4_000) for mark in marks]
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", ["who", "mark"], rows), card)
    ((total,),) = answers(engine, table, Measure(None, (), (Tally("sum", Ref("v0")),), True, 1, 1))
    kept = [total // mark % 10**5 for mark in marks]
    assert sum(kept) == 4_000
    assert p_value(kept) > 1e-4


# --- preparation: cut, drop, count ----------------------------------------------------------------


def cut_card(rows_per_person: int) -> Card:
    return replace(VISITS_CARD, limits=replace(VISITS_CARD.limits, rows_per_person=rows_per_person))


def test_a_person_keeps_at_most_the_cards_maximum_of_rows(engine: Engine, tmp_path: Path) -> None:
    rows = visits(random.Random(3), people=6)
    card = cut_card(4)
    table, _ = prepare(engine, write_source(tmp_path / "all.csv", VISITS, rows), card)
    free = replace(BOUNDED, max_groups=WIDE, max_rows=WIDE)
    everyone = answers(engine, table, free)
    assert sum(everyone[0]) == 6 * 4
    for place in range(6):
        rest = [row for row in rows if row[0] != f"p{place}"]
        source = write_source(tmp_path / f"{place}.csv", VISITS, rest)
        moved = difference(everyone, answers(engine, prepare(engine, source, card)[0], free))
        alone = replace(free, where=Compare(Ref("v0"), "=", Constant("text", f"p{place}")))
        assert moved == answers(engine, table, alone)
        assert sum(moved[0]) == 4


def test_a_sum_at_the_edge_of_what_is_allowed_is_exact(engine: Engine, tmp_path: Path) -> None:
    top = 10**15  # what a card may declare at most
    card = card_of("row", {"v": {"type": "integer", "lower": -top, "upper": top}})
    rows = [[str(top)]] * 900 + [[str(-top)]] * 50
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", ["v"], rows), card)
    measure = Measure(
        None, (), (Tally("sum", Ref("v0")), Tally("sum", Ref("v0"), 1, top)), False, 1, 1
    )
    assert answers(engine, table, measure) == [[850 * top], [900 * 2 * top]]


def test_a_sum_of_nothing_is_nothing_however_far_from_zero_its_bounds_lie(
    engine: Engine, tmp_path: Path
) -> None:
    """A failure would tell whether anybody has a value: of one person, if the question is so."""
    card = card_of("who", {"v": {"type": "integer", "lower": 0, "upper": 9}})
    rows = [[f"p{who}", str(who % 9)] for who in range(40)]
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", ["who", "v"], rows), card)
    of_nobody = Case(
        ((Compare(Ref("v0"), "=", Constant.of(9)), LiteralValue(Constant.of(10**18))),), None
    )
    centred = Tally("sum", of_nobody, 2, -2 * 10**18)
    for where in (None, Compare(Ref("v0"), ">=", Constant.of(0))):
        for tally in (centred, replace(centred, clamp=(-5, 5))):
            measure = Measure(where, (), (Tally("rows"), tally), True, 1, 1)
            assert answers(engine, table, measure) == [[40], [0]]


def test_a_table_that_is_not_there_stops_the_engine_and_not_the_next_question(
    engine: Engine, tmp_path: Path, visited: str
) -> None:
    with pytest.raises(EngineStopped):
        engine.measure(str(tmp_path / "nowhere.duckdb"), BOUNDED)
    assert sum(answers(engine, visited, BOUNDED)[1]) == 24


def test_what_an_engine_answers_cannot_be_read_by_looking_at_it(
    engine: Engine, visited: str
) -> None:
    sealed = engine.measure(visited, BOUNDED)
    assert repr(sealed) == "Sealed(...)"
