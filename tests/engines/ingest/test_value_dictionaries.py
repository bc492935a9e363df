"""Dictionaries of repeated values change nothing that is stored, and save passes and bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pytest

from sfumato.engines.ingest import prepare as prepare_module
from sfumato.engines.ingest import sketch_samples, value_dictionaries
from sfumato.engines.ingest.cell_report import STAGING
from sfumato.engines.ingest.prepare import open_with_staging
from sfumato.engines.ingest.prepare_order import order_header
from sfumato.engines.ingest.stored_ranks import MOST_ROWS, group_ranks, row_ranks
from sfumato.engines.shared import locked_connection
from sfumato.engines.shared.locked_connection import Room
from sfumato.vault.card.data_card import Card
from sfumato.vault.engine_port import PrepareOrder, SourceFile
from support.engine_rows import SALT, card_of

COLUMNS: Final[dict[str, dict[str, object]]] = {
    "day": {"type": "date", "lower": "2026-01-01", "upper": "2026-12-31"},
    "place": {"type": "text", "keys": [f"town {n}" for n in range(8)]},
    "cost": {"type": "number", "lower": 1, "upper": 900, "step": 0.01},
    "word": {"type": "text"},
}
ROOM: Final = Room(1024, 2, "", ())
# Texts with spaces at their ends, other letters, missing-value markers, and zeros with a minus.
AWKWARD: Final = (
    "SELECT CASE i % 50 WHEN 3 THEN '' WHEN 4 THEN NULL ELSE 'p' || (i * 7 % 61) END AS who,"
    " CASE WHEN i % 31 > 0 THEN DATE '2025-12-25' + (i * 13 % 400)::INTEGER END AS day,"
    " CASE WHEN i % 11 = 0 THEN NULL WHEN i % 2 = 0 THEN ' town ' ELSE 'town ' END || (i % 10)"
    " AS place,"
    " CASE WHEN i % 17 = 0 THEN '-0.0'::DOUBLE ELSE (i * 5 % 97)::DOUBLE / 10 END AS cost,"
    " CASE i % 13 WHEN 0 THEN 'n/a' WHEN 1 THEN '\u00a0Wörd' WHEN 2 THEN 'WORD 1' ELSE"
    " 'word ' || (i % 5) END AS word, i AS extra FROM range(3000) r(i)"
)


class Counting:
    """A connection that keeps the statements it executes."""

    def __init__(self, real: duckdb.DuckDBPyConnection) -> None:
        self._real = real
        self.said: list[str] = []

    def execute(self, sql: str, *values: Any) -> Any:  # as duckdb's own method
        self.said.append(sql)
        return self._real.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:  # of the real connection
        return getattr(self._real, name)


def prepared(folder: Path, source: Path, card: Card, room: Room = ROOM) -> Path:
    """Prepare a source in this process; return the folder with the table and the sketch."""
    folder.mkdir()
    order = PrepareOrder((SourceFile(str(source)),), "", card, SALT, (), "")
    said = prepare_module.prepare(room, SALT.hex(), order_header(order, folder))
    assert "refused" not in said, said
    (folder / "report").write_text(str(said))
    return folder


def stored(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all stored tables in their stored order, and the report and sketch."""
    with duckdb.connect(str(folder / "rows.duckdb"), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        found = {
            name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in names
        }
    return {
        **found,
        **{name: [((folder / name).read_text(),)] for name in ("people.json", "report")},
    }


@pytest.mark.parametrize("suffix", ["parquet", "csv", "duckdb"])
def test_with_and_without_dictionaries_the_same_is_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str
) -> None:
    source = tmp_path / f"rows.{suffix}"
    with duckdb.connect(str(source) if suffix == "duckdb" else ":memory:") as connection:
        copy = f"COPY ({AWKWARD}) TO '{source}'"
        connection.execute(f"CREATE TABLE t AS {AWKWARD}" if suffix == "duckdb" else copy)
    card = card_of("who", COLUMNS, nulls=["", "n/a"], limits={"rows_per_person": 40})
    plain = stored(prepared(tmp_path / "plain", source, card))
    monkeypatch.setattr(value_dictionaries, "_FEWEST_ROWS", 0)
    monkeypatch.setattr(sketch_samples, "_CHUNK", 700)
    monkeypatch.setattr(prepare_module, "_RANKED_AT_ONCE", 300)
    found: list[frozenset[int]] = []
    real = value_dictionaries.coded_source

    def kept(*values: Any) -> Any:  # of coded_source
        made = real(*values)
        found.append(made.coded)
        return made

    monkeypatch.setattr(prepare_module, "coded_source", kept)
    coded = stored(prepared(tmp_path / "coded", source, card))
    assert found[0] >= {0, 1, 2, 4}
    assert (3 in found[0]) == (suffix == "csv")  # -0.0 equals 0.0 as a number, but not as a text
    assert coded == plain
    assert len(plain["rows"]) > 2000


def test_texts_that_a_collation_equates_stay_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(value_dictionaries, "_FEWEST_ROWS", 0)
    source = tmp_path / "rows.duckdb"
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE TABLE t (who VARCHAR, word VARCHAR COLLATE NOCASE)")
        connection.execute(
            "INSERT INTO t SELECT 'p' || i % 9, ['a', 'A'][i % 2 + 1] FROM range(90) r(i)"
        )
    card = card_of("who", {"word": {"type": "text"}})
    found = stored(prepared(tmp_path / "work", source, card))
    assert [row[1] for row in found["texts0"]] == ["A", "a"]


def test_preparation_reads_a_source_few_times_and_stores_few_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An add of ten million rows takes minutes as soon as each column is read and hashed anew."""
    from bench.add import write_files
    from bench.append import CARD
    from sfumato.vault.card.data_card import read_card

    source = write_files(tmp_path / "parts", 200_000)
    made: list[Counting] = []
    real = locked_connection.open_locked

    def counting(*values: Any, **options: Any) -> Any:  # of open_locked
        made.append(Counting(real(*values, **options)))
        return made[0]

    monkeypatch.setattr(prepare_module, "open_locked", counting)
    monkeypatch.setattr(prepare_module, "_RANKED_AT_ONCE", 60_000)
    small = replace(ROOM, memory_mb=128)  # without a spill folder: more would end it
    work = prepared(tmp_path / "work", source, read_card("visits", CARD), small)
    said = made[0].said
    of_source = [sql for sql in said if re.search(r"FROM (source|texts)\b", sql)]
    of_all_columns = [sql for sql in of_source if "sketch-row" in sql]
    assert len(of_all_columns) == 1  # cells are made to values, and rows hashed, in one pass
    per_column = [sql for sql in of_source if re.search(r"GROUP BY r\d", sql)]
    assert len(per_column) == 4  # not of the costs, which hardly repeat
    hints = [sql for sql in of_source if "LIMIT" in sql]
    definitions = [sql for sql in of_source if "TEMP VIEW" in sql]
    others = len(of_source) - 1 - len(per_column) - len(hints) - len(definitions)
    assert others <= 2  # how many values each column has
    assert sum("ORDER BY person, row_key" in sql for sql in said) == 1  # rows are sorted once
    assert not any("OVER (PARTITION BY person" in sql and "gr1 " in sql.split("FROM")[0]
                   and "CREATE TABLE \"rows\"" in sql for sql in said)  # fmt: skip
    assert len(said) < 100
    parquet = sum(file.stat().st_size for file in source.iterdir())
    assert sum(file.stat().st_size for file in work.iterdir()) < 2.65 * parquet
    assert sorted(file.name for file in work.iterdir()) == ["people.json", "report", "rows.duckdb"]


def test_what_does_not_fit_in_the_usual_memory_is_prepared_again_with_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A source of thousands of columns takes megabytes for each of them."""
    source = tmp_path / "rows.parquet"
    duckdb.sql(f"COPY ({AWKWARD}) TO '{source}'")
    card = card_of("who", COLUMNS)
    plain = stored(prepared(tmp_path / "plain", source, card))
    monkeypatch.setattr(prepare_module, "_USUAL_MB", 1)
    (tmp_path / "spill").mkdir()
    opened: list[int] = []

    def counting(database: str, room: Room, *, read_only: bool) -> Any:  # of open_locked
        opened.append(room.memory_mb)
        return locked_connection.open_locked(database, room, read_only=read_only)

    monkeypatch.setattr(prepare_module, "open_locked", counting)
    room = replace(ROOM, spill=str(tmp_path / "spill"))
    assert stored(prepared(tmp_path / "again", source, card, room)) == plain
    assert opened == [1, 1024]


# --- ranks against a plain reading ---------------------------------------------------------------


def by_hand(persons: list[int], codes: list[int], hashes: list[int]) -> tuple[list[int], list[int]]:
    groups, rows = [], []
    for place, (person, code) in enumerate(zip(persons, codes, strict=True)):
        theirs = [i for i, other in enumerate(persons) if other == person]
        order = sorted({(hashes[i], codes[i]) for i in theirs if codes[i] >= 0})
        groups.append(0 if code < 0 else 1 + order.index((hashes[place], code)))
        rows.append(0 if code < 0 else sum(codes[i] == code for i in theirs if i <= place))
    return groups, rows


@pytest.mark.parametrize("bits", [1, 24, 63])
def test_ranks_are_those_of_a_plain_reading(bits: int) -> None:
    """With few bits, hashes of a person's groups tie, and codes decide."""
    rng = np.random.default_rng(bits)
    for _ in range(30):
        size = int(rng.integers(1, 80))
        persons = np.sort(rng.integers(0, 9, size)) * 3
        codes = rng.integers(-1, 6, size)
        keyed = rng.integers(0, 1 << bits, (30, 6)).astype(np.uint64) << np.uint64(64 - bits)
        hashes = np.where(codes < 0, np.uint64(0), keyed[persons, codes])
        groups, rows = group_ranks(persons, codes, hashes)
        expected = by_hand(persons.tolist(), codes.tolist(), hashes.tolist())
        assert (groups.tolist(), rows.tolist()) == expected
        firsts = [persons.tolist().index(person) for person in persons.tolist()]
        assert row_ranks(persons).tolist() == [i - f + 1 for i, f in enumerate(firsts)]


def test_hashes_that_differ_in_their_last_bits_only_are_still_ordered() -> None:
    persons, codes = np.zeros(4, np.int64), np.array([0, 1, 0, 1])
    hashes = np.array([9, 8, 9, 8], np.uint64)
    groups, rows = group_ranks(persons, codes, hashes)
    assert (groups.tolist(), rows.tolist()) == ([2, 1, 2, 1], [1, 1, 2, 2])


def test_more_rows_than_one_sort_takes_are_ranked_too() -> None:
    size = MOST_ROWS + 5
    persons, codes = np.zeros(size, np.int64), np.arange(size) % 2
    groups, rows = group_ranks(persons, codes, np.array([7, 3], np.uint64)[codes])
    assert groups[:4].tolist() == [2, 1, 2, 1]
    assert rows[-1] == (size + 1) // 2


def test_the_second_file_of_a_preparation_can_take_up_its_log_at_any_time(tmp_path: Path) -> None:
    with open_with_staging(ROOM, tmp_path, ()) as connection:
        connection.execute(f"CREATE TABLE {STAGING}.t AS SELECT range AS x FROM range(100000)")
        connection.execute(f"INSERT INTO {STAGING}.t VALUES (1)")
        connection.execute(f"CHECKPOINT {STAGING}")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.duckdb"]
