"""The kernel against a plain reading of the rules: no number is off by one, nobody counts twice."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from sfumato.dp.refusal import Bug
from sfumato.engines.duckdb import engine as engine_module
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.kernel import bounded_sums, contribution_bounding, keyed_order, row_arrays
from sfumato.engines.kernel.row_arrays import MAX_INT64, ORDER_BITS, PERSON_BITS, Columns
from sfumato.engines.shared.cold_path import KernelKey, KernelPlan, lower_to_kernel
from sfumato.engines.shared.prepared_table import CROWD_BITS, PreparedTable, read_prepared_table
from sfumato.query.expression import (
    Arithmetic,
    Case,
    Compare,
    Constant,
    DateField,
    Expr,
    LiteralValue,
    Ref,
)
from sfumato.query.measure import Key, Measure, Tally
from sfumato.query.printing.statements import lower
from sfumato.release.unseal import unseal
from support.engine_rows import SALT, card_of, prepare, write_source
from support.kernel_oracle import WORD, place_of_cell, text_key

Answer = dict[tuple[object, ...], tuple[int, ...]]
Row = dict[str, Any]  # of a stored table: numbers, texts, dates
MANY = 10**6
CARD = card_of(
    "who",
    {
        "k": {"type": "integer", "keys": [0, 1, 2, 3]},
        "v": {"type": "number", "lower": -3, "upper": 3, "step": Fraction(1, 100)},
        "t": {"type": "text"},
        "d": {"type": "date"},
        "b": {"type": "boolean"},
        "m": {"type": "timestamp"},
        "w": {"type": "integer"},
    },
)
WORDS = ["", "a", "b", "ü", "B", "a b", "zz'", "1"]
TALLIES = (
    Tally("rows"),
    Tally("people"),
    Tally("values", Ref("v1")),
    Tally("values", Ref("v2")),
    Tally("sum", Ref("v1")),
    Tally("sum", Ref("v1"), 2, -5),
    Tally("sum", Ref("v1"), 3, 1, (7, 450)),
    Tally("sum", Arithmetic("*", Ref("v1"), Ref("v1")), 1, 0, (-9, 40_000)),
)
NEGATIVE = Compare(Ref("v1"), "<", Constant("number", "0"))
EVEN = Case(
    ((NEGATIVE, LiteralValue(Constant("number", "1"))),), LiteralValue(Constant("number", "0"))
)


def key(name: str, size: int | None = None) -> Key:
    return Key(Ref(name), size)


KEYS: dict[str, tuple[Key, ...]] = {
    "nothing": (),
    "declared": (key("k0", 4),),
    "text": (key("v2"),),
    "day": (key("v3"),),
    "flag": (key("v4"),),
    "moment": (key("v5"),),
    "number": (key("v1"),),
    "wide": (key("v6"), key("v1")),
    "declared and text": (key("k0", 4), key("v2")),
    "text and day": (key("v2"), key("v3")),
    "three": (key("v2"), key("v3"), key("v6")),
    "two declared": (key("k0", 4), key("k4", 2)),
    "computed and public": (Key(EVEN, 2),),
    "computed and private": (Key(DateField("month", Ref("v3")), None),),
}
ONE_OF_THREE = Measure(None, (key("v0", 3),), (Tally("people"), Tally("rows")), True, 1, 1)
WHERES = {"everything": None, "some": Compare(Ref("v1"), ">", Constant("number", "0"))}


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


def some_rows(seed: int, people: int, count: int) -> list[list[object]]:
    draw = random.Random(seed)
    return [
        [
            f"p{min(draw.randrange(people), draw.randrange(people))}",
            draw.choice([0, 1, 2, 3, 7, ""]),
            draw.choice(["", draw.randrange(-300, 300) / 100]),
            draw.choice(WORDS),
            draw.choice(["", "2020-02-29", "1950-03-04", "1970-01-01"]),
            draw.choice(["", "t", "f"]),
            draw.choice(["", "2020-02-29 10:00:00.25", "1960-01-01"]),
            draw.choice(["", -(2**52), 2**52, 3, 4]),
        ]
        for _ in range(count)
    ]


HEADER = ["who", "k", "v", "t", "d", "b", "m", "w"]


@pytest.fixture(scope="module")
def table(engine: DuckDBEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("kernel")
    source = write_source(folder / "s.csv", HEADER, some_rows(1, 30, 700))
    return prepare(engine, source, CARD)[0]


def answer(engine: DuckDBEngine, table: str, measure: Measure) -> Answer:
    cells = unseal(engine.measure(table, measure))
    keys = cells.keys
    if keys is None:
        keys = tuple((cell,) for cell in range(len(cells.parts[0])))
    numbers = zip(*(part.tolist() for part in cells.parts), strict=True)
    found = dict(zip(keys, numbers, strict=True))
    return {key: tallies for key, tallies in found.items() if any(tallies)}


def plainly(
    monkeypatch: pytest.MonkeyPatch, engine: DuckDBEngine, table: str, measure: Measure
) -> Answer:
    """Return the answer of query/printing/statements.py's statements."""
    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "read_prepared_table", lambda *_: ())
        return answer(engine, table, measure)


def known_of_table(table: str) -> PreparedTable:
    (known,) = read_prepared_table(Path(table))
    return known


# --- where no bound bites, and where the stored order is that of plain SQL -----------------------


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("tallies", [TALLIES, TALLIES[:6]])
def test_what_no_bound_touches_is_what_plain_sql_adds_up(  # noqa: PLR0917  # what varies
    monkeypatch: pytest.MonkeyPatch,
    engine: DuckDBEngine,
    table: str,
    tallies: tuple[Tally, ...],
    keys: str,
    where: str,
) -> None:
    measure = Measure(WHERES[where], KEYS[keys], tallies, True, MANY, MANY)
    found = answer(engine, table, measure)
    assert found == plainly(monkeypatch, engine, table, measure)
    assert found


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_rows_that_count_are_those_of_plain_sql(  # noqa: PLR0917  # what varies
    monkeypatch: pytest.MonkeyPatch,
    engine: DuckDBEngine,
    table: str,
    rows: int,
    keys: str,
    where: str,
) -> None:
    measure = Measure(WHERES[where], KEYS[keys], TALLIES, True, MANY, rows)
    assert answer(engine, table, measure) == plainly(monkeypatch, engine, table, measure)


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("keys", ["nothing", "declared", "text"])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("tallies", [TALLIES, TALLIES[:6]])
def test_a_stored_order_keeps_the_groups_that_plain_sql_keeps(  # noqa: PLR0917  # what varies
    monkeypatch: pytest.MonkeyPatch,
    engine: DuckDBEngine,
    table: str,
    tallies: tuple[Tally, ...],
    groups: int,
    keys: str,
    where: str,
) -> None:
    measure = Measure(WHERES[where], KEYS[keys], tallies, True, groups, 3)
    assert answer(engine, table, measure) == plainly(monkeypatch, engine, table, measure)


# --- where the kernel's own order decides --------------------------------------------------------


def stored_rows(table: str) -> list[Row]:
    with duckdb.connect(table, read_only=True) as connection:
        found = connection.execute('SELECT * FROM "rows" ORDER BY person, rr')
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def by_hand(rows: Sequence[Row], names: Sequence[str], measure: Measure) -> Answer:
    """Return rows, people and the sum of v1 where keys are whole numbers or texts."""
    of: dict[int, dict[tuple[Any, ...], list[Row]]] = {}
    for row in rows:
        cell = tuple(row[name] for name in names)
        if None not in cell:
            of.setdefault(row["person_key"], {}).setdefault(cell, []).append(row)
    totals: dict[tuple[object, ...], list[int]] = {}
    for person_key, cells in of.items():
        ordered = sorted(cells, key=lambda c: (place_of_cell(SALT, person_key, c, public=False), c))
        for cell in ordered[: measure.max_groups]:
            kept = cells[cell][: measure.max_rows]
            total = totals.setdefault(cell, [0, 0, 0])
            total[0] += len(kept)
            total[1] += 1
            total[2] += sum(row["v1"] or 0 for row in kept)
    return {cell: tuple(total) for cell, total in totals.items()}


@pytest.mark.parametrize("bits", [ORDER_BITS, 1])
@pytest.mark.parametrize("names", [["v1"], ["v2", "v6"], ["v6", "v1", "v2"]])
@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (3, 2)])
def test_where_bounds_bite_the_keyed_order_decides_to_the_last_unit(  # what varies
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    bounds: tuple[int, int],
    names: list[str],
    bits: int,
) -> None:
    for module in (keyed_order, bounded_sums):  # with one bit, nearly all cells collide
        monkeypatch.setattr(module, "ORDER_BITS", bits)
    tallies = (Tally("rows"), Tally("people"), Tally("sum", Ref("v1")))
    measure = Measure(None, tuple(map(key, names)), tallies, True, *bounds)
    assert in_process(table, measure) == by_hand(stored_rows(table), names, measure)


def in_process(table: str, measure: Measure, salt: bytes = SALT) -> Answer:
    cold = lower_to_kernel(measure, known_of_table(table))
    assert cold is not None
    with duckdb.connect(table, read_only=True) as connection:
        return as_answer(contribution_bounding.add_up(connection, cold, salt.hex(), 2), cold)


def as_answer(columns: Columns, cold: KernelPlan) -> Answer:
    names = ["cell"] if cold.cells is not None else [f"g{i}" for i in range(len(cold.keys))]
    numbers = [columns[f"t{i}"].tolist() for i in range(len(cold.tallies))]
    keys = zip(*(columns[name].tolist() for name in names), strict=True)
    return {k: n for k, n in zip(keys, zip(*numbers, strict=True), strict=True) if any(n)}


# --- nobody counts more than agreed, whatever their rows -----------------------------------------

shapes = st.lists(  # (person, key, number of rows)
    st.tuples(st.integers(0, 3), st.integers(-2, 6), st.integers(1, 4)), max_size=25
)


@given(shapes, st.integers(1, 4), st.integers(1, 4), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_nobody_is_in_more_cells_or_has_more_rows_in_one_than_allowed(
    shape: list[tuple[int, int, int]], groups: int, most: int, has_public_keys: bool
) -> None:
    rows = [(p, k) for p, k, n in shape for _ in range(n) if not has_public_keys or k >= 0]
    size = 7 if has_public_keys else None
    keys = (Key(Ref("v0"), size),)
    measure = Measure(None, keys, (Tally("rows"), Tally("people")), True, groups, most)
    whole = of_rows(rows, measure)
    for person in {p for p, _ in rows}:
        theirs = of_rows([row for row in rows if row[0] == person], measure)
        assert len(theirs) <= groups
        assert all(n <= most and people == 1 for n, people in theirs.values())
        assert len(theirs) == min(groups, len({k for p, k in rows if p == person}))
        others = of_rows([row for row in rows if row[0] != person], measure)
        assert whole == added(others, theirs)


def added(left: Answer, right: Answer) -> Answer:
    return {
        cell: tuple(
            a + b for a, b in zip(left.get(cell, (0, 0)), right.get(cell, (0, 0)), strict=True)
        )
        for cell in left.keys() | right.keys()
    }


def of_rows(rows: Sequence[tuple[int, int | None]], measure: Measure, salt: bytes = SALT) -> Answer:
    """Return what the kernel says of a little table of (person, v0), made here."""
    cold = lower_to_kernel(measure, PreparedTable(MANY, True, ("integer",), (False,)))
    assert cold is not None
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE given (who BIGINT, v0 BIGINT, nth BIGINT)")
        if rows:
            connection.executemany(
                "INSERT INTO given VALUES (?, ?, ?)", [(*row, i) for i, row in enumerate(rows)]
            )
        connection.execute(
            "CREATE TABLE people AS SELECT who,"
            " CAST(row_number() OVER (ORDER BY who) - 1 AS UINTEGER) AS person,"
            " hash(who, 42) AS person_key FROM (SELECT DISTINCT who FROM given) ORDER BY person"
        )
        connection.execute(
            'CREATE TABLE "rows" AS SELECT person, person_key, v0, CAST(row_number() OVER'
            " (PARTITION BY person ORDER BY nth) AS USMALLINT) AS rr"
            " FROM given JOIN people USING (who) ORDER BY person DESC, rr DESC"
        )
        connection.execute(
            f"CREATE TABLE crowds AS SELECT person >> {CROWD_BITS} AS few, count(*) AS n"
            ' FROM "rows" GROUP BY few'
        )
        return as_answer(contribution_bounding.add_up(connection, cold, salt.hex(), 2), cold)


# --- the order is fair ---------------------------------------------------------------------------

PEOPLE = 6_000


@pytest.mark.parametrize("keys", ["public", "private", "texts"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_three_of_ten_cells_are_kept_equally_often(keys: str, seed: int) -> None:
    salt = hashlib.sha256(bytes([seed])).digest()
    person = np.repeat(np.arange(PEOPLE, dtype=np.uint64), 10)
    cell = np.tile(np.arange(10, dtype=np.int64), PEOPLE)
    draw = random.Random(seed)
    person_keys = np.array([draw.randrange(WORD) for _ in range(PEOPLE)], dtype=np.uint64)
    texts = {"texts0": np.array([text_key(salt, str(i)) for i in range(10)], dtype=np.uint64)}
    kind = KernelKey("text", "texts0") if keys == "texts" else KernelKey("number")
    cold = KernelPlan(
        "", (), 10 if keys == "public" else None, (kind,), False, 0, (), 3, 1, "crowds"
    )
    columns = {"person": person, "cell": cell, "g0": cell}
    hashing = keyed_order.Hashing(salt.hex(), texts)
    order = hashing.order(person_keys, columns, cold, 0).reshape(PEOPLE, 10)
    kept = np.sort(np.argsort(order, axis=1)[:, :3], axis=1)
    counts = dict.fromkeys(itertools.combinations(range(10), 3), 0)
    for three in kept.tolist():
        counts[tuple(three)] += 1
    expected = PEOPLE / len(counts)
    distance = sum((n - expected) ** 2 / expected for n in counts.values())
    assert distance < chi2.isf(1e-6, len(counts) - 1)
    firsts = np.bincount(np.argmin(order, axis=1), minlength=10)
    assert sum((firsts - PEOPLE / 10) ** 2 / (PEOPLE / 10)) < chi2.isf(1e-6, 9)


def test_another_secret_keeps_other_cells() -> None:
    rows = [(p, k) for p in range(40) for k in range(6)]
    measure = Measure(None, (Key(Ref("v0"), 6),), (Tally("rows"),), True, 2, 1)
    assert of_rows(rows, measure) != of_rows(rows, measure, salt=bytes(32))


# --- wherever rows lie, and however many ---------------------------------------------------------


@pytest.mark.parametrize("names", [["v1"], ["v2", "v6"]])
def test_neither_ranges_nor_threads_change_a_unit(
    monkeypatch: pytest.MonkeyPatch, table: str, names: list[str]
) -> None:
    measure = Measure(None, tuple(map(key, names)), TALLIES, True, 2, 2)
    whole = in_process(table, measure)
    monkeypatch.setattr(contribution_bounding, "RANGE_ROWS", 50)
    assert in_process(table, measure) == whole
    monkeypatch.setattr(
        contribution_bounding, "INDEX_BITS", 7
    )  # a range is cut again where places do not fit
    monkeypatch.setattr(contribution_bounding, "RANGE_ROWS", 10**6)
    assert in_process(table, measure) == whole


def test_more_rows_of_a_person_than_a_card_allows_stop_the_kernel(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(contribution_bounding, "INDEX_BITS", 2)
    with pytest.raises(Bug):
        in_process(table, Measure(None, (key("v1"),), TALLIES, True, 2, 2))


def test_people_whose_numbers_lie_far_apart_are_not_taken_for_one() -> None:
    """Few of a card's people may have rows in one of its tables: their numbers have gaps."""
    far = 1 << PERSON_BITS
    cold = lower_to_kernel(ONE_OF_THREE, PreparedTable(MANY, True, ("integer",), (False,)))
    assert cold is not None
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT CAST(range AS UINTEGER) AS person,"
            f" hash(range) AS person_key FROM range({2 * far + 40})"
        )
        connection.execute(
            'CREATE TABLE "rows" AS SELECT person, person_key, 1 AS v0, CAST(1 AS USMALLINT) AS rr'
            f" FROM people WHERE person IN (5, 7, {far + 5}, {2 * far + 5}) ORDER BY person"
        )
        connection.execute(
            f"CREATE TABLE crowds AS SELECT person >> {CROWD_BITS} AS few, count(*) AS n"
            ' FROM "rows" GROUP BY few'
        )
        found = contribution_bounding.add_up(connection, cold, SALT.hex(), 2)
    assert as_answer(found, cold) == {(1,): (4, 4)}


def test_people_whose_numbers_do_not_fit_stop_the_kernel() -> None:
    far = 1 << PERSON_BITS
    columns: Columns = {
        "person": np.array([0, far]), "rr": np.array([1, 1]), "cell": np.array([1, 1]),
    }  # fmt: skip
    cold = lower_to_kernel(ONE_OF_THREE, PreparedTable(MANY, True, ("integer",), (False,)))
    assert cold is not None
    with pytest.raises(Bug):
        contribution_bounding.parts_of(
            columns, cold, 3, (0, far + 1), lambda _: np.zeros(2, np.uint64)
        )


def test_a_table_without_rows_has_no_cells_or_empty_ones() -> None:
    tallies = (Tally("rows"), Tally("people"))
    private = Measure(None, (Key(Ref("v0"), None),), tallies, True, 2, 2)
    assert of_rows([], private) == {}
    assert of_rows([], replace(private, keys=(Key(Ref("v0"), 3),))) == {}


@given(st.permutations(range(6)))
def test_rows_are_put_in_order_of_person_and_place(shuffled: list[int]) -> None:
    person, place = np.array([3, 3, 3, 5, 5, 9]), np.array([1, 2, 7, 1, 2, 1])
    columns: Columns = {"person": person[shuffled], "rr": place[shuffled]}
    found = contribution_bounding._in_order(columns)
    assert (found["person"].tolist(), found["rr"].tolist()) == (person.tolist(), place.tolist())


# --- whole numbers -------------------------------------------------------------------------------

extremes = st.sampled_from([-(2**63) + 1, -(2**62), -1, 0, 1, 2**62, 2**63 - 1]) | st.integers(
    -(2**63) + 1, 2**63 - 1
)


@given(st.lists(st.tuples(extremes, extremes, extremes), min_size=1, max_size=12))
def test_one_number_stands_for_each_tuple_of_keys_in_the_tuples_order(
    rows: list[tuple[int, ...]],
) -> None:
    keys = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    cells = contribution_bounding.combined_keys(keys).tolist()
    for (a, left), (b, right) in itertools.combinations(zip(rows, cells, strict=True), 2):
        assert (a < b) == (left < right)
        assert (a == b) == (left == right)


def test_a_sum_beyond_what_fits_stops_the_kernel_and_one_below_is_exact() -> None:
    def total(value: int, scale: int, rows: int) -> Answer:
        measure = Measure(None, (), (Tally("sum", Ref("v0"), scale),), True, 1, MANY)
        return of_rows([(1, value)] * rows, measure)

    assert total(2**52, 2**9, 3) == {(0,): (3 * 2**61,)}
    assert total(-(2**53) + 1, 1, 5) == {(0,): (5 * (1 - 2**53),)}
    with pytest.raises(OverflowError):
        total(2**52, 2**10, 3)


@pytest.mark.parametrize("max_rows", [1, MANY])
@pytest.mark.parametrize("sign", [-1, 1])
def test_of_values_with_nulls_the_farthest_from_zero_stops_the_kernel(
    sign: int, max_rows: int
) -> None:
    def total(size: int) -> Answer:
        measure = Measure(None, (), (Tally("sum", Ref("v0"), 2**10),), True, 1, max_rows)
        rows = [(who, sign * size) for who in range(4)]
        return of_rows([*rows, (7, None), (8, 0)], measure)

    assert total(2**50) == {(0,): (sign * 4 * 2**60,)}
    with pytest.raises(OverflowError):
        total(2**52)


def test_no_value_at_all_fits_however_far_from_zero_its_bounds_lie() -> None:
    """Else a question over one person's values would fail exactly where they have none."""
    tally = Tally("sum", Ref("v0"), 2, -(2**61))
    for clamp in (None, (-5, 5)):
        measure = Measure(None, (), (Tally("rows"), replace(tally, clamp=clamp)), True, 1, MANY)
        assert of_rows([(who, None) for who in range(40)], measure) == {(0,): (40, 0)}


def test_a_private_text_that_is_no_column_is_left_to_plain_sql(
    engine: DuckDBEngine, table: str
) -> None:
    word: Expr = Case(((NEGATIVE, Ref("v2")),), LiteralValue(Constant("text", "else")))
    measure = Measure(None, (Key(word, None),), (Tally("rows"),), True, MANY, MANY)
    assert lower_to_kernel(measure, known_of_table(table)) is None
    assert lower(measure, "duckdb")
    assert answer(engine, table, measure)


def test_sums_that_could_pass_64_bits_are_not_added_up() -> None:
    cells, amounts = np.zeros(2, np.int64), [np.ones(2, np.int64)]
    for most in (MAX_INT64, MAX_INT64 + 1):
        if most > MAX_INT64:
            with pytest.raises(OverflowError):
                bounded_sums.by_cell(cells, (), amounts, [most], 1)
        else:
            assert bounded_sums.by_cell(cells, (), amounts, [most], 1).tallies[0].tolist() == [2]


def test_parts_of_ranges_are_added_up_as_long_as_they_fit() -> None:
    cold = lower_to_kernel(ONE_OF_THREE, PreparedTable(MANY, True, ("integer",), (False,)))
    assert cold is not None
    cold = replace(cold, tallies=cold.tallies[:1])

    def total(*most: int) -> list[int]:
        ones = (np.ones(1, np.int64),)
        parts = [row_arrays.Part((), ones, (bound,)) for bound in most]
        return list(contribution_bounding.dense(parts, cold, 1)["t0"].tolist())

    assert total(MAX_INT64 - 1, 1) == [2]
    with pytest.raises(OverflowError):
        total(MAX_INT64, 1)
