"""Histograms of wanted private keys: exact, bounded over all of them together, on every engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.query.expression import Arithmetic, Case, Compare, Constant, Expr, LiteralValue, Ref
from sfumato.query.measure import Integers, Key, Measure, Tally
from sfumato.release.unseal import unseal
from sfumato.vault.engine_port import Engine
from support.engine_rows import SALT, card_of, prepare, write_source

Maker = Callable[[bytes], Engine]
HEADER = ["who", "town", "n", "flag", "day", "at", "size"]
CARD = card_of(
    "who",
    {
        "town": {"type": "text"},
        "n": {"type": "integer"},
        "flag": {"type": "boolean"},
        "day": {"type": "date"},
        "at": {"type": "timestamp"},
        "size": {"type": "integer", "lower": 0, "upper": 3},
    },
)
TOWNS = ("a", "b c", "ü'", "A", "\U0001f600")
DAYS = ("2020-02-29", "1969-12-31", "0001-01-01")
MOMENTS = ("2020-01-01 10:00:00.500000", "1969-12-31 23:59:59.999999")
ROWS = [
    (f"p{i % 7}", TOWNS[i % 5], str(i % 4 - 1), "yes" if i % 3 else "no", DAYS[i % 3],
     MOMENTS[i % 2], str(i * i % 5 % 4))
    for i in range(140)
]  # fmt: skip
WIDE = 1000


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(SALT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("wanted")
    return prepare(engine, write_source(folder / "t.csv", HEADER, ROWS), CARD)[0]


def whole(number: int) -> Constant:
    return Constant("number", str(number))


def text(letters: str) -> Constant:
    return Constant("text", letters)


SIZES = Tally("histogram", Ref("v5"), size=4)


def measure_of(keys: Sequence[Expr], groups: int = WIDE, rows: int = WIDE) -> Measure:
    tallies = (SIZES, Tally("people"))
    made = tuple(Key(key, None) for key in keys)
    return Measure(None, made, tallies, by_person=True, max_groups=groups, max_rows=rows)


def lists(engine: Engine, table: str, measure: Measure) -> Integers:
    return unseal(engine.measure(table, measure)).parts[0]


def by_hand(columns: Sequence[int], wanted: Sequence[Sequence[str]]) -> list[list[int]]:
    found = Counter((*(row[c] for c in columns), row[6]) for row in ROWS)
    return [[found[(*key, str(size))] for size in range(4)] for key in wanted]


LATE = Case(((Compare(Ref("v1"), ">", whole(0)), LiteralValue(text("late"))),), Ref("v0"))
CASES: list[tuple[str, tuple[Expr, ...], list[tuple[Constant, ...]], list[list[int]]]] = [
    ("texts", (Ref("v0"),), [(text(t),) for t in reversed(TOWNS)],
     by_hand([1], [(t,) for t in reversed(TOWNS)])),
    ("one that nobody has", (Ref("v0"),), [(text("nowhere"),), (text("a"),)],
     by_hand([1], [("nowhere",), ("a",)])),
    ("numbers", (Ref("v1"),), [(whole(2),), (whole(-1),)], by_hand([2], [("2",), ("-1",)])),
    ("truth", (Ref("v2"),), [(Constant.of(True),)], by_hand([3], [("yes",)])),
    ("dates", (Ref("v3"),), [(Constant("date", d),) for d in DAYS],
     by_hand([4], [(d,) for d in DAYS])),
    ("moments", (Ref("v4"),), [(Constant("timestamp", m),) for m in MOMENTS],
     by_hand([5], [(m,) for m in MOMENTS])),
    ("a sum", (Arithmetic("+", Ref("v1"), LiteralValue(whole(5))),), [(whole(4),)],
     by_hand([2], [("-1",)])),
    ("two", (Ref("v0"), Ref("v1")), [(text("b c"), whole(0)), (text("A"), whole(2))],
     by_hand([1, 2], [("b c", "0"), ("A", "2")])),
    ("a case", (LATE,), [(text("late"),)],
     [[sum(int(r[2]) > 0 and r[6] == str(size) for r in ROWS) for size in range(4)]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "wanted", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_lists_of_wanted_keys_are_as_by_hand_and_in_their_order(
    engine: Engine,
    table: str,
    keys: tuple[Expr, ...],
    wanted: list[tuple[Constant, ...]],
    expected: list[list[int]],
) -> None:
    measure = measure_of(keys).histograms_of(tuple(wanted))
    assert lists(engine, table, measure).tolist() == expected


@pytest.mark.parametrize("groups", [1, 2])
def test_a_person_is_in_no_more_groups_because_keys_are_asked_one_by_one(
    engine: Engine, tmp_path: Path, groups: int
) -> None:
    theirs = [("one", t, "0", "yes", DAYS[0], MOMENTS[0], "2") for t in TOWNS for _ in range(6)]
    source = write_source(tmp_path / "t.csv", HEADER, theirs)
    table, _ = prepare(engine, source, CARD)
    measure = measure_of((Ref("v0"),), groups, rows=3)
    alone = [
        lists(engine, table, measure.histograms_of(((text(town),),)))[0].tolist() for town in TOWNS
    ]
    assert sum(any(one) for one in alone) == groups
    assert [sum(one) for one in alone if any(one)] == [3] * groups
    together = lists(engine, table, measure.histograms_of(tuple((text(town),) for town in TOWNS)))
    assert together.tolist() == alone


def test_a_filter_and_a_row_as_unit_are_kept_to(engine: Engine, tmp_path: Path) -> None:
    card = replace(CARD, unit="row")
    source = write_source(tmp_path / "t.csv", HEADER, ROWS)
    table, _ = prepare(engine, source, card)
    where = Compare(Ref("v2"), "=", Constant.of(True))
    measure = replace(measure_of((Ref("v0"),), 1, 1), by_person=False, where=where)
    expected = Counter(row[6] for row in ROWS if row[1] == "a" and row[3] == "yes")
    found = lists(engine, table, measure.histograms_of(((text("a"),),)))
    assert found.tolist() == [[expected[str(size)] for size in range(4)]]


def test_a_thousand_keys_are_one_statement(engine: Engine, table: str) -> None:
    wanted = (*((text(f"town {i}"),) for i in range(999)), (text("a"),))
    found = lists(engine, table, measure_of((Ref("v0"),)).histograms_of(wanted))
    assert found.shape == (1000, 4)
    assert found[:999].sum() == 0
    assert found[999].tolist() == by_hand([1], [("a",)])[0]
    assert Fraction(int(found.sum()), len(ROWS)) == Fraction(1, 5)
