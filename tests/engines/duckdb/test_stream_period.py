"""Counts that another engine hands over, range by range, become what each person has used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sfumato.engines.duckdb import stream_period
from sfumato.engines.duckdb.stream_period import count_remote_period
from sfumato.engines.shared.cell_assembly import Columns
from sfumato.engines.shared.locked_connection import Room

PERSONS = 10


def write_names(folder: Path, persons: list[int]) -> Path:
    """Write who these persons are: the first byte of a name tells the person's number."""
    path = folder / "people.parquet"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (person UINTEGER, who BLOB)")
        for place, person in enumerate(persons):
            connection.execute("INSERT INTO people VALUES (?, ?)", [person, bytes([place] * 32)])
        connection.execute(f"COPY people TO '{path}' (FORMAT parquet)")
    return path


class Elsewhere:
    """An engine that counted these rows of these persons; it remembers what it was asked."""

    def __init__(self, rows: Mapping[int, int]) -> None:
        self.rows, self.asked = rows, list[tuple[int, int]]()

    def __call__(self, low: int, high: int) -> Columns:
        self.asked.append((low, high))
        some = {who: n for who, n in self.rows.items() if low <= who < high}
        return {
            "person": np.array(list(some), dtype=np.int64),
            "n": np.array(list(some.values()), dtype=np.int64),
        }


def take(folder: Path, names: Path, elsewhere: Elsewhere, before: str | None = None) -> int:
    folder.mkdir()
    request: dict[str, object] = {
        "people": str(names), "rows": 3, "end": 1 if before is None else 2, "first": 1,
        "before": before, "target": str(folder / "used.duckdb"), "spill": str(folder / "spill"),
    }  # fmt: skip
    (block,) = count_remote_period(Room(512, 1, "", ()), request, elsewhere).parts
    return int(block[0])


def used(path: Path) -> dict[int, int]:
    with duckdb.connect(str(path / "used.duckdb"), read_only=True) as connection:
        return {who[0]: n for who, n in connection.execute("SELECT who, rows FROM used").fetchall()}


@pytest.mark.parametrize("at_once", [1, 3, 4, 100])
def test_every_range_is_asked_once_and_whoever_has_rows_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(stream_period, "PERSONS", at_once)
    monkeypatch.setattr(stream_period, "_AT_ONCE", 2)
    names = write_names(tmp_path, list(range(PERSONS)))
    first = Elsewhere({0: 1, 2: 5, 3: 3, 9: 2})
    assert take(tmp_path / "first", names, first) == 1 + 3 + 3 + 2
    covered = [person for low, high in first.asked for person in range(low, min(high, PERSONS))]
    assert covered == list(range(PERSONS))
    assert used(tmp_path / "first") == {0: 1, 2: 3, 3: 3, 9: 2}


def test_a_person_is_known_again_under_another_number(tmp_path: Path) -> None:
    """Numbers are of one preparation: here each person's neighbour has theirs afterwards."""
    names = write_names(tmp_path, list(range(PERSONS)))
    take(tmp_path / "first", names, Elsewhere({0: 3, 1: 1}))
    shifted = write_names(tmp_path, [(n + 1) % PERSONS for n in range(PERSONS)])
    before = str(tmp_path / "first" / "used.duckdb")
    assert take(tmp_path / "again", shifted, Elsewhere({1: 5, 2: 5}), before) == 4 + 0 + 2
    assert used(tmp_path / "again") == {0: 3, 1: 3}


@pytest.mark.parametrize("persons", [[0, 1, 3], [0, 1, 2, 2], [0, 1], []])
def test_a_person_without_a_name_or_with_two_is_not_counted_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, persons: list[int]
) -> None:
    monkeypatch.setattr(stream_period, "PERSONS", 1)
    names = write_names(tmp_path, persons)
    with pytest.raises(ValueError, match="somebody"):
        take(tmp_path / "first", names, Elsewhere({2: 1}))
