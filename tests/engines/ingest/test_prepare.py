"""What a source becomes: every cell judged by a plain reading, every fault without a value."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.ingest.cell_sql import stored
from sfumato.engines.shared.prepared_table import path_of
from sfumato.query.expression import Ref
from sfumato.query.measure import Measure, Tally
from sfumato.vault.card.columns import Column
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import PrepareOrder, SourceFile
from support.engine_rows import SALT, answers, card_of, clean, prepare, sketch_of, write_source

STEP: dict[str, object] = {"type": "number", "lower": -3, "upper": 3, "step": Fraction(1, 100)}


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


def column(table: str, name: str = "v0") -> list[object]:
    with duckdb.connect(table, read_only=True) as connection:
        return [row[0] for row in connection.execute(f'SELECT {name} FROM "rows"').fetchall()]


def one_cell(engine: DuckDBEngine, folder: Path, text: str, card: Card) -> object:
    source = write_source(folder / "one.tsv", ["x", "z"], [[text, "1"]])
    return column(prepare(engine, source, card)[0])[0]


# --- numbers: one SQL expression against exact fractions -----------------------------------------


@functools.cache
def memory() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def in_sql(declared: Column, texts: list[str]) -> list[object]:
    memory().execute("CREATE OR REPLACE TABLE t AS SELECT unnest(CAST(? AS VARCHAR[])) x", [texts])
    found = memory().execute(f"SELECT {stored(declared, 'x', 5)} FROM t").fetchall()
    return [row[0] for row in found]


def by_hand(declared: Column, texts: list[str]) -> list[object]:
    return [clean(declared, text, (), 5) for text in texts]


COLUMNS = [
    Column("x", "number", -300, 300, Fraction(1, 100)),
    Column("x", "number", -8, 12, Fraction(1, 4)),
    Column("x", "number", 0, 10**12, Fraction(1, 10**12)),
    Column("x", "integer", -5, 5),
    Column("x", "number", -(2**52), 2**52, Fraction(1000)),
    Column("x", "number", step=Fraction(1, 10)),
    Column("x", "integer"),
    Column("x", "number", 3, 9, Fraction(7, 2)),
]
EXPECTED = {
    "0.285": 29, "0.284999999999999999999": 28, "2.5": 250, "0.005": 1, "-0.005": 0,
    "-0.0050000000000000000000000000001": -1, "1e300": 300, "-1e300": -300, "1e-300": 0,
    "-1e-300": 0, "9" * 60: 300, "0" * 60 + "1": 100, "1E+2": 300, "12.5e-1": 125, "+1.1": 110,
    "nan": None, "NaN": None, "inf": None, "-Infinity": None, "0x10": None, "1_000": None,
    "1,5": None, "1.": 100, ".5": 50, ".": None, "-.5e1": -300, "": None, "1e": None,
    "--1": None, "1 2": None,
    "1e12345": None, "٣": None, "1e9999": 300, "-0": 0, "0e9999": 0, "1\n2": None,
}  # fmt: skip


@pytest.mark.parametrize("text", EXPECTED)
def test_a_number_is_clamped_and_rounded_half_up_or_is_none(text: str) -> None:
    assert in_sql(COLUMNS[0], [text]) == [EXPECTED[text]]
    assert by_hand(COLUMNS[0], [text]) == [EXPECTED[text]]


@pytest.mark.parametrize(("text", "steps"), [("2.5", 3), ("-2.5", -2), ("3.5", 4), ("-3.5", -3)])
def test_a_half_is_rounded_up_on_both_sides_of_zero(text: str, steps: int) -> None:
    assert in_sql(COLUMNS[3], [text]) == [steps]


digits = st.text("0123456789", min_size=1, max_size=25)
numbers = st.builds(
    lambda sign, whole, rest, power: sign + whole + rest + power,
    st.sampled_from(["", "+", "-"]),
    digits | st.sampled_from(["0", "1", "2", "299", "300", "00003"]),
    st.just("") | digits.map(lambda d: "." + d) | st.sampled_from([".5", ".005", ".125", ".75"]),
    st.just("") | st.integers(-40, 40).map(lambda e: f"e{e}"),
)


@given(st.lists(numbers | st.text("0123456789+-.eEx_ ", max_size=9), min_size=1, max_size=40))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_number_is_the_one_that_exact_arithmetic_finds(texts: list[str]) -> None:
    texts = [text.strip() for text in texts]  # the source's reader trims
    for declared in COLUMNS:
        assert in_sql(declared, texts) == by_hand(declared, texts)


def test_halves_next_to_every_edge_fall_on_the_right_side() -> None:
    declared = COLUMNS[1]
    edges = [Fraction(n, 8) for n in range(-20, 30)]
    shifts = (Fraction(0), Fraction(1, 10**15), -Fraction(1, 10**15))
    texts = [f"{float(e + s):.20f}" for e in edges for s in shifts]
    assert in_sql(declared, texts) == by_hand(declared, texts)


# --- other types, nulls, trimming ----------------------------------------------------------------


def test_texts_are_trimmed_and_cut_and_nulls_are_matched_after_trimming(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    card = card_of("row", {"x": {"type": "text"}}, nulls=["", "n/a"], limits={"text_length": 3})
    cases = {" abc ": "abc", "\u00a0ü2345": "ü23", " n/a\u2003": None, "": None, "N/A": "N/A"}
    for text, value in cases.items():
        assert one_cell(engine, tmp_path, text, card) == value


def test_only_the_card_says_which_text_means_nothing(engine: DuckDBEngine, tmp_path: Path) -> None:
    card = card_of("row", {"x": {"type": "text", "keys": ["", "NULL"]}}, nulls=["-"])
    source = write_source(tmp_path / "s.csv", ["x", "z"], [["", 1], ["NULL", 1], ["-", 1]])
    assert sorted(str(v) for v in column(prepare(engine, source, card)[0], "k0")) == [
        "0", "1", "None"
    ]  # fmt: skip


def test_a_truth_value_has_six_spellings_each_way() -> None:
    texts = ["true", "T", "yes", "Y", "1", "FALSE", "f", "No", "n", "0", "2", "on", "wahr"]
    flag = Column("x", "boolean")
    assert in_sql(flag, texts) == by_hand(flag, texts)
    assert in_sql(flag, texts) == [True] * 5 + [False] * 5 + [None] * 3


def test_dates_and_times_are_iso_or_nothing() -> None:
    dates = ["2020-02-29", "2021-02-29", "2020-2-9", "29.02.2020", "2020-02-29 00:00:00", "today"]
    spelled = [None if d is None else str(d) for d in in_sql(Column("x", "date"), dates)]
    assert spelled == ["2020-02-29", None, None, None, "2020-02-29", None]
    times = ["2020-02-29", "2020-02-29T01:02", "2020-02-29 01:02:03.123456789", "now", "epoch"]
    moments = [None if t is None else str(t) for t in in_sql(Column("x", "timestamp"), times)]
    assert moments == [
        "2020-02-29 00:00:00", "2020-02-29 01:02:00", "2020-02-29 01:02:03.123456", None, None
    ]  # fmt: skip


# --- the table -----------------------------------------------------------------------------------


def test_the_prepared_table_has_the_agreed_columns(engine: DuckDBEngine, tmp_path: Path) -> None:
    columns: dict[str, dict[str, object]] = {
        "x": STEP,
        "z": {"type": "integer", "keys": [1, 2]},
        "t": {"type": "text"},
    }
    rows = [["p", 1, 2, "a"], ["", 1, 2, "a"], ["q", 5, 3, ""]]
    source = write_source(tmp_path / "s.csv", ["Who", "X ", "z", "t"], rows)
    table, _ = prepare(engine, source, card_of("who", columns))
    with duckdb.connect(table, read_only=True) as connection:
        kinds = [row[:2] for row in connection.execute('DESCRIBE "rows"').fetchall()]
        values = connection.execute('SELECT v0, v1, v2, k1 FROM "rows" ORDER BY v0').fetchall()
    assert kinds == [
        ("person", "UINTEGER"), ("person_key", "UBIGINT"), ("row_key", "UBIGINT"),
        ("rr", "USMALLINT"), ("v0", "BIGINT"), ("v1", "BIGINT"), ("v2", "VARCHAR"),
        ("k1", "INTEGER"), ("c2", "UINTEGER"), ("gr1", "USMALLINT"), ("rr1", "USMALLINT"),
        ("gr2", "USMALLINT"), ("rr2", "USMALLINT"),
    ]  # fmt: skip
    assert values == [(100, 2, "a", 1), (300, 3, None, None)]
    assert sorted(column(table, "person"), key=str) == [0, 1]


def test_the_order_of_the_file_is_that_of_the_keyed_hashes(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    rows = [[f"p{i % 50}", str(i / 100)] for i in range(1000)]
    source = write_source(tmp_path / "s.csv", ["who", "x"], rows)
    for unit, order in (("who", "(person_key, row_key)"), ("row", "row_key")):
        keys = column(prepare(engine, source, card_of(unit, {"x": STEP}))[0], order)
        assert keys == sorted(keys)  # type: ignore[type-var]  # numbers, or pairs of numbers
        assert len({str(key) for key in keys}) > 250


def test_files_are_private_and_nothing_is_left_behind(engine: DuckDBEngine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "s.csv", ["x", "z"], [["1", "2"]])
    table, _ = prepare(engine, source, card_of("row", {"x": STEP}))
    known = path_of(Path(table))
    for made in (table, known, sketch_of(source)):
        assert os.stat(made).st_mode & 0o777 == 0o600
    assert {p.name for p in tmp_path.iterdir()} == {
        "s.csv", Path(table).name, known.name, "s.people.json"
    }  # fmt: skip


def test_a_refused_preparation_leaves_nothing(engine: DuckDBEngine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "s.csv", ["x", "z"], [["1", "2"]])
    with pytest.raises(Refused):
        prepare(engine, source, card_of("row", {"y": STEP}))
    assert [p.name for p in tmp_path.iterdir()] == ["s.csv"]


# --- formats -------------------------------------------------------------------------------------

MIXED = card_of(
    "row",
    {
        "x": STEP,
        "n": {"type": "integer", "lower": -9, "upper": 9},
        "flag": {"type": "boolean"},
        "day": {"type": "date"},
        "t": {"type": "text"},
    },
)
MADE = """SELECT * FROM (VALUES
  (0.285::DOUBLE, 3::TINYINT, true, DATE '2020-02-29', ' a '),
  ('nan'::DOUBLE, NULL, false, NULL, ''), ('inf'::DOUBLE, 12, NULL, DATE '1999-01-01', NULL),
  (1e300::DOUBLE, -12, true, NULL, 'é')) t(x, n, flag, day, t)"""


def contents(table: str) -> list[str]:
    with duckdb.connect(table, read_only=True) as connection:
        found = connection.execute('SELECT v0, v1, v2, v3, v4 FROM "rows"').fetchall()
    return sorted(str(row) for row in found)


def test_every_format_gives_the_same_table(engine: DuckDBEngine, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "d.duckdb")) as made:
        made.execute(f"CREATE TABLE here AS {MADE}")
        made.execute(f"COPY here TO '{tmp_path}/p.parquet' (FORMAT parquet)")
        made.execute(f"COPY here TO '{tmp_path}/c.csv' (HEADER)")
        made.execute(f"COPY here TO '{tmp_path}/s.csv' (HEADER, DELIMITER ';')")
        made.execute(f"COPY here TO '{tmp_path}/t.tsv' (HEADER, DELIMITER '\t')")
    bom = (tmp_path / "c.csv").read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbf" + bom)
    sources = ("d.duckdb", "p.parquet", "c.csv", "s.csv", "t.tsv", "b.csv")
    tables = [contents(prepare(engine, tmp_path / name, MIXED)[0]) for name in sources]
    assert tables == [tables[0]] * 6
    assert "(29, 3, True, datetime.date(2020, 2, 29), 'a')" in tables[0]
    assert "(None, None, False, None, None)" in tables[0]
    assert "(300, -9, True, None, 'é')" in tables[0]


def test_the_table_of_a_duckdb_file_is_named_if_there_are_several(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    source = tmp_path / "d.duckdb"
    with duckdb.connect(str(source)) as made:
        made.execute("CREATE TABLE one AS SELECT 1 AS x; CREATE TABLE two AS SELECT 2 AS x")
    card = card_of("row", {"x": STEP})
    order = PrepareOrder(
        (SourceFile(str(source), "two"),), str(tmp_path / "t"), card, SALT, (), str(tmp_path / "s")
    )
    engine.prepare(order)
    assert column(str(tmp_path / "t")) == [200]
    for wrong in (None, "three"):
        with pytest.raises(Refused, match="source-unreadable"):
            engine.prepare(replace(order, sources=(SourceFile(str(source), wrong),)))


CANARY = "secret-77"
DAMAGED = {
    "fewer cells": f"x,z\n1,2\n{CANARY}\n",
    "more cells": f"x,z\n1,2,{CANARY}\n",
    "open quote": f'x,z\n1,"{CANARY}\n',
    "quote inside": f'x,z\n1,"2"{CANARY}\n',
    "not UTF-8": f"x,z\n1,{CANARY}".encode() + b"\xff\n",
    "nothing": "",
    "header twice": f"x,x\n1,{CANARY}\n",
    "no such column": f"y,z\n1,{CANARY}\n",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_source_is_refused_without_a_word_of_its_rows(
    engine: DuckDBEngine, tmp_path: Path, text: str | bytes
) -> None:
    source = tmp_path / "s.csv"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Refused) as refused:
        prepare(engine, source, card_of("row", {"x": STEP}))
    assert refused.value.code == "source-unreadable"
    assert CANARY not in str(refused.value)
    assert refused.value.__context__ is None


def test_a_missing_column_is_named(engine: DuckDBEngine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "s.csv", ["a", "b"], [["1", "2"]])
    with pytest.raises(Refused, match="'height'"):
        prepare(engine, source, card_of("row", {"a": STEP, "height": STEP}))
    with pytest.raises(Refused, match="'patient'"):
        prepare(engine, source, card_of("patient", {"a": STEP}))


@pytest.mark.parametrize("name", ["s.xlsx", "none.csv", "folder.csv", "s.parquet", "s.duckdb"])
def test_what_is_no_source_is_refused(engine: DuckDBEngine, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    if name.startswith("s."):
        (tmp_path / name).write_text("x\n1\n")
    with pytest.raises(Refused, match="source-unreadable"):
        prepare(engine, tmp_path / name, card_of("row", {"x": STEP}))


def test_more_rows_than_the_card_allows_are_refused(engine: DuckDBEngine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "s.csv", ["x"], [["1"]] * 11)
    with pytest.raises(Refused, match="source-too-large"):
        prepare(engine, source, card_of("row", {"x": STEP}, limits={"rows": 10}))
    prepare(engine, source, card_of("row", {"x": STEP}, limits={"rows": 11}))


def test_odd_names_and_odd_texts_pass_unharmed(engine: DuckDBEngine, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s; a "folder" {x}'
    folder.mkdir()
    odd = ["'; DROP TABLE rows --", '"', "a,b", "a\tb", "$1", "?", "\\", "ﬁ\u0301"]
    card = card_of("row", {"we\"ird's": {"type": "text", "keys": odd}}, nulls=["'", ""])
    source = write_source(folder / "s's.csv", ["we\"ird's", "b"], [[t, "1"] for t in [*odd, "'"]])
    table, _ = prepare(engine, source, card)
    assert sorted(column(table, "k0"), key=str) == [0, 1, 2, 3, 4, 5, 6, 7, None]


def test_two_rows_alike_are_two_rows(engine: DuckDBEngine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "s.csv", ["who", "x"], [["p", "1"]] * 5 + [["q", "1"]])
    table, _ = prepare(engine, source, card_of("who", {"x": STEP}))
    assert sorted(column(table, "person"), key=str).count(0) in (1, 5)
    assert len(column(table)) == 6


def test_an_empty_identifier_is_nobody_whatever_the_card_says_of_nulls(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    rows = [["", "1"], [" ", "1"], ["n/a", "1"], ["p", "2"]]
    source = write_source(tmp_path / "s.csv", ["who", "x"], rows)
    table, _ = prepare(engine, source, card_of("who", {"x": STEP}, nulls=["n/a"]))
    assert column(table) == [200]


def test_where_a_row_lies_in_the_file_decides_nothing(engine: DuckDBEngine, tmp_path: Path) -> None:
    rows = [[f"p{i % 9}", str(i / 100)] for i in range(200)]
    source = write_source(tmp_path / "s.csv", ["who", "x"], rows)
    table, _ = prepare(engine, source, card_of("who", {"x": STEP}))
    turned = str(tmp_path / "turned.duckdb")
    with duckdb.connect(turned) as made:
        made.execute(f"ATTACH '{table}' AS t (READ_ONLY)")
        made.execute('CREATE TABLE "rows" AS FROM t."rows" ORDER BY row_key DESC')
    measure = Measure(None, (), (Tally("sum", Ref("v0")),), True, 1, 3)
    assert answers(engine, turned, measure) == answers(engine, table, measure)


def test_the_same_source_gives_the_same_table_whatever_its_order(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    rows = [[f"p{i % 7}", str(i % 10 / 10)] for i in range(200)]
    card = card_of("who", {"x": STEP}, limits={"rows_per_person": 5})
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        source = write_source(tmp_path / f"{seed}.csv", ["who", "x"], rows)
        found.append(column(prepare(engine, source, card)[0], "(person_key, row_key, v0)"))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 7 * 5
