"""Stored ranks: one person's rows never change another's, and ranks serve only where they hold."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from sfumato.engines.duckdb.engine import DuckDBEngine, Limits
from sfumato.engines.ingest import cell_sql, sketch_samples
from sfumato.engines.ingest import prepare as prepare_module
from sfumato.engines.ingest.prepare_order import order_header
from sfumato.engines.shared.locked_connection import Room
from sfumato.engines.shared.prepared_table import path_of, prepared_table, read_prepared_table
from sfumato.engines.shared.rank_path import lower_ranked
from sfumato.query.expression import Arithmetic, Compare, Constant, LiteralValue, Ref
from sfumato.query.measure import Key, Measure, PhysicalPersonColumn, PhysicalPersonTable, Tally
from sfumato.release.unseal import unseal
from sfumato.vault.engine_port import PrepareOrder, SourceFile
from support.engine_rows import SALT, card_of, prepare, write_source

CARD = card_of(
    "who",
    {
        "k": {"type": "text", "keys": ["c", "a", "b"]},
        "v": {"type": "number", "lower": -3, "upper": 3, "step": Fraction(1, 2)},
        "t": {"type": "text"},
        "b": {"type": "boolean"},
    },
    limits={"rows": 10_000, "rows_per_person": 6},
)
HEADER = ["who", "k", "v", "t", "b"]
RANKED = {0: "k0", 2: "c2", 3: "k3"}
ROOM = Room(512, 2, "", ())
Rows = list[list[str]]
Kept = dict[int, list[tuple[object, ...]]]  # by person's key

letters = st.sampled_from("abcdxyz")
one_row = st.tuples(
    st.sampled_from(["p", "q", "r", "s", ""]),
    st.sampled_from(["a", "b", "c", "z", ""]),
    st.sampled_from(["", "-1", "0.5", "2"]),
    st.just("") | letters | st.text(letters, max_size=2),
    st.sampled_from(["", "t", "f"]),
).map(list)
tables = st.lists(one_row, min_size=1, max_size=30).map(lambda rows: rows + rows[: len(rows) // 3])


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


def prepared_rows(folder: Path, rows: Sequence[Sequence[str]], salt: bytes = SALT) -> Kept:
    """Prepare in this process; return of each person all that a question can see, in its order."""
    source = write_source(folder / "s.csv", HEADER, rows)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "rows.duckdb").unlink(missing_ok=True)
    order = PrepareOrder((SourceFile(str(source)),), "", CARD, salt, (), "")
    prepare_module.prepare(ROOM, salt.hex(), order_header(order, work))
    ranks = "".join(f", gr{i}, rr{i}" for i in RANKED)
    texts = "(SELECT text_key FROM texts2 WHERE code = c2)"
    with duckdb.connect(str(work / "rows.duckdb"), read_only=True) as connection:
        found = connection.execute(
            f'SELECT person_key, row_key, rr, v0, v1, v2, v3, k0, k3, {texts}{ranks} FROM "rows"'
            " ORDER BY person, rr"
        ).fetchall()
    kept: Kept = {}
    for person_key, *rest in found:
        kept.setdefault(person_key, []).append(tuple(rest))
    return kept


# --- nobody moves anybody else -------------------------------------------------------------------


@pytest.mark.parametrize("is_cut", [False, True])
@given(tables)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_without_a_person_everybody_elses_ranks_and_rows_are_the_same_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, is_cut: bool, rows: Rows
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if is_cut:  # hashes of two bits: nearly everything ties
            for module in (prepare_module, cell_sql, sketch_samples):
                patched.setattr(module, "secret_number", short_number)
        folder = tmp_path_factory.mktemp("ranks")
        whole = prepared_rows(folder, rows)
        for person in {row[0] for row in rows}:
            rest = [row for row in rows if row[0] != person]
            others = prepared_rows(folder, rest)
            if is_cut:  # people are told apart by what is left of their keys, and may share one
                assert sorted(flat(others)) == sorted(flat(without(folder, rows, person)))
            else:
                assert all(whole[key] == theirs for key, theirs in others.items())
                assert len(whole) - len(others) == (1 if person else 0)


def short_number(tag: str, *texts: str) -> str:
    if tag == "person":  # people stay who they are, so that they can be found again
        return full_number(tag, *texts)
    return f"({full_number(tag, *texts)} % 4)"


full_number = cell_sql.secret_number


def flat(kept: Kept) -> list[str]:
    return [repr((key, row)) for key, rows in kept.items() for row in rows]


def without(folder: Path, rows: Rows, person: str) -> Kept:
    """Return what is kept of the others when the person is there."""
    theirs = prepared_rows(folder, [row for row in rows if row[0] == person]) if person else {}
    return {key: kept for key, kept in prepared_rows(folder, rows).items() if key not in theirs}


def test_where_hashes_tie_the_order_of_the_source_still_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (prepare_module, cell_sql, sketch_samples):
        monkeypatch.setattr(module, "secret_number", short_number)
    rows = [[p, k, v, t, ""] for p in "pq" for k in "ab" for v in "12" for t in "xy"]
    assert prepared_rows(tmp_path, rows) == prepared_rows(tmp_path, rows[::-1])


# --- what a rank is ------------------------------------------------------------------------------


@given(tables)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_ranks_are_places_in_the_keyed_order(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows
) -> None:
    kept = prepared_rows(tmp_path_factory.mktemp("places"), rows)
    for person_key, mine in kept.items():
        assert [row[1] for row in mine] == list(range(1, len(mine) + 1))
        assert mine == sorted(mine, key=lambda row: (row[0], row[1]))
        assert len(mine) <= CARD.limits.rows_per_person
        for place, column in enumerate((6, 4, 7)):  # k0, the text v2, k3
            groups = [row[9 + 2 * place] for row in mine]
            nths = [row[10 + 2 * place] for row in mine]
            keys: list[Any] = [row[column] for row in mine]
            assert groups == by_order(person_key, keys)
            assert nths == [
                None if key is None else keys[: i + 1].count(key) for i, key in enumerate(keys)
            ]


def by_order(person_key: int, keys: Sequence[Any]) -> list[int | None]:
    """Return the place of each key among the different ones, by the PRF of statements.py."""
    ordered = sorted({k for k in keys if k is not None}, key=lambda k: (prf(person_key, k), k))
    return [None if key is None else ordered.index(key) + 1 for key in keys]


def prf(person_key: int, key: object) -> int:
    text = f"{SALT.hex()}:cell:{person_key}:{key}".encode()
    return int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[8:], "little")


def test_another_secret_is_another_order(tmp_path: Path) -> None:
    rows = [[f"p{i}", k, "", "", ""] for i in range(30) for k in "abc"]
    orders = [
        [row[9] for mine in prepared_rows(tmp_path, rows, salt).values() for row in mine]
        for salt in (SALT, bytes(32))
    ]
    assert orders[0] != orders[1]


def test_every_pair_of_groups_comes_first_equally_often(tmp_path: Path) -> None:
    people, words = 700, "mnopq"
    rows = [[f"p{i}", "", "", word, ""] for i in range(people) for word in words]
    kept = prepared_rows(tmp_path, rows)
    pairs = Counter(
        tuple(sorted(str(row[4]) for row in mine if int(str(row[11])) <= 2))
        for mine in kept.values()
    )
    expected = people / 10
    assert set(pairs) <= set(combinations(words, 2))
    distance = sum((pairs[p] - expected) ** 2 / expected for p in combinations(words, 2))
    assert distance < chi2.isf(1e-6, 9)


# --- what ranks answer ---------------------------------------------------------------------------


@given(tables, st.integers(1, 3), st.integers(1, 3), st.sampled_from(["", "k", "t"]))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_by_ranks_nobody_counts_more_than_allowed_and_everybody_as_they_may(  # noqa: PLR0917
    tmp_path_factory: pytest.TempPathFactory,
    engine: DuckDBEngine,
    rows: Rows,
    groups: int,
    most: int,
    by: str,
) -> None:
    keys = {"": (), "k": (Key(Ref("k0"), 3),), "t": (Key(Ref("v2"), None),)}[by]
    measure = Measure(None, keys, (Tally("rows"), Tally("people")), True, groups, most)
    assert lower_ranked(measure, prepared_table(CARD)[0]) is not None
    for person in sorted({row[0] for row in rows} - {""}):
        source = write_source(
            tmp_path_factory.mktemp("one") / "s.csv", HEADER, [r for r in rows if r[0] == person]
        )
        table, _ = prepare(engine, source, CARD)
        counted, people = (part.tolist() for part in unseal(engine.measure(table, measure)).parts)
        code = {"": "true", "k": "k0", "t": "v2"}[by]
        with duckdb.connect(table, read_only=True) as connection:
            sizes = connection.execute(
                f'SELECT count(*) FROM "rows" WHERE {code} IS NOT NULL GROUP BY {code}'
            ).fetchall()
        there = [n for n in counted if n]
        assert len(there) == min(groups if by else 1, len(sizes))
        assert all(n <= most for n in there)
        assert sum(people) == len(there)
        if groups >= len(sizes):
            assert sorted(there) == sorted(min(n, most) for (n,) in sizes)


# --- where they do not serve ---------------------------------------------------------------------

ROWS = (Tally("rows"),)
GOOD = Measure(None, (Key(Ref("k0"), 3),), ROWS, True, 1, 1)
NOT_BY_RANKS = {
    "a filter": Measure(
        Compare(Ref("v1"), "<", Constant("number", "3")), GOOD.keys, ROWS, True, 1, 1
    ),
    "two keys": Measure(None, (*GOOD.keys, Key(Ref("k3"), 2)), ROWS, True, 1, 1),
    "an expression of a key": Measure(
        None,
        (Key(Arithmetic("+", Ref("k0"), LiteralValue(Constant("number", "0"))), 3),),
        ROWS,
        True,
        1,
        1,
    ),
    "the value of a declared column": Measure(None, (Key(Ref("v0"), None),), ROWS, True, 1, 1),
    "a number": Measure(None, (Key(Ref("v1"), None),), ROWS, True, 1, 1),
    "rows for people": Measure(None, GOOD.keys, ROWS, False, 1, 1),
    "a sum of each person": Measure(
        None, GOOD.keys, (Tally("sum", Ref("v1"), clamp=(0, 1)),), True, 1, 1
    ),
    "a table of people": Measure(
        None, (), ROWS, True, 1, 1, PhysicalPersonTable(None, (PhysicalPersonColumn("rows"),), 5)
    ),
}


def test_ranks_serve_a_grouping_by_one_stored_column() -> None:
    statement = lower_ranked(GOOD, prepared_table(CARD)[0])
    assert statement is not None
    assert statement.sql == (
        'SELECT CAST(k0 AS BIGINT) AS cell, CAST(count(*) AS BIGINT) AS t0 FROM "rows"'
        " WHERE rr0 <= 1 AND gr0 <= 1 GROUP BY k0"
    )


@pytest.mark.parametrize("what", NOT_BY_RANKS)
def test_ranks_serve_nothing_else(what: str) -> None:
    assert lower_ranked(NOT_BY_RANKS[what], prepared_table(CARD)[0]) is None


def test_a_row_unit_has_no_ranks() -> None:
    card = card_of("row", {"t": {"type": "text"}})
    assert not prepared_table(card)[0].is_ranked(0)
    measure = Measure(None, (Key(Ref("v0"), None),), ROWS, False, 1, 1)
    assert lower_ranked(measure, prepared_table(card)[0]) is None


# --- what lies beside the table ------------------------------------------------------------------


def test_what_is_known_of_a_table_is_the_card_and_nothing_of_its_rows(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    found = []
    for name, rows in (("a", [["p", "a", "1", "x", "t"]]), ("b", [["q", "b", "", "", ""]] * 50)):
        table, _ = prepare(engine, write_source(tmp_path / f"{name}.csv", HEADER, rows), CARD)
        found.append(path_of(Path(table)).read_bytes())
        assert read_prepared_table(Path(table)) == prepared_table(CARD)
    assert found[0] == found[1]


def test_a_table_of_an_older_house_goes_the_plain_way(engine: DuckDBEngine, tmp_path: Path) -> None:
    source = write_source(tmp_path / "s.csv", HEADER, [["p", "a", "1", "x", "t"]] * 3)
    table, _ = prepare(engine, source, CARD)
    measure = Measure(None, (Key(Ref("k0"), 3),), ROWS, True, 1, 2)
    for text in (None, "", "{}", '{"version": 0}'):
        if text is None:
            path_of(Path(table)).unlink()
        else:
            path_of(Path(table)).write_text(text)
        assert read_prepared_table(Path(table)) == ()
        assert [part.tolist() for part in unseal(engine.measure(table, measure)).parts] == [
            [0, 2, 0]
        ]


def test_a_question_has_ten_times_what_the_cards_rows_can_take_and_a_minute_at_least() -> None:
    assert Limits().deadline_of(0) == 60
    assert Limits().deadline_of(1000) == 60
    assert Limits().deadline_of(10**9) == 5000
    assert Limits(deadline_s=3).deadline_of(10**9) == 3


def test_a_question_has_ten_times_the_memory_too_but_not_the_whole_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = {"SC_PHYS_PAGES": 16 << 20, "SC_PAGE_SIZE": 4096}  # 64 GB
    monkeypatch.setattr("os.sysconf", machine.__getitem__)
    assert Limits().memory_of(0) == Limits().memory_of(1_000_000) == 4096
    assert Limits().memory_of(10**7) == 10**10 >> 20
    assert Limits().memory_of(10**9) == 48 << 10
    assert Limits(memory_mb=300).memory_of(10**9) == 300


def test_a_question_of_more_rows_starts_a_worker_with_more_memory(tmp_path: Path) -> None:
    engine = DuckDBEngine(SALT, threads=1)
    source = write_source(tmp_path / "s.csv", HEADER, [["p", "a", "1", "x", "t"]] * 3)
    table, _ = prepare(engine, source, CARD)
    measure = Measure(None, (Key(Ref("k0"), 3),), ROWS, True, 1, 2)
    pids = []
    for rows in (10, 10**9, 10):
        assert (
            unseal(engine.measure(table, replace(measure, max_table_rows=rows))).parts[0].sum() == 2
        )
        pids.append(engine.worker_pid())
    engine.close()
    assert pids[0] != pids[1] == pids[2]
