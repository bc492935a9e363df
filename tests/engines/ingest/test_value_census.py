"""An owner's file as codes: whole or with rows that are alike as one, and of any length."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sfumato.dp.anonymity.coded_table import Table
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.release.unseal import unseal
from sfumato.vault.table_reader_port import ReadOrder
from support.engine_rows import SALT

LENGTH = 6_000_000


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    made = DuckDBEngine(SALT, memory_mb=200, threads=2)
    yield made
    made.close()


@pytest.fixture
def spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of temporary files of our own, to see that it is left empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spilled"))
    (tmp_path / "spilled").mkdir()
    return tmp_path / "spilled"


def rows_of(table: Table) -> Counter[tuple[str, ...]]:
    columns = [[c.written[code] for code in c.codes.tolist()] for c in table.columns.values()]
    found: Counter[tuple[str, ...]] = Counter()
    for row, count in zip(zip(*columns, strict=True), table.weight.tolist(), strict=True):
        found[row] += count
    return found


def test_a_file_is_read_text_by_text_whole_or_grouped(
    engine: DuckDBEngine, tmp_path: Path, spilled: Path
) -> None:
    lines = [("NA", "+491", "1.50"), ("", "1_0", "2"), ("NA", "+491", "1.50"), ("DE", "7", "n/a")]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(map(",".join, [("land", "id", "n"), *lines])) + "\n")
    whole = unseal(engine.read(ReadOrder(str(file))))
    grouped = unseal(engine.read(ReadOrder(str(file), is_grouped=True)))
    assert rows_of(whole) == rows_of(grouped) == Counter(lines)
    assert (whole.rows, grouped.rows, grouped.people) == (4, 3, 4)
    assert set(whole.columns["n"].values) == {1.5, 2, None}
    assert list(spilled.iterdir()) == []


@pytest.mark.slow
def test_a_file_larger_than_a_workers_memory_is_counted(
    engine: DuckDBEngine, tmp_path: Path, spilled: Path
) -> None:
    file = tmp_path / "large.csv"
    duckdb.sql(
        "COPY (SELECT i % 10 AS age, 'a rather long name of a place ' || i * 7919 % 100 AS zip,"
        f" 'illness number ' || i % 13 AS s FROM range({LENGTH}) t(i)) TO '{file}' (HEADER)"
    )
    assert file.stat().st_size > 280 << 20  # and the worker has 200
    grouped = unseal(engine.read(ReadOrder(str(file), is_grouped=True)))
    assert (grouped.people, grouped.rows) == (LENGTH, 1300)
    assert list(spilled.iterdir()) == []
