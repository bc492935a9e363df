"""Excel and SQLite files at a service, and in a vault that is encrypted at rest."""

from __future__ import annotations

import sqlite3
import zipfile
from pathlib import Path
from typing import Any, Final, cast

import openpyxl
import pytest

import sfumato
from sfumato.dp.refusal import Refused
from support.encrypted_vaults import image, lies_open, make_sealed, memory
from support.served_vault import served
from support.small_vaults import make_vault

NAME: Final = "Zacharias-of-the-hill"


def shape(people: str) -> dict[str, Any]:
    return {
        "unit": "who",
        "people": people,
        "budget": {"epsilon": 10},
        "columns": {"kg": {"type": "number", "lower": 0, "upper": 200, "step": 0.1}},
    }


def workbook(path: Path) -> Path:
    book = openpyxl.Workbook()
    for sheet in ("visits", "other"):
        made = book.create_sheet(sheet)
        made.append(["who", "kg"])
        for n in range(200):
            made.append([f"{NAME}-{sheet}-{n}", 50 + n / 10])
    book.save(path)
    return path


def database(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE visits (who TEXT, kg REAL)")
        rows = [(f"{NAME}-{n}", 50 + n / 10) for n in range(200)]
        connection.executemany("INSERT INTO visits VALUES (?, ?)", rows)
    connection.close()
    return path


def test_a_sheet_is_added_at_a_service(tmp_path: Path) -> None:
    with served(make_vault(tmp_path)) as service:
        service.owner()
        with sfumato.connect(service.url, token=service.tokens["owner"]) as vault:
            source = workbook(tmp_path / "a.xlsx")
            with pytest.raises(Refused, match="has 2 sheets"):
                vault.proposed("a", source)
            columns = vault.proposed("a", source, "visits")["columns"]
            assert columns == [
                {"name": "who", "type": "text"}, {"name": "kg", "type": "number"},
            ]  # fmt: skip
            packed = tmp_path / "a.zip"
            with zipfile.ZipFile(packed, "w") as archive:
                archive.write(source, "export/a.xlsx")
                archive.writestr("export/b.csv", "who\n1\n")
            with pytest.raises(Refused, match="has 2 files of rows") as found:
                vault.proposed("a", packed)
            assert found.value.facts["choices"] == ["export/a.xlsx", "export/b.csv"]
            assert vault.proposed("a", packed, "export/a.xlsx/visits")["columns"] == columns
            added = vault.add("a", source, shape("a"), inner_table="visits")
            assert (added.name, added.people) == ("a", "a")
            rows = vault["a"].count().ask(epsilon=8, op="1").value
            assert abs(float(str(rows)) - 200) < 20


def test_rows_of_a_database_file_do_not_lie_open(tmp_path: Path) -> None:
    with memory() as scratch:
        folder, key = make_sealed(tmp_path)
        with sfumato.open(folder, at_rest_key=key) as vault:
            source = database(scratch / "a.sqlite")
            columns = cast("list[object]", vault.proposed("a", source)["columns"])
            assert len(columns) == 2
            vault.add("a", source, shape("a"))
            packed = scratch / "a.zip"
            with zipfile.ZipFile(packed, "w") as archive:
                archive.write(source, "a.sqlite")
            vault.add("b", packed, shape("b"), different_people="the board")
            source.unlink()
            packed.unlink()
            assert lies_open(scratch) == []
        assert NAME.encode() not in image(folder)
