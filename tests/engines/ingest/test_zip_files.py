"""A zip file of tables is read like the files in it; one that is not safe is refused."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import openpyxl
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from support.small_vaults import make_vault

PATIENTS: Final = b"who,born\n" + b"".join(b"p%d,19%02d\n" % (n, 40 + n) for n in range(30))
VISITS: Final = b"who;kg\n" + b"".join(b"p%d;%d,5\n" % (n % 30, n) for n in range(60))
BUDGET: Final = {"budget": {"epsilon": 1}}


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("zips"))) as opened:
        yield opened


def a_book() -> bytes:
    book = openpyxl.Workbook()
    for name in ("Visits", "Lab"):
        sheet = book.create_sheet(name)
        sheet.append([f"{name} name", "value"])
        sheet.append(["p1", 3])
    text = io.BytesIO()
    book.save(text)
    return text.getvalue()


def zipped(path: Path, entries: Mapping[str, bytes], **how: Any) -> Path:
    with zipfile.ZipFile(path, "w", how.get("method", zipfile.ZIP_DEFLATED)) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def names(vault: OpenVault, path: Path, table: str | None = None) -> list[str]:
    found = cast("list[dict[str, str]]", vault.proposed("p", path, table)["columns"])
    return [one["name"] for one in found]


def refused(vault: OpenVault, path: Path, table: str | None = None) -> Refused:
    with pytest.raises(Refused) as found:
        vault.proposed("p", path, table)
    card = {"unit": "row", "people": "r", **BUDGET, "columns": {"who": {"type": "text"}}}
    with pytest.raises(Refused) as again:
        vault.add("r", path, card, inner_table=table, different_people="the board")
    assert str(found.value) == str(again.value)
    return found.value


def test_what_programs_put_beside_a_file_is_not_a_file_of_rows(
    vault: OpenVault, tmp_path: Path
) -> None:
    entries = {
        "export/": b"",
        "export/patients.csv": PATIENTS,
        "__MACOSX/export/._patients.csv": b"\0\5\26\7",
        "export/.patients.csv.swp": b"1",
        "export/README.txt": b"made by a program",
    }
    path = zipped(tmp_path / "a.zip", entries)
    assert names(vault, path) == ["who", "born"]
    card = {"unit": "who", "people": "mac", **BUDGET}
    columns = {"who": {"type": "text"}, "born": {"type": "integer", "lower": 1900, "upper": 2030}}
    vault.add("mac", path, {**card, "columns": columns}, different_people="the board")
    assert not list(tmp_path.glob("*.csv"))


def test_several_files_are_listed_and_each_can_be_named(vault: OpenVault, tmp_path: Path) -> None:
    entries = {"a/patients.csv": PATIENTS, "b/visits.csv": VISITS, "Book.xlsx": a_book()}
    path = zipped(tmp_path / "all.ZIP", entries)
    said = refused(vault, path)
    assert said.cause == "The zip file has 3 files of rows."
    assert said.facts["choices"] == ["Book.xlsx", "a/patients.csv", "b/visits.csv"]
    assert said.next_step.endswith("Python: Book.xlsx, a/patients.csv, b/visits.csv.")
    for named in ("b/visits.csv", "visits.csv", "visits"):
        assert names(vault, path, named) == ["who", "kg"]
    assert "2 sheets" in refused(vault, path, "Book").cause
    assert names(vault, path, "Book.xlsx/Lab") == ["Lab name", "value"]
    assert "of that name" in refused(vault, path, "lab").cause
    assert "of that name" in refused(vault, path, "visits.csv/Lab").cause
    alone = zipped(tmp_path / "one.zip", {"Book.xlsx": a_book()})
    assert names(vault, alone, "Visits") == ["Visits name", "value"]


def test_a_zip_file_serves_several_tables_of_a_card(vault: OpenVault, tmp_path: Path) -> None:
    path = zipped(tmp_path / "both.zip", {"patients.csv": PATIENTS, "visits.csv": VISITS})
    who = {"type": "text"}
    kg = {"type": "number", "lower": 0, "upper": 100, "step": 0.5, "decimal": ","}
    card = {
        "unit": "who",
        "people": "both",
        **BUDGET,
        "columns": {"who": who, "born": {"type": "integer", "lower": 1900, "upper": 2030}},
        "tables": {"visits": {"unit": "who", "columns": {"who": who, "kg": kg}}},
    }
    vault.add("both", path, card, inner_table="patients", different_people="the board")
    report = cast("list[dict[str, object]]", vault.add_report("both").shape["tables"])
    assert [one["table"] for one in report] == ["both", "visits"]


def test_names_are_read_as_windows_and_others_write_them(vault: OpenVault, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("Ordner\\Müller.csv", "x.csv"):
            info = zipfile.ZipInfo("a")
            info.filename = name  # as .NET writes it
            archive.writestr(info, PATIENTS)
    assert names(vault, path, "Müller") == ["who", "born"]


UNSAFE: Final[Mapping[str, tuple[dict[str, bytes], str]]] = {
    "absolute": ({"/etc/a.csv": PATIENTS}, "absolute"),
    "a drive": ({"C:/a.csv": PATIENTS}, "absolute"),
    "above": ({"../a.csv": PATIENTS}, "'..'"),
    "above, in a file that is not read": ({"a.csv": PATIENTS, "b/../../x.txt": b""}, "'..'"),
    "control characters": ({"a\x1b[2J.csv": PATIENTS}, "not text"),
    "a zip in a zip": ({"a.zip": b"PK\3\4"}, "another archive"),
    "a tar in a zip": ({"a.tar.gz": b"x"}, "another archive"),
    "a compressed table in a zip": ({"a.csv.gz": b"x"}, "another archive"),
    "no rows": ({"a.md": b"x", "b.pdf": b"x"}, "no file of rows"),
    "only a hidden file": ({"./.a.csv": PATIENTS}, "no file of rows"),
    "nothing": ({}, "no file of rows"),
}


@pytest.mark.parametrize("what", UNSAFE)
def test_an_unsafe_zip_file_is_refused(vault: OpenVault, tmp_path: Path, what: str) -> None:
    entries, cause = UNSAFE[what]
    said = refused(vault, zipped(tmp_path / "a.zip", entries))
    assert said.code == "source-unreadable"
    assert cause in said.cause


def test_a_text_beside_a_table_is_read_only_if_it_is_asked_for(
    vault: OpenVault, tmp_path: Path
) -> None:
    path = zipped(tmp_path / "a.zip", {"rows.txt": b"a|b\n1|2\n", "p.csv": PATIENTS})
    assert names(vault, path) == ["who", "born"]
    assert names(vault, path, "rows.txt") == ["a", "b"]


def test_encrypted_linked_and_oddly_packed_files_are_refused(
    vault: OpenVault, tmp_path: Path
) -> None:
    path = zipped(tmp_path / "a.zip", {"a.csv": PATIENTS})
    text = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        text[text.index(mark) + place] |= 1
    path.write_bytes(text)
    assert "is encrypted" in refused(vault, path).cause
    zipped(path, {"a.csv": PATIENTS}, method=zipfile.ZIP_LZMA)
    assert "other than deflate" in refused(vault, path).cause
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("a.csv")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert "is a link" in refused(vault, path).cause
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", PATIENTS)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.csv", VISITS)
    assert "name of an earlier entry" in refused(vault, path).cause


def test_a_bomb_is_refused_before_it_is_unpacked(vault: OpenVault, tmp_path: Path) -> None:
    """It says that it has two gigabytes; and one that lies about that is cut off."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("a.csv", "w", force_zip64=True) as file:
            file.write(b"who\n")
            for _ in range(33):
                file.write(bytes(32 << 20))
        size = archive.infolist()[0].file_size
    assert path.stat().st_size < 2 << 20
    assert "200 times" in refused(vault, path).cause
    text = path.read_bytes()
    path.write_bytes(text.replace(struct.pack("<L", size), struct.pack("<L", 100)))
    assert "damaged" in refused(vault, path).cause


def test_too_many_entries_are_refused(vault: OpenVault, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {f"{n}.csv": b"" for n in range(10_001)})
    assert refused(vault, path).code == "source-unreadable"
