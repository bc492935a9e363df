"""The same rows in every file format that a vault reads: the same values, or a refusal."""

from __future__ import annotations

import gzip
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyreadstat
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.system.row_files import SUFFIXES, TEXT
from support.small_vaults import make_vault

ROWS: Final = 60
KG: Final = {"type": "number", "lower": 0, "upper": 200, "step": 0.001}
COLUMNS: Final[Mapping[str, Mapping[str, Any]]] = {
    "who": {"type": "text", "keys": [f"p{n}" for n in range(ROWS)]},
    "kg": KG,
    "visits": {"type": "integer", "lower": 0, "upper": 100},
    "born": {"type": "date"},
    "note": {"type": "text"},
}


def the_rows() -> list[tuple[str, float | None, int, date, str | None]]:
    return [
        (
            f"p{n}",
            None if n % 7 == 0 else 50 + n * 1.125,
            n % 9,
            date(1950 + n, n % 12 + 1, n % 28 + 1),
            None if n % 5 == 0 else f'"quoted",\nß;{n}\t',
        )
        for n in range(ROWS)
    ]


def the_values() -> list[tuple[object, ...]]:
    """Return the rows as a prepared table holds them: numbers as steps of their column."""
    return sorted(
        (
            (who, None if kg is None else round(kg * 1000), visits, born, note and note.strip())
            for who, kg, visits, born, note in the_rows()
        ),
        key=str,
    )


def frame() -> pd.DataFrame:
    return pd.DataFrame(the_rows(), columns=list(COLUMNS))


def as_sheet(path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append([])  # people leave empty lines
    sheet.append(list(COLUMNS))
    for row in the_rows():
        sheet.append(list(row))
    book.create_sheet("empty")
    book.save(path)


def as_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE visits (who TEXT, kg REAL, visits INT, born DATE, note)")
        rows = [(*row[:3], row[3].isoformat(), row[4]) for row in the_rows()]
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()


def as_duckdb(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE visits (who TEXT, kg DOUBLE, visits INT, born DATE, note TEXT)"
        )
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", the_rows())


def lines() -> bytes:
    made = []
    for row in the_rows():
        shape = {name: value for name, value in zip(COLUMNS, row, strict=True) if value is not None}
        made.append(json.dumps({**shape, "born": row[3].isoformat()}, ensure_ascii=False))
    return "\n".join(made).encode()


def as_csv(path: Path) -> None:
    frame().to_csv(path, index=False)


def as_stream(path: Path) -> None:
    table = pa.Table.from_pandas(frame())
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def as_categories(path: Path) -> None:
    made = frame()
    made["who"] = made["who"].astype("category")
    pyarrow.feather.write_feather(made, str(path))


def as_ods(path: Path) -> None:
    frame().to_excel(path, index=False, engine="odf")


MAKERS: Final[Mapping[str, Callable[[Path], object]]] = {
    ".csv": as_csv,
    ".tsv": lambda path: frame().to_csv(path, index=False, sep="\t"),
    ".csv.gz": lambda path: frame().to_csv(path, index=False, compression="gzip"),
    ".txt": lambda path: frame().to_csv(path, index=False, sep="|"),
    ".txt.gz": lambda path: frame().to_csv(path, index=False, sep="|", compression="gzip"),
    ".txt.zst": lambda path: as_zstd(path, frame().to_csv(index=False, sep="|").encode()),
    ".tsv.gz": lambda path: frame().to_csv(path, index=False, sep="\t", compression="gzip"),
    ".csv.zst": lambda path: as_zstd(path, frame().to_csv(index=False).encode()),
    ".tsv.zst": lambda path: as_zstd(path, frame().to_csv(index=False, sep="\t").encode()),
    ".jsonl": lambda path: path.write_bytes(lines()),
    ".ndjson": lambda path: path.write_bytes(b"\xef\xbb\xbf" + lines() + b"\r\n\r\n"),
    ".jsonl.gz": lambda path: path.write_bytes(gzip.compress(lines())),
    ".ndjson.gz": lambda path: path.write_bytes(gzip.compress(lines())),
    ".jsonl.zst": lambda path: as_zstd(path, lines()),
    ".ndjson.zst": lambda path: as_zstd(path, lines()),
    ".parquet": lambda path: frame().to_parquet(path),
    ".pq": lambda path: frame().to_parquet(path),
    ".arrow": as_stream,
    ".feather": as_categories,
    ".ipc": lambda path: pyarrow.feather.write_feather(frame(), str(path), compression="zstd"),
    ".duckdb": as_duckdb,
    ".ddb": as_duckdb,
    ".db": as_sqlite,
    ".sqlite": as_sqlite,
    ".sqlite3": as_sqlite,
    ".db3": as_sqlite,
    ".xlsx": as_sheet,
    ".xlsm": as_sheet,
    ".sav": lambda path: pyreadstat.write_sav(frame(), str(path)),
    ".zsav": lambda path: pyreadstat.write_sav(frame(), str(path), compress=True),
    ".dta": lambda path: pyreadstat.write_dta(frame(), str(path)),
    ".xpt": lambda path: pyreadstat.write_xport(frame(), str(path)),
    ".zip": lambda path: frame().to_csv(
        path, index=False, compression={"method": "zip", "archive_name": "my visits.csv"}
    ),
}
# no program that writes these runs here: .xls, .ods, .por and .sas7bdat
UNWRITTEN: Final = {".xls", ".ods", ".por", ".sas7bdat"}


def as_zstd(path: Path, text: bytes) -> None:
    with pa.output_stream(str(path), compression="zstd") as file:
        file.write(text)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("formats"))) as opened:
        yield opened


def shape(name: str, columns: Mapping[str, Any] = COLUMNS, **more: object) -> dict[str, Any]:
    return {"unit": "row", "people": name, "budget": {"epsilon": 1}, "columns": columns, **more}


def stored(vault: OpenVault, name: str, columns: int) -> list[tuple[object, ...]]:
    listing = vault.house.catalogue.find(name)
    assert listing is not None
    values = ", ".join(f"v{i}" for i in range(columns))
    with duckdb.connect(listing.table, read_only=True) as connection:
        return sorted(connection.execute(f'SELECT {values} FROM "rows"').fetchall(), key=str)


def proposed(vault: OpenVault, path: Path, table: str | None = None) -> dict[str, str]:
    """Return the columns that are proposed for a file, with their types."""
    found = cast("list[dict[str, str]]", vault.proposed("p", path, table)["columns"])
    return {one["name"]: one["type"] for one in found}


def refused(vault: OpenVault, path: Path, **how: Any) -> Refused:
    with pytest.raises(Refused) as found:
        vault.add("r", path, shape("r"), different_people="the board", **how)
    with pytest.raises(Refused):
        vault.proposed("r", path, **how)
    return found.value


def test_each_suffix_has_a_writer() -> None:
    assert set(MAKERS) | UNWRITTEN == set(SUFFIXES)


@pytest.mark.parametrize("suffix", MAKERS)
def test_a_format_has_the_same_rows(vault: OpenVault, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"my visits{suffix.upper() if suffix == '.xlsx' else suffix}"
    MAKERS[suffix](path)
    before = path.read_bytes()
    name = "f" + suffix.replace(".", "-")
    assert proposed(vault, path) == {name: str(one["type"]) for name, one in COLUMNS.items()}
    vault.add(name, path, shape(name), different_people="the board")
    assert stored(vault, name, 5) == the_values()
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]  # no journal beside it


def test_a_number_of_a_sheet_is_no_text_in_a_format(vault: OpenVault, tmp_path: Path) -> None:
    """1.125 in a cell is a number; only texts are read by the card's marks."""
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["number", "text"])
    for _ in range(30):
        sheet.append([1.125, "1.125,5"])
    book.save(path)
    number = {"type": "number", "lower": 0, "upper": 5000, "step": 0.001}
    made = shape("marks", {"number": number, "text": number}, decimal=",", thousands=".")
    vault.add("marks", path, made, different_people="the board")
    assert set(stored(vault, "marks", 2)) == {(1125, 1125500)}


def several(path: Path) -> None:
    if path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for name in ("visits", "Labor 2024"):
            sheet = book.create_sheet(name)
            sheet.append([*COLUMNS])
            for row in the_rows():
                sheet.append([name[0] + row[0], *row[1:]])
        book.save(path)
        return
    (as_sqlite if path.suffix == ".sqlite" else as_duckdb)(path)
    connect: Any = sqlite3.connect if path.suffix == ".sqlite" else duckdb.connect
    connection = connect(str(path))
    connection.execute("CREATE TABLE \"Labor 2024\" AS SELECT 'L' || who AS who, kg FROM visits")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("suffix", [".xlsx", ".sqlite", ".duckdb"])
def test_a_file_with_several_tables_names_them(
    vault: OpenVault, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"all{suffix}"
    several(path)
    said = refused(vault, path)
    assert "--table" in said.next_step
    assert all(name in said.next_step for name in ("visits", "Labor 2024"))
    assert "of that name" in refused(vault, path, inner_table="lab").cause
    name = f"t{suffix[1:]}"
    columns = {name: COLUMNS[name] for name in ("who", "kg")}
    keyed = {**columns, "who": {"type": "text"}}
    within = "main.Labor 2024" if suffix == ".duckdb" else "Labor 2024"
    assert [*proposed(vault, path, within)][:2] == [*columns]
    vault.add(name, path, shape(name, keyed), inner_table=within, different_people="the board")
    assert {str(row[0])[0] for row in stored(vault, name, 2)} == {"L"}


@pytest.mark.parametrize("suffix", [suffix for suffix in MAKERS if suffix not in TEXT])
def test_a_damaged_file_is_refused(vault: OpenVault, tmp_path: Path, suffix: str) -> None:
    """A file that is cut in the middle, and one that is something else."""
    whole = tmp_path / f"whole{suffix}"
    MAKERS[suffix](whole)
    content = whole.read_bytes()
    half, other = tmp_path / f"half{suffix}", tmp_path / f"other{suffix}"
    half.write_bytes(content[: len(content) // 2])
    other.write_bytes(b"%PDF-1.7\n" + bytes(range(256)) * 40)
    for path in (half, other):
        if path == half and suffix == ".xpt":
            continue  # this format does not say how many rows it has (sharp-edges.md)
        said = refused(vault, path)
        assert said.code == "source-unreadable"
        assert "p1" not in str(said)
        assert "visits" not in str(said)


def test_a_sheet_that_cannot_be_read_leaves_the_others(vault: OpenVault, tmp_path: Path) -> None:
    """As in an example file of another package: a number of one sheet is none."""
    whole, path = tmp_path / "whole.xlsx", tmp_path / "a.xlsx"
    several(whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for one in old.namelist():
            content = old.read(one)
            bad = (
                content.replace(b"<v>51.125</v>", b"<v>51,125</v>") if "sheet3" in one else content
            )
            new.writestr(one, bad)
            assert (bad != content) == ("sheet3" in one)
    assert "Labor 2024" in refused(vault, path).next_step
    assert "a cell that cannot be read" in refused(vault, path, inner_table="Labor 2024").cause
    assert [*proposed(vault, path, "visits")] == [*COLUMNS]


def test_what_is_above_the_names_of_a_sheet_is_refused(vault: OpenVault, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["Visits of 2024, department 7"])
    sheet.append([*COLUMNS])
    for row in the_rows():
        sheet.append(list(row))
    book.save(path)
    assert refused(vault, path).code == "no-header"
    sheet.delete_rows(1, 2)  # and a sheet without names would publish a person's row
    book.save(path)
    assert refused(vault, path).code == "no-header"


def test_an_sqlite_file_with_a_log_is_refused(vault: OpenVault, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    as_sqlite(path)
    open_now = sqlite3.connect(path)
    open_now.execute("PRAGMA journal_mode = WAL")
    open_now.execute("INSERT INTO visits (who) VALUES ('p1')")
    open_now.commit()
    try:
        assert "-wal" in refused(vault, path).cause
    finally:
        open_now.close()


def test_an_unfinished_change_of_sqlite_is_refused(vault: OpenVault, tmp_path: Path) -> None:
    """The file has a part of the change already, which its journal would undo."""
    path = tmp_path / "a.sqlite"
    as_sqlite(path)
    writing = sqlite3.connect(path, isolation_level=None)
    writing.execute("PRAGMA cache_size = 1")
    writing.execute("CREATE TABLE more (text)")
    writing.execute("PRAGMA journal_mode = PERSIST")
    writing.execute("BEGIN")
    writing.execute("UPDATE visits SET kg = 1")
    for _ in range(20):
        writing.execute("INSERT INTO more VALUES (?)", ("x" * 5000,))
    copy = tmp_path / "copy.sqlite"
    try:
        for end in ("", "-journal"):
            Path(f"{copy}{end}").write_bytes(Path(f"{path}{end}").read_bytes())
        assert "-journal" in refused(vault, copy, inner_table="visits").cause
    finally:
        writing.execute("ROLLBACK")
        writing.close()
    assert proposed(vault, path, "visits")  # the journal is there, but of no change


def test_a_sheet_without_names_has_its_first_row(vault: OpenVault, tmp_path: Path) -> None:
    """The card names the columns: the first row's person is spelled as in the other rows."""
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in ((5, date(2020, 1, 1), True), (5, date(2020, 1, 2), False)):
        sheet.append(row)
    book.save(path)
    columns = {
        "who": {"type": "text", "keys": ["5"]},
        "day": {"type": "date"},
        "is": {"type": "boolean"},
    }
    card = shape("first", columns, header=[*columns])
    vault.add("first", path, card, different_people="the board")
    expected = [("5", date(2020, 1, 1), True), ("5", date(2020, 1, 2), False)]
    assert stored(vault, "first", 3) == expected
    columns["more"] = {"type": "text"}
    with pytest.raises(Refused, match="another number of columns"):
        vault.add("more", path, shape("more", columns, header=[*columns]))


def test_a_row_of_a_person_is_not_taken_for_names(vault: OpenVault, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (("Anna", True), ("Bert", False), ("Carla", True)):
        sheet.append(row)
    book.save(path)
    assert refused(vault, path).code == "no-header"
    path = tmp_path / "a.jsonl"  # a name that reads like the hint of a spreadsheet program
    path.write_text('{"sep=;": "Anna"}\n{"sep=;": "Bert"}\n')
    assert [*proposed(vault, path)] == ["sep=;"]


def test_numbers_and_texts_under_one_format_are_refused(vault: OpenVault, tmp_path: Path) -> None:
    """1.125 as a number and '1.125' as a German text are not the same."""
    german = {"kg": {**KG, "decimal": ",", "thousands": "."}}
    lines, folder = tmp_path / "a.jsonl", tmp_path / "out"
    lines.write_text('{"kg": 1.125}\n{"kg": "1.125"}\n')
    folder.mkdir()
    for place, cell in enumerate((1.125, "1.125")):
        pd.DataFrame({"kg": [cell]}).to_parquet(folder / f"{place}.parquet")
    for path in (lines, folder):
        with pytest.raises(Refused, match="numbers and also texts"):
            vault.add("mixed", path, shape("mixed", german), different_people="the board")
    lines.write_text('{"kg": 1.125}\n{"kg": "n/a"}\n')
    card = shape("marked", german, nulls=["n/a"])
    vault.add("marked", lines, card, different_people="the board")
    assert stored(vault, "marked", 1) == [(1125,), (None,)]


def test_parquet_files_that_would_be_read_twice_are_refused(
    vault: OpenVault, tmp_path: Path
) -> None:
    """DuckDB takes a file's name for a pattern, and a folder's name for a column."""
    frame().to_parquet(tmp_path / "a.parquet")
    frame().to_parquet(tmp_path / "*.parquet")
    assert "stand for others" in refused(vault, tmp_path).cause
    assert "stand for others" in refused(vault, tmp_path / "*.parquet").cause
    part = tmp_path / "all" / "visits=2"
    part.mkdir(parents=True)
    frame().to_parquet(part / "a.parquet")
    assert "folder's name" in refused(vault, part.parent).cause


def test_json_lines_name_the_bad_line(vault: OpenVault, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line in (b"{'who': 1}", b"[1]", b'{"who": 1, "who": 2}', b"\xff", b'{"who": "p1"'):
        path.write_bytes(lines() + b"\n" + line)
        assert f"Line {ROWS + 1} " in refused(vault, path).cause


def test_a_file_that_unpacks_without_end_is_refused(vault: OpenVault, tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte."""
    path = tmp_path / "a.csv.gz"
    zeros = gzip.compress(bytes(64 << 20), 9)
    path.write_bytes(gzip.compress(b"who\n") + zeros * 20)
    assert "200 times" in refused_by_add(vault, path).cause


def refused_by_add(vault: OpenVault, path: Path) -> Refused:
    with pytest.raises(Refused) as found:
        vault.add("r", path, shape("r"), different_people="the board")
    return found.value


def test_a_folder_of_parquet_files_is_one_table(vault: OpenVault, tmp_path: Path) -> None:
    """Spark's folder with Hive's partitions, and a pattern; a file of Spark's own is left out."""
    folder = tmp_path / "out"
    rows = frame()
    for year in ("2023", "2024"):
        part = folder / f"year={year}" / "_x"
        part.mkdir(parents=True)
        kept = rows[: ROWS // 2] if year == "2023" else rows[ROWS // 2 :].assign(more=1)
        kept.to_parquet(part.parent / "part-0.parquet")
        (part / "left.parquet").write_bytes(b"not whole")
    (folder / "_SUCCESS").touch()
    assert [*proposed(vault, folder)] == [*COLUMNS, "more", "year"]
    columns = {**COLUMNS, "year": {"type": "text", "keys": ["2023", "2024"]}}
    vault.add("pq", folder, shape("pq", columns), different_people="the board")
    expected = [
        (*row, "2023" if int(str(row[0])[1:]) < ROWS // 2 else "2024") for row in the_values()
    ]
    assert stored(vault, "pq", 6) == sorted(expected, key=str)
    pattern = folder / "year=2024" / "*.parquet"
    vault.add("one", pattern, shape("one"), different_people="the board")
    assert stored(vault, "one", 5) == [
        row[:5] for row in sorted(expected, key=str) if row[5] == "2024"
    ]
