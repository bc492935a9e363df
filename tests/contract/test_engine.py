"""What every engine must do: add up exactly, bound every person, and couple nobody to anybody."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest
from scipy.stats import chi2

from engine_rows import SALT, added_up, answers, card_of, cleaned, prepare, write_source
from sfumato.core.card import Card
from sfumato.core.measure import KeyColumn, Measure, Tally
from sfumato.core.ports import Engine, EngineStopped
from sfumato.core.question import (
    OPERATORS,
    All,
    Among,
    AnyOf,
    Compare,
    Constant,
    IsNull,
    Not,
    Predicate,
)
from sfumato.engines.duckdb import DuckDBEngine

OTHER_SALT = bytes(range(1, 33))
WIDE = 10**6  # a bound that nobody reaches


def make_engine(kind: str, salt: bytes = SALT) -> Engine:
    if kind == "duckdb":
        return DuckDBEngine(salt, memory_mb=1024, threads=2, deadline_s=60)
    raise NotImplementedError(kind)


@pytest.fixture(scope="module", params=["duckdb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(kind: str) -> Iterator[Engine]:
    made = make_engine(kind)
    yield made
    made.close()


@pytest.fixture(scope="module")
def other_engine(kind: str) -> Iterator[Engine]:
    made = make_engine(kind, OTHER_SALT)
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
    "word": ["a", "b c", " a ", "ü'", "z", "", "n/a", "A"],
    "flag": ["true", "F", "Yes", "n", "0", "1", "maybe", ""],
    "day": ["2020-02-29", "2021-01-01", "2021-02-29", "yesterday", ""],
    "moment": ["2020-01-01 10:00:00", "2020-01-01T10:00:00.5", "2020-01-01", "noon", "n/a"],
}
CONSTANTS: dict[str, list[Constant]] = {
    "v0": [Constant.of(Fraction(n)) for n in ("-8", "1/2", "10", "12", "25/2", "-1/3")],
    "v1": [Constant.of(Fraction(n)) for n in ("1", "2", "3", "5/2", "1000000000000000000000")],
    "v2": [Constant.of(Fraction(n)) for n in ("0", "3", "11", "5/2", "-2")],
    "v3": [Constant("text", t) for t in ("a", "b c", "ü'", "")],
    "v4": [Constant.of(True), Constant.of(False)],
    "v5": [Constant("text", t) for t in ("2020-02-29", "2020-12-31", "2021-01-01")],
    "v6": [Constant("text", f"2020-01-01 10:00:00.{f}") for f in ("000000", "500000", "100000")],
}
KEYS = [KeyColumn("k1", 3), KeyColumn("k3", 3), KeyColumn("k4", 2), KeyColumn("k5", 2)]


def random_rows(dice: random.Random, count: int) -> list[list[str]]:
    return [[dice.choice(CELLS[name]) for name in HEADER] for _ in range(count)]


def random_condition(dice: random.Random, depth: int = 0) -> Predicate:
    column = dice.choice(list(CONSTANTS))
    constants = CONSTANTS[column]
    choice = dice.randrange(3 if depth > 2 else 6)
    if choice == 0:
        operators = ("=", "!=") if column == "v4" else OPERATORS
        return Compare(column, dice.choice(operators), dice.choice(constants))
    if choice == 1:
        return Among(column, tuple(dice.sample(constants, dice.randint(1, len(constants)))))
    if choice == 2:
        return IsNull(column)
    if choice == 3:
        return Not(random_condition(dice, depth + 1))
    parts = tuple(random_condition(dice, depth + 1) for _ in range(dice.randint(1, 3)))
    return All(parts) if choice == 4 else AnyOf(parts)


def random_measure(dice: random.Random, by_person: bool) -> Measure:
    tallies = [Tally("rows"), Tally("values", dice.choice(list(CONSTANTS)))]
    tallies += [Tally("sum", dice.choice(("v0", "v1")), dice.randint(-3, 3), dice.randint(-9, 9))]
    tallies += [Tally("people")] if by_person else []
    dice.shuffle(tallies)
    return Measure(
        where=random_condition(dice) if dice.random() < 0.8 else None,
        keys=tuple(dice.sample(KEYS, dice.randint(0, 3))),
        tallies=tuple(tallies[: dice.randint(1, len(tallies))]),
        by_person=by_person,
        max_groups=WIDE if dice.random() < 0.5 else 36,
        max_rows=WIDE,
    )


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("unit", ["who", "row"])
def test_what_no_bound_touches_is_added_up_as_by_hand(
    engine: Engine, tmp_path: Path, seed: int, unit: str
) -> None:
    dice = random.Random(seed)
    card = replace(CARD, unit=unit)
    rows = random_rows(dice, dice.choice((0, 1, 40, 120)))
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", HEADER, rows), card)
    by_hand = cleaned(card, HEADER, rows)
    for _ in range(20):
        measure = random_measure(dice, card.by_person)
        assert answers(engine, table, measure) == added_up(measure, by_hand), measure


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
TALLIES = (Tally("rows"), Tally("people"), Tally("sum", "v2"), Tally("values", "v2"))
BOUNDED = Measure(None, (KeyColumn("k1", 5),), TALLIES, True, 2, 3)


def visits(dice: random.Random, people: int = 12, rows: int = 150) -> list[list[str]]:
    """Return visits whose costs are all different, so that a sum tells which rows were kept."""
    names = [f"p{i}" for i in range(people)]
    return [
        [dice.choice(names), dice.choice(PLACES), "" if not i % 17 else str(dice.randint(1, 10**9))]
        for i in range(rows)
    ]


def only(person: str) -> Measure:
    return replace(BOUNDED, where=Compare("v0", "=", Constant("text", person)))


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
    assert answers(other_engine, visited, measure) != answers(engine, visited, measure)


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
    wanted = Compare("v1", "=", Constant("text", "c"))
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


@pytest.mark.parametrize("salt", [SALT, OTHER_SALT, b"\x07" * 32], ids=["one", "other", "third"])
def test_every_cell_of_a_person_is_kept_equally_often(
    kind: str, tmp_path: Path, salt: bytes
) -> None:
    engine = make_engine(kind, salt)
    source = write_source(tmp_path / "crowd.csv", VISITS, crowd(10_000))
    table, _ = prepare(engine, source, VISITS_CARD, salt=salt)
    (people,) = answers(engine, table, replace(BOUNDED, tallies=(Tally("people"),), max_groups=1))
    engine.close()
    assert sum(people) == 10_000
    assert p_value(people) > 1e-4
    assert len(set(people)) > 1  # chance, not turns


def test_every_pair_of_cells_is_kept_equally_often(engine: Engine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "crowd.csv", VISITS, crowd(500))
    table, _ = prepare(engine, source, VISITS_CARD)
    pairs = dict.fromkeys(combinations(range(5), 2), 0)
    for place in range(500):
        (people,) = answers(engine, table, replace(only(f"q{place}"), tallies=(Tally("people"),)))
        pairs[next(p for p in pairs if people[p[0]] and people[p[1]])] += 1
    assert sum(pairs.values()) == 500
    assert p_value(list(pairs.values())) > 1e-4


def test_every_row_of_a_person_is_kept_equally_often(engine: Engine, tmp_path: Path) -> None:
    marks = [1, 10**5, 10**10, 10**15]  # a sum of fewer than 10**5 marks tells how many of each
    card = card_of(
        "who", {"mark": {"type": "integer", "lower": 0, "upper": 10**15}}, limits={"rows": 10**5}
    )
    rows = [[f"q{i}", str(mark)] for i in range(4_000) for mark in marks]
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", ["who", "mark"], rows), card)
    ((total,),) = answers(engine, table, Measure(None, (), (Tally("sum", "v0"),), True, 1, 1))
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
        alone = replace(free, where=Compare("v0", "=", Constant("text", f"p{place}")))
        assert moved == answers(engine, table, alone)
        assert sum(moved[0]) == 4


def test_a_sum_at_the_edge_of_what_is_allowed_is_exact(engine: Engine, tmp_path: Path) -> None:
    top = 10**15  # what a card may declare at most
    card = card_of("row", {"v": {"type": "integer", "lower": -top, "upper": top}})
    rows = [[str(top)]] * 900 + [[str(-top)]] * 50
    table, _ = prepare(engine, write_source(tmp_path / "s.csv", ["v"], rows), card)
    measure = Measure(None, (), (Tally("sum", "v0"), Tally("sum", "v0", 1, top)), False, 1, 1)
    assert answers(engine, table, measure) == [[850 * top], [900 * 2 * top]]


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
