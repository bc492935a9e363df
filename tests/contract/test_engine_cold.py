"""Filters and clamped sums: every engine chooses the cells and rows that the secret order says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.postgres.engine import PostgresServer
from sfumato.engines.shared.remote_tables import measure_request, read_marker
from sfumato.engines.shared.table_copy import order_mark
from sfumato.query.expression import (
    Among,
    Arithmetic,
    Compare,
    Constant,
    IsNull,
    LiteralValue,
    Not,
    Ref,
)
from sfumato.query.measure import Key, Measure, Tally
from sfumato.query.printing.expressions import Dialect
from sfumato.release.unseal import unseal
from sfumato.vault.engine_port import Engine
from support.engine_rows import (
    SALT,
    Row,
    added_up,
    card_of,
    numbers,
    prepare,
    stored_rows,
    write_source,
)
from support.kernel_oracle import kernel_order, orders_by_kernel

Maker = Callable[[bytes], Engine]
HEADER = ["who", "place", "cost", "word"]
CARD = card_of(
    "who",
    {
        "place": {"type": "text", "keys": [f"{i:02}" for i in range(90)]},
        "cost": {"type": "integer", "lower": -(10**9), "upper": 10**9},
        "word": {"type": "text"},
    },
)
COST = Ref("v1")
TALLIES = (
    Tally("rows"),
    Tally("sum", COST, 2, -7),
    Tally("people"),
    Tally("values", Ref("v2")),
    Tally("sum", COST, clamp=(-(10**9), 10**9)),
)
PAID = Compare(COST, ">", Constant.of(0))
SOME = Among(Ref("v2"), tuple(Constant("text", f"w{i}") for i in range(40)))
PLACE, WORD = Key(Ref("k0"), 90), Key(Ref("v2"), None)
HALF = Key(Arithmetic("-", Ref("k0"), LiteralValue(Constant.of(45))), 45)


def _rows() -> list[list[object]]:
    """Return rows of one with more cells than a word has bits, of one with many rows in a cell."""
    dice = random.Random(7)

    def cost() -> object:
        return "" if dice.random() < 0.1 else dice.randint(-(10**9), 10**9)

    rows: list[list[object]] = [["wide", f"{i:02}", cost(), f"w{i}"] for i in range(90)]
    rows += [["deep", "03", cost(), f"w{i % 2}"] for i in range(60)]
    rows += [["deep", "04", cost(), ""] for _ in range(9)]
    for i in range(1200):
        place = f"{dice.randrange(95):02}" if i % 5 else f"{dice.randrange(4):02}"
        rows.append([f"p{dice.randrange(90)}", place, cost(), f"w{dice.randrange(60)}"])
    return rows


@pytest.fixture(scope="module")
def engine(make_engine: Maker) -> Iterator[Engine]:
    made = make_engine(SALT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    source = tmp_path_factory.mktemp("cold") / "s.csv"
    return prepare(engine, write_source(source, HEADER, _rows()), CARD)[0]


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    duck = DuckDBEngine(SALT, memory_mb=512, threads=1)
    source = write_source(tmp_path_factory.mktemp("twin") / "s.csv", HEADER, _rows())
    twin, _ = prepare(duck, source, CARD)
    duck.close()
    return stored_rows(twin)


def _measures() -> list[Measure]:
    """Return measures of all groupings, each with a filter and without, and bounds that bite."""
    made = []
    for keys in ((PLACE,), (WORD,), (), (HALF, PLACE), (HALF,)):
        for where in (None, PAID, SOME, Not(IsNull(COST))):
            for groups, rows in ((1, 2), (3, 1), (17, 5), (10**4, 3)):
                made.append(Measure(where, keys, TALLIES, True, groups, rows))
    made += [replace(made[5], tallies=TALLIES[:2]), replace(made[21], tallies=TALLIES[:2])]
    return made


def test_the_secret_order_decides_for_every_grouping_filter_and_bound(
    engine: Engine, kind: str, table: str, by_hand: list[Row]
) -> None:
    for measure in _measures()[:: 7 if kind == "spark" else 1]:
        by_kernel = orders_by_kernel(table, measure, kind)
        expected = added_up(measure, by_hand, order=kernel_order if by_kernel else None)
        assert numbers(engine, table, measure) == expected, measure


def test_nobody_is_counted_more_than_allowed_whatever_the_filter(
    engine: Engine, table: str
) -> None:
    for keys in ((PLACE,), (WORD,)):
        measure = Measure(PAID, keys, (Tally("rows"), Tally("people")), True, 2, 3)
        rows, people = (sum(part.tolist()) for part in unseal(engine.measure(table, measure)).parts)
        assert 92 < people <= 2 * 92
        assert people < rows <= 3 * people


def test_the_way_of_a_question_hangs_on_measure_card_and_secret_alone(
    table: str, kind: str
) -> None:
    if kind == "duckdb":
        return
    dialect: Dialect = "postgres" if kind == "postgres" else "spark"
    known = read_marker(table, kind)
    assert known is not None

    def way(measure: Measure, mark: str = order_mark(SALT.hex())) -> str:
        asked = measure_request(measure, dialect, ("t",), known, mark)
        return "cold" if asked["cold"] else "sql"

    cold = Measure(PAID, (PLACE,), TALLIES, True, 2, 3)
    assert way(cold) == way(replace(cold, keys=(WORD,))) == way(replace(cold, keys=())) == "cold"
    assert way(replace(cold, keys=(HALF, PLACE))) == "cold"  # by the kernel's own order
    assert way(replace(cold, keys=(HALF, WORD))) == "sql"  # private, and no stored order serves
    other = order_mark(bytes(32).hex())  # ranks of another secret serve nothing
    assert way(replace(cold, keys=(WORD,)), other) == "sql"
    asked: Any = measure_request(cold, dialect, ("t",), known, other)["cold"]
    assert asked["has_rank"] is False
    assert way(replace(cold, by_person=False)) == "sql"
    old = {"tables": [{"ranked": [0]}], "order": known["order"]}
    assert measure_request(cold, dialect, ("t",), old, known["order"])["cold"] is None


# --- only PostgreSQL ------------------------------------------------------------------------------


@pytest.fixture
def moved(kind: str, table: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the server's rows lie in another order than they were copied in."""
    if kind != "postgres":
        yield
        return
    place: PostgresServer = request.getfixturevalue("postgres_place")
    known: Any = read_marker(table, "postgres")
    name = f"sfumato.{known['tables'][0]['table']}"
    with psycopg.connect(place.owner, autocommit=True) as link:
        link.execute(f"CREATE INDEX elsewhere ON {name} (row_key)".encode())
        link.execute(f"CLUSTER {name} USING elsewhere".encode())
        yield
        link.execute("DROP INDEX sfumato.elsewhere")


def test_rows_that_the_server_has_moved_are_counted_the_same(
    engine: Engine, kind: str, table: str, by_hand: list[Row], moved: None
) -> None:
    for measure in (_measures()[4], _measures()[20], _measures()[37], _measures()[68]):
        order = kernel_order if orders_by_kernel(table, measure, kind) else None
        assert numbers(engine, table, measure) == added_up(measure, by_hand, order=order), measure


def test_texts_that_one_engine_cannot_tell_apart_are_one_cell(
    engine: Engine, kind: str, tmp_path: Path
) -> None:
    source = tmp_path / "s.parquet"
    words = "unnest(['a' || chr(0), 'a' || chr(65533), 'b'])"
    duckdb.sql(
        f"COPY (SELECT 'p' || (i // 4) AS who, '00' AS place, 1 AS cost, {words} AS word"
        f" FROM range(40) r(i)) TO '{source}' (FORMAT parquet)"
    )
    stored, _ = prepare(engine, source, CARD)
    for where in (None, PAID):
        measure = Measure(where, (WORD,), (Tally("rows"), Tally("people")), True, 2, 4)
        found = numbers(engine, stored, measure)
        if kind == "duckdb":
            assert len(found) == 3
        else:
            assert found == {("a\ufffd",): (40, 10), ("b",): (40, 10)}
