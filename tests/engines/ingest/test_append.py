"""Rows that arrive later: over all parts together, nobody counts more than in one table."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.stats import chi2

from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.engines.duckdb.block_files import split
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.duckdb.stream_period import count_period
from sfumato.engines.duckdb.training import train
from sfumato.engines.ingest import append as append_module
from sfumato.engines.ingest.append import merged
from sfumato.engines.ingest.prepare_order import split_header
from sfumato.engines.kernel import bounded_sums, keyed_order
from sfumato.engines.shared.prepared_table import segments_of
from sfumato.engines.shared.segments import open_prepared
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training_plan import plan_training
from sfumato.query.expression import Compare, Constant, Ref
from sfumato.query.measure import Key, Measure, Tally
from sfumato.query.model import Query
from sfumato.query.plan import Plan
from sfumato.release.unseal import unseal
from sfumato.sandbox.ports import BlockColumn, SplitOrder
from support.appended_tables import ROOM, add, append, in_parts, prepared_in_parts
from support.engine_rows import SALT, card_of, numbers, write_source
from support.query_oracle import planned
from support.random_tables import Dealt, tables_card, two_dealt
from support.sensitivity_oracle import excess, tight

CARD = card_of(
    "who",
    {
        "k": {"type": "text", "keys": ["c", "a", "b"]},
        "v": {"type": "integer", "lower": 0, "upper": 9},
        "t": {"type": "text"},
    },
    limits={"rows": 100_000, "rows_per_person": 6},
    max_groups=2,
    max_rows=2,
)
HEADER = ["who", "k", "v", "t"]
PEOPLE = tables_card(1000, 20)
K, T = Key(Ref("k0"), 3), Key(Ref("v2"), None)
TALLIES = (Tally("rows"), Tally("people"), Tally("sum", Ref("v1")))
Rows = Sequence[Sequence[object]]


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=1024, threads=2)
    yield made
    made.close()


MERGED_ROWS = append_module._MERGED_ROWS


@pytest.fixture(autouse=True)
def few_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep most parts in files of their own, though they are small."""
    monkeypatch.setattr(append_module, "_MERGED_ROWS", 4)


def in_files(folder: Path, parts: Sequence[Rows]) -> str:
    """Add the rows of the first part, and append those of the others."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = [write_source(folder / f"{n}.csv", HEADER, rows) for n, rows in enumerate(parts)]
    table = add(folder, {0: sources[0]}, CARD)
    for source in sources[1:]:
        table = append(table, {0: source}, CARD)
    return str(table)


def random_rows(rng: random.Random, rows: int, people: int = 9) -> list[list[object]]:
    words = ["", "m", "zz", "a", "Öl", "b", "it's", "n", "y"]
    return [
        [f"p{rng.randrange(people)}", rng.choice("abcx"), rng.randrange(10), rng.choice(words)]
        for _ in range(rows)
    ]


def even_rows(rng: random.Random, each: int, people: int) -> list[list[object]]:
    """Return rows of which each person has the same number, in a random order."""
    rows = random_rows(rng, each * people)
    for n, row in enumerate(rows):
        row[0] = f"p{n % people}"
    rng.shuffle(rows)
    return rows


# --- the bounds hold over all parts --------------------------------------------------------------


def pose(dealt: Dealt) -> Query:
    kinds = (Dealt.of_one, Dealt.of_one, Dealt.of_joined, Dealt.of_people, Dealt.of_public)
    return dealt.rng.choice(kinds)(dealt).question


def rest(parts: Sequence[Dealt], who: str) -> list[Dealt]:
    """Return the parts without one person, who is taken out of all of them."""
    return [
        replace(part, rows={t: [r for r in rows if r.who != who] for t, rows in part.rows.items()})
        for part in parts
    ]


def judge(engine: DuckDBEngine, folder: Path, seed: int, deals: int) -> Counter[str]:
    """Take everybody out of all parts in turn; hold what moved to what the plans claim."""
    rng, seen = random.Random(seed), Counter[str]()
    for deal in range(deals):
        dealt = replace(two_dealt(rng, PEOPLE, rng.randint(3, 7), 5), is_wide=True)
        parts = in_parts(rng, dealt, 3)
        whole = prepared_in_parts(folder / f"{deal}", parts)
        people = sorted({row.who for rows in dealt.rows.values() for row in rows} - {""})
        without = [
            prepared_in_parts(folder / f"{deal}-{n}", rest(parts, who))
            for n, who in enumerate(people)
        ]
        for _ in range(20):
            plan = planned(dealt.made, tight(rng, pose(dealt), dealt.made.unit))
            if plan is not None:
                _judge_one(engine, plan, (whole, without), seen)
    return seen


def _judge_one(
    engine: DuckDBEngine, plan: Plan, tables: tuple[str, list[str]], seen: Counter[str]
) -> None:
    before: Any = numbers(engine, tables[0], plan.measure)  # cells of values
    for table in tables[1]:
        after: Any = numbers(engine, table, plan.measure)
        wrong = excess(plan, before, after)
        assert not wrong, (wrong, plan.measure)
        seen["removals"] += 1
        seen["moved"] += before != after


def test_a_person_in_several_parts_moves_no_answer_further_than_is_charged(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    seen = judge(engine, tmp_path, 1, 2)
    assert seen["moved"] > seen["removals"] / 4 > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_many_persons_in_several_parts_move_no_answer_further_than_is_charged(
    engine: DuckDBEngine, tmp_path: Path, seed: int
) -> None:
    seen = judge(engine, tmp_path, seed, 12)
    assert seen["moved"] > seen["removals"] / 4 > 100


def kept_of(table: str) -> dict[object, list[tuple[Any, ...]]]:  # any stored values
    """Return of each person all that a question can see, in the person's order."""
    texts = "(SELECT value FROM texts2 WHERE code = c2)"
    with open_prepared(table, ROOM) as connection:
        found = connection.execute(
            f"SELECT person_key, row_key, rr, v0, v1, v2, k0, {texts}, gr0, rr0, gr2, rr2"
            ' FROM "rows" ORDER BY person, rr'
        ).fetchall()
    kept: dict[object, list[tuple[Any, ...]]] = {}
    for person_key, *values in found:
        kept.setdefault(person_key, []).append(tuple(values))
    return kept


def test_without_a_person_everybody_elses_ranks_are_the_same_over_all_parts(
    tmp_path: Path,
) -> None:
    rng = random.Random(2)
    for trial in range(3):
        parts = [random_rows(rng, 25) for _ in range(4)]
        whole = kept_of(in_files(tmp_path / f"{trial}", parts))
        for who in ("p0", "p4"):
            others = [[row for row in rows if row[0] != who] for rows in parts]
            left = kept_of(in_files(tmp_path / f"{trial}-{who}", others))
            assert len(left) == len(whole) - 1
            assert all(whole[key] == rows for key, rows in left.items())


def test_ranks_go_on_where_earlier_parts_ended_and_stop_at_the_cards_limit(tmp_path: Path) -> None:
    rng = random.Random(3)
    parts = [random_rows(rng, 30) for _ in range(4)]
    kept = kept_of(in_files(tmp_path / "parts", parts))
    per_person = Counter(row[0] for rows in parts for row in rows)
    assert sorted(map(len, kept.values())) == sorted(min(n, 6) for n in per_person.values())
    for mine in kept.values():
        assert [row[1] for row in mine] == list(range(1, len(mine) + 1))
        for key, group, rank in ((5, 7, 8), (4, 9, 10)):  # the code k0, the text v2
            keyed = [row for row in mine if row[key] is not None]
            places = {row[key]: row[group] for row in keyed}
            assert sorted(places.values()) == list(range(1, len(places) + 1))
            assert all(row[group] == places[row[key]] for row in keyed)
            for one in places:
                ranks = [row[rank] for row in keyed if row[key] == one]
                assert sorted(ranks) == list(range(1, len(ranks) + 1))
        assert all(row[4] == row[6] for row in mine)  # a code is that of its text


def test_rows_that_counted_still_count(tmp_path: Path) -> None:
    rng = random.Random(4)
    parts = [random_rows(rng, 30) for _ in range(3)]
    before = kept_of(in_files(tmp_path / "before", parts[:2]))
    after = kept_of(in_files(tmp_path / "after", parts))
    assert all(set(rows) <= set(after[key]) for key, rows in before.items())


@pytest.mark.parametrize(("first", "later"), [("7", "7.0"), ("7.0", "7"), ("7", "7.00")])
def test_a_person_who_is_spelled_as_another_number_does_not_become_two(
    tmp_path: Path, first: str, later: str
) -> None:
    """A frame's integers become floats if one cell is empty: everybody would count twice."""
    table = in_files(tmp_path, [[[first, "a", 1, "x"], ["8x", "b", 2, "y"]]])
    new = write_source(tmp_path / "new.csv", HEADER, [[later, "a", 1, "x"], ["", "a", 1, "x"]])
    with pytest.raises(AssertionError, match="one person would count as two"):
        append(Path(table), {0: new}, CARD)
    (tmp_path / "work-1" / "rows.duckdb").unlink()
    (tmp_path / "work-1").rmdir()
    fine = write_source(tmp_path / "new.csv", HEADER, [["9", "a", 1, "x"], ["8", "a", 1, "x"]])
    assert len(kept_of(str(append(Path(table), {0: fine}, CARD)))) == 4


# --- answers of one add --------------------------------------------------------------------------


def test_where_no_bound_bites_answers_are_those_of_one_add(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    rng, asked = random.Random(5), 0
    for deal in range(4):
        dealt = replace(two_dealt(rng, PEOPLE, rng.randint(3, 7), 5), is_wide=True)
        parts = prepared_in_parts(tmp_path / f"{deal}", in_parts(rng, dealt, 4))
        whole = prepared_in_parts(tmp_path / f"{deal}-whole", [dealt])
        for _ in range(25):
            plan = planned(dealt.made, pose(dealt))
            if plan is not None:
                one = numbers(engine, whole, plan.measure)
                assert numbers(engine, parts, plan.measure) == one, plan.measure
                asked += bool(one)
    assert asked > 30


def test_where_rows_come_in_no_order_each_is_kept_as_often_as_in_one_add(tmp_path: Path) -> None:
    """Six rows a person, of which two count: each row is one of them in a third of all people."""
    rng, people = random.Random(6), 900
    parts: list[list[list[object]]] = [[], [], []]
    for person in range(people):
        for value in range(6):
            rng.choice(parts).append([f"p{person}", "a", value, ""])
    table = in_files(tmp_path, parts)
    with open_prepared(table, ROOM) as connection:
        kept = connection.execute('SELECT v1 FROM "rows" WHERE rr <= 2').fetchall()
    counts = Counter(value for (value,) in kept)
    expected = people * 2 / 6
    # a row is kept or not, so its count varies by 2/3 of a Poisson count, and all add to 2 * people
    distance = sum((counts[value] - expected) ** 2 / expected for value in range(6))
    assert distance < chi2.isf(1e-6, 5)


@pytest.mark.parametrize("bits", [24, 1])
def test_where_hashes_tie_the_order_in_which_texts_came_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bits: int
) -> None:
    from sfumato.engines.kernel.contribution_bounding import add_up
    from sfumato.engines.shared.cold_path import lower_to_kernel
    from sfumato.engines.shared.prepared_table import read_prepared_table

    for module in (keyed_order, bounded_sums):  # with one bit, nearly all groups collide
        monkeypatch.setattr(module, "ORDER_BITS", bits)
    rng = random.Random(7)
    rows = even_rows(rng, 6, 5)
    where = Compare(Ref("v1"), "<", Constant.of(8))
    found: list[Any] = []
    for name, parts in (("whole", [rows]), ("parts", [rows[20:], rows[10:20], rows[:10]])):
        table = in_files(tmp_path / name, parts)
        for keys in ((T, K), (K, T)):  # no stored ranks order these groups
            for tallies in (TALLIES, TALLIES[::2]):
                measure = Measure(where, keys, tallies, True, 2, 100)
                plan = lower_to_kernel(measure, read_prepared_table(Path(table))[0])
                assert plan is not None
                with open_prepared(table, ROOM) as connection:
                    columns = add_up(connection, plan, SALT.hex(), 1)
                found.append({n: column.tolist() for n, column in columns.items()})
    assert found[:4] == found[4:]


# --- files ---------------------------------------------------------------------------------------


def test_a_table_of_many_appends_has_few_files_and_each_row_is_copied_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_module, "_MERGED_ROWS", MERGED_ROWS)
    sizes, copied, longest = [1_000_000], 0, 0
    for _ in range(2000):
        count = merged(10_000, sizes)
        assert count < len(sizes)  # so many rows are not copied at once
        moved = sum(sizes[len(sizes) - count :])
        sizes = [*sizes[: len(sizes) - count], 10_000 + moved]
        copied, longest = copied + moved, max(longest, moved)
        assert len(sizes) < 60
    assert copied < 12 * 2000 * 10_000
    assert longest <= max(1 << 20, sum(sizes) // 32)


def test_merged_files_have_the_rows_that_the_parts_had(
    engine: DuckDBEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(8)
    parts = [random_rows(rng, n, 40) for n in (60, 5, 1, 30, 0, 4)]
    monkeypatch.setattr(append_module, "_MERGED_ROWS", MERGED_ROWS)
    few = in_files(tmp_path / "few", parts)
    monkeypatch.setattr(append_module, "_MERGED_ROWS", 0)
    monkeypatch.setattr(append_module, "_MERGED_SHARE", 10**9)
    many = in_files(tmp_path / "many", parts)
    assert len(segments_of(Path(few))) < len(segments_of(Path(many))) == 6
    assert kept_of(few) == kept_of(many)
    for keys in ((K,), (T,), (K, T), ()):
        measure = Measure(None, keys, TALLIES, True, 2, 2)
        assert numbers(engine, few, measure) == numbers(engine, many, measure)


def test_a_reader_of_the_last_file_alone_finds_no_rows(tmp_path: Path) -> None:
    table = in_files(tmp_path, [[["p", "a", 1, "x"]] * 9, [["q", "b", 2, "y"]]])
    assert len(segments_of(Path(table))) == 2
    with (
        duckdb.connect(table, read_only=True) as connection,
        pytest.raises(duckdb.CatalogException),
    ):
        connection.execute('SELECT * FROM "rows"')


def test_stored_sums_of_the_first_part_answer_nothing_once_there_are_more_rows(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    """A sum clamped for each person: two parts of one person are clamped together, not apart."""
    rows: list[list[object]] = [["p", "a", 9, "x"]] * 3
    table = in_files(tmp_path, [rows, [["p", "a", 9, "y"]]])
    clamped = (Tally("sum", Ref("v1"), clamp=(0, 10)), Tally("people"))
    for keys in ((), (K,)):
        parts = unseal(engine.measure(table, Measure(None, keys, clamped, True, 2, 2))).parts
        assert [int(part.sum()) for part in parts] == [10, 1]


# --- other readers -------------------------------------------------------------------------------


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, str]:
    """Return a table of one add, and one of three parts with the same rows."""
    rng = random.Random(9)
    rows = even_rows(rng, 4, 15)
    parts = [rows[:40], rows[40:50], rows[50:]]
    return in_files(tmp_path / "one", [rows]), in_files(tmp_path / "parts", parts)


def test_blocks_for_programs_have_the_rows_of_all_parts(
    both: tuple[str, str], tmp_path: Path
) -> None:
    found = []
    for number, table in enumerate(both):
        target = tmp_path / f"blocks-{number}"
        target.mkdir()
        columns = tuple(BlockColumn(c.name, i, c.type, c.step) for i, c in enumerate(CARD.columns))
        order = SplitOrder(table, "who", columns, 4, bytes(16), str(target), 1000)
        split(ROOM, split_header(order, tmp_path))
        files = sorted(target.glob("*.tsv"))
        found.append([sorted(file.read_text().splitlines()) for file in files])
    assert len(found[0]) == 4
    assert found[0] == found[1]


def test_streams_count_the_rows_of_all_parts(both: tuple[str, str], tmp_path: Path) -> None:
    found = []
    for number, table in enumerate(both):
        cells = count_period(
            ROOM,
            {
                "table": table, "target": str(tmp_path / f"used-{number}.duckdb"),
                "spill": str(tmp_path), "before": None, "where": "v1 < ?", "parameters": [7],
                "rows": 2, "first": 1, "end": 1,
            },
        )  # fmt: skip
        found.append([part.tolist() for part in cells.parts])
    assert found[0] == found[1]
    assert found[0][0][0] > 20


def test_training_goes_through_the_rows_of_all_parts(both: tuple[str, str]) -> None:
    shape = {
        "name": "ab" * 32, "features": ["v"], "target": "v", "hidden": [3], "rounds": 1,
        "clip": Fraction(1, 2), "max_rows": 6, "activation": "tanh",
    }  # fmt: skip
    members = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))
    agreement = Agreement("clinics", bytes(32), members, 3, 1)
    card = card_of("who", {"v": {"type": "integer", "lower": 0, "upper": 9}}, max_rows=6)
    task = read_training_task(shape)
    plan = plan_training(card, task, agreement, Fraction(1), Fraction(1, 10**6))
    flat = np.random.default_rng(1).normal(size=plan.size).astype("<f4").tobytes()
    sums = []
    for table in both:
        order = plan.order(table, flat)
        order = replace(
            order,
            features=tuple(replace(field, column="v1") for field in order.features),
            target=replace(order.target, column="v1"),
        )
        for one in (order, replace(order, max_rows=None)):  # by person, and by row
            with open_prepared(table, ROOM) as connection:
                sums.append(train(connection, one, {}).tolist())
    assert sums[:2] == sums[2:]
    assert any(sums[0])


def test_rows_of_nobody_are_appended_too(engine: DuckDBEngine, tmp_path: Path) -> None:
    columns: dict[str, dict[str, object]] = {
        "k": {"type": "text", "keys": ["a", "b"]},
        "v": {"type": "integer"},
    }
    card = card_of("row", columns, limits={"rows": 40})
    sources = [
        write_source(tmp_path / f"{n}.csv", ["k", "v"], [["ab"[i % 2], i] for i in range(rows)])
        for n, rows in enumerate((20, 6, 3))
    ]
    table = add(tmp_path, {0: sources[0]}, card)
    for source in sources[1:]:
        table = append(table, {0: source}, card)
    measure = Measure(None, (Key(Ref("k0"), 2),), (Tally("rows"),), False, 1, 1)
    assert numbers(engine, str(table), measure) == {(0,): (15,), (1,): (14,)}
