"""A cell that is a number, day or truth already is worth what its text is worth, to the bit."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest.prepare import typed_cell
from sfumato.vault.card.columns import Column, ColumnType
from support.engine_rows import SALT, card_of, clean, prepare

NUMBERS = [
    Column("x", "number", -300, 300, Fraction(1, 100)),
    Column("x", "number", -8, 12, Fraction(1, 4)),
    Column("x", "number", 0, 10**12, Fraction(1, 10**12)),
    Column("x", "number", -(10**13), 10**13, Fraction(1, 10)),
    Column("x", "number", -5 * 10**5, 10**6, Fraction(3, 1000)),
    Column("x", "number", 3, 9, Fraction(7, 2)),
    Column("x", "integer", -5, 5),
]
UNBOUNDED = [Column("x", "number", step=Fraction(1, 10)), Column("x", "integer")]
FINE = Column("x", "number", -(2**52), 2**52, Fraction(1, 1000))  # 16 digits: not every double
WIDEST = {
    "TINYINT": 2**7, "SMALLINT": 2**15, "INTEGER": 2**31, "BIGINT": 2**63,
    "DECIMAL(2,2)": 100, "DECIMAL(12,2)": 10**12, "DECIMAL(18,1)": 10**18, "DECIMAL(18,0)": 10**18,
}  # fmt: skip


def as_stored(column: Column, kind: str, cells: list[str | None]) -> list[object]:
    """Return what is stored of cells of that type, without their texts."""
    value = typed_cell(column, "x", kind, ("",))
    assert value is not None
    return in_order(value, kind, cells)


@functools.cache
def memory() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def in_order(expression: str, kind: str, cells: list[str | None]) -> list[object]:
    given = f"SELECT unnest(CAST(? AS VARCHAR[])) AS t, unnest(range({len(cells)})) AS i"
    read = f"SELECT CAST(t AS {kind}) AS x, i FROM ({given})"
    found = memory().execute(f"SELECT {expression} FROM ({read}) ORDER BY i", [cells])
    return [row[0] for row in found.fetchall()]


def by_text(column: Column, texts: list[str | None]) -> list[object]:
    return [None if text is None else clean(column, text) for text in texts]


def near_edges(column: Column, dice: random.Random) -> Iterator[float]:
    """Yield doubles at and beside the edges of steps, and beyond both bounds."""
    low, high = column.bounds()
    for _ in range(300):
        steps = dice.choice([low, high, dice.randint(low, high)]) + dice.randint(-2, 2)
        x = float((2 * steps + dice.choice([-1, 0, 1])) * column.step / 2)
        yield from (x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf))
        yield dice.uniform(float(low * column.step), float(high * column.step))


ODD = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308,
    -1.7976931348623157e308, 1e300, 2.0**53, -(2.0**63), 0.285, -0.005, 0.1 + 0.2, 1e22, 1e-7,
]  # fmt: skip


@pytest.mark.parametrize("column", NUMBERS, ids=lambda c: f"{c.type} {c.step}")
def test_a_double_is_worth_the_decimal_that_people_see(column: Column) -> None:
    cells = [*ODD, *near_edges(column, random.Random(column.lower))]
    texts: list[str | None] = [repr(cell) for cell in cells] + [None]
    assert as_stored(column, "DOUBLE", texts) == by_text(column, texts)


@pytest.mark.parametrize("kind", WIDEST)
@pytest.mark.parametrize("column", [*NUMBERS, *UNBOUNDED], ids=lambda c: f"{c.type} {c.step}")
def test_whole_and_decimal_numbers_are_worth_what_they_spell(column: Column, kind: str) -> None:
    if typed_cell(column, "x", kind, ()) is None:
        assert kind.startswith("DECIMAL")  # finer than half a step: its text is read
        return
    dice = random.Random(kind)
    scale = int(kind.partition(",")[2].rstrip(")") or 0)
    most = WIDEST[kind] - 1
    units = [0, -most, most] + [dice.randint(-most, most) for _ in range(100)]
    units += [dice.randint(-500, 500) for _ in range(100) if most > 500]
    texts: list[str | None] = [decimal(unit, scale) for unit in units] + [None]
    assert as_stored(column, kind, texts) == by_text(column, texts)


def decimal(units: int, scale: int) -> str:
    if not scale:
        return str(units)
    whole, rest = divmod(abs(units), 10**scale)
    return f"{'-' if units < 0 else ''}{whole}.{rest:0{scale}}"


def test_where_decimals_could_share_a_double_the_text_is_read() -> None:
    assert typed_cell(FINE, "x", "DOUBLE", ()) is None
    assert typed_cell(NUMBERS[0], "x", "FLOAT", ()) is None
    assert typed_cell(NUMBERS[0], "x", "DECIMAL(12,4)", ()) is None
    assert typed_cell(NUMBERS[0], "x", "VARCHAR", ()) is None


@pytest.mark.parametrize(
    ("kind", "source", "cells"),
    [
        ("date", "DATE", ["2020-02-29", "0001-01-01", "9999-12-31", "10000-01-01", "infinity",
                          "-infinity", "0001-01-01 (BC)"]),
        ("timestamp", "TIMESTAMP", ["2020-02-29 23:59:59.999999", "0001-01-01 00:00:00",
                                    "9999-12-31 23:59:59", "10000-01-01 00:00:00", "infinity"]),
        ("boolean", "BOOLEAN", ["true", "false"]),
    ],
)  # fmt: skip
def test_days_moments_and_truths_are_worth_what_they_spell(
    kind: ColumnType, source: str, cells: list[str]
) -> None:
    column = Column("x", kind)
    texts: list[str | None] = [*cells, None]
    value = typed_cell(column, "x", source, ("",))
    found = in_order(f"CAST({value} AS VARCHAR)", source, texts)
    meant = [spelled(cell) for cell in by_text(column, texts)]
    assert found == meant


def spelled(cell: object) -> str | None:
    if cell is None or isinstance(cell, bool):
        return None if cell is None else str(cell).lower()
    text = str(cell)
    return text.rstrip("0").rstrip(".") if text.endswith(".000000") else text


COLUMNS: dict[str, dict[str, object]] = {
    "a": {"type": "integer", "lower": 0, "upper": 900},
    "b": {"type": "number", "lower": -1, "upper": 1, "step": Fraction(1, 100)},
    "c": {"type": "boolean"},
    "d": {"type": "number", "lower": -1, "upper": 1, "step": Fraction(1, 100)},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


def test_a_word_for_nothing_is_nothing_whatever_type_the_source_gives_it(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    """And a decimal without whole digits, which DuckDB spells without its zero, is a number."""
    source = tmp_path / "r.parquet"
    rows = "(7, 0.5, true, 0.77), (999, 0.25, false, -0.126), (NULL, -0.5, NULL, 0)"
    duckdb.sql(
        "COPY (SELECT CAST(a AS INTEGER) AS a, CAST(b AS DOUBLE) AS b, CAST(c AS BOOLEAN) AS c,"
        f" CAST(d AS DECIMAL(4, 4)) AS d FROM (VALUES {rows}) AS t(a, b, c, d))"
        f" TO '{source}' (FORMAT parquet)"
    )
    found = []
    for nulls in ([""], ["999", "0.25", "false"]):
        table, _ = prepare(engine, source, card_of("row", COLUMNS, nulls=nulls))
        with duckdb.connect(table, read_only=True) as made:
            found.append(set(made.execute('SELECT v0, v1, v2, v3 FROM "rows"').fetchall()))
    others = {(7, 50, True, 77), (None, -50, None, 0)}
    assert found == [others | {(900, 25, False, -13)}, others | {(None, None, None, -13)}]
