"""Rows in blocks: who leaves changes one block's file and no other, whatever the key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.engines.duckdb.block_files import decimal_text
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.spark.engine import SparkEngine
from sfumato.sandbox.block_columns import block_columns
from sfumato.sandbox.ports import SplitOrder
from sfumato.vault.engine_port import EngineStopped
from support.small_vaults import card, write_csv

CARD = """
unit = "who"
people = "town"
version = "%s"
budget = { epsilon = 1, delta = 0 }
[columns.note]
type = "text"
[columns.height]
type = "number"
lower = -300
upper = 300
step = 0.25
"""
PEOPLE, BLOCKS = 40, 7
ROWS = [
    (f"p{place:02d}", f"n{place}\twith a tab\nand a line", 50 * row - place / 4)
    for place in range(PEOPLE)
    for row in range(1 + place % 3)
]


@pytest.fixture(params=[None, "local[2]"], ids=["duckdb", "spark"])
def vault(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenVault]:
    """Open a vault on an engine that can split rows; no JVM of Spark's is started for it."""
    folder = tmp_path / "vault"
    sfumato.create(folder, anchor=tmp_path / "anchors" / "anchor", engine=request.param)
    with sfumato.open(folder) as made:
        add(made, tmp_path, "1", ROWS)
        yield made


def add(vault: OpenVault, folder: Path, version: str, rows: list[tuple[str, str, float]]) -> None:
    source = write_csv(folder / f"t{version}.csv", ("who", "note", "height"), rows)
    vault.add("town", source, card(CARD % version))


def split(vault: OpenVault, folder: Path, key: int) -> list[str]:
    engine, found = vault.house.engine, vault.house.catalogue.find("town")
    assert isinstance(engine, DuckDBEngine | SparkEngine)
    assert found is not None
    folder.mkdir()
    columns = block_columns(found.card, None)
    secret = hashlib.sha256(str(key).encode()).digest()
    order = SplitOrder(found.table, "who", columns, BLOCKS, secret, str(folder), 1000)
    return [Path(path).read_text() for path in engine.split(order)]


def gone(folder: Path, vault: OpenVault, keys: int) -> None:
    before = [split(vault, folder / f"a{key}", key) for key in range(keys)]
    add(vault, folder, "2", [row for row in ROWS if row[0] != "p07"])
    for key in range(keys):
        after = split(vault, folder / f"b{key}", key)
        pairs = list(zip(before[key], after, strict=True))
        changed = [pair for pair in pairs if pair[0] != pair[1]]
        assert len(changed) == 1
        was, is_now = (text.splitlines()[1:] for text in changed[0])
        assert len(was) - len(is_now) == 2  # both rows of p07


def test_who_leaves_changes_one_block_with_all_their_rows(vault: OpenVault, tmp_path: Path) -> None:
    gone(tmp_path, vault, 6)


@pytest.mark.slow
def test_who_leaves_changes_one_block_in_two_hundred_runs(vault: OpenVault, tmp_path: Path) -> None:
    gone(tmp_path, vault, 200)


def test_every_row_is_in_one_block_and_reads_as_it_was(vault: OpenVault, tmp_path: Path) -> None:
    texts = split(vault, tmp_path / "a", 1)
    assert {text.splitlines()[0] for text in texts} == {"who\tnote\theight"}
    rows = [line.split("\t") for text in texts for line in text.splitlines()[1:]]
    found = sorted((note, height) for _, note, height in rows)
    plain = [(note.replace("\t", " ").replace("\n", " "), h) for _, note, h in ROWS]
    assert found == sorted((note, f"{height:g}") for note, height in plain)
    assert {who[0] for who, _, _ in rows} == {"p"}


def test_another_key_puts_people_elsewhere(vault: OpenVault, tmp_path: Path) -> None:
    assert split(vault, tmp_path / "a", 1) != split(vault, tmp_path / "b", 2)
    assert split(vault, tmp_path / "c", 1) == split(vault, tmp_path / "d", 1)


def test_a_table_that_is_not_there_says_nothing(vault: OpenVault, tmp_path: Path) -> None:
    engine = vault.house.engine
    assert isinstance(engine, DuckDBEngine | SparkEngine)
    order = SplitOrder(str(tmp_path / "none"), "who", (), 3, bytes(32), str(tmp_path), 10)
    with pytest.raises(EngineStopped) as stopped:
        engine.split(order)
    assert (stopped.value.__context__, stopped.value.__cause__) == (None, None)


@pytest.mark.parametrize(("value", "text"), [
    (Fraction(0), "0"), (Fraction(-1, 4), "-0.25"), (Fraction(17, 10), "1.7"),
    (Fraction(300), "300"), (Fraction(1, 1000), "0.001"), (Fraction(-1005, 100), "-10.05"),
])  # fmt: skip
def test_a_number_is_written_exactly(value: Fraction, text: str) -> None:
    assert decimal_text(value) == text
