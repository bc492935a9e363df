"""How an OMOP export is read: names in any case, other spellings of days, the vocabulary."""

from __future__ import annotations

import csv
import gzip
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path

import pytest

import sfumato
from sfumato.client.ready_made import ReadExport, Terms, read_export, ready_made_card
from sfumato.dp.refusal import Refused
from support.exports.omop_export import write_omop
from support.small_vaults import make_vault

TERMS = Terms(years=(2010, 2020))
PERSON = "person_id,gender_concept_id,year_of_birth\n1,8507,1950\n"


def write(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return str(folder)


def test_each_file_is_found_whatever_its_case_and_format(tmp_path: Path) -> None:
    folder = write_omop(tmp_path / "export", 20)
    with read_export("omop", str(folder), TERMS) as export:
        names = [table.name for table in export.tables]
        assert names[0] == "person"
        assert set(names) >= {"measurement", "drug_exposure", "death", "concept", "observation"}
        assert "condition_era" not in names
        left_out = "\n".join(export.left_out)
    assert "condition_era" in left_out
    assert "person_source_value" in left_out
    assert "note" in left_out


def test_days_have_the_format_that_the_file_writes(tmp_path: Path) -> None:
    visit = "person_id,visit_start_date,visit_end_date\n1,20120131,2012-02-01 00:00:00\n"
    death = "person_id,death_date\n1,2019-01-02T00:00:00Z\n"
    source = write(
        tmp_path, {"PERSON.csv": PERSON, "visit_occurrence.csv": visit, "Death.CSV": death}
    )
    with read_export("omop", source, TERMS) as export:
        columns, died = export.tables[1].columns, export.tables[2].columns
    assert columns["visit_start_date"]["format"] == "%Y%m%d"
    assert columns["visit_end_date"]["format"] == "%Y-%m-%d %H:%M:%S"
    assert died["death_date"]["format"] == "%Y-%m-%dT%H:%M:%SZ"
    assert str(columns["visit_start_date"]["lower"]) == "2010-01-01"


def test_no_single_person_decides_how_days_are_written(tmp_path: Path) -> None:
    visit = "person_id,visit_start_date\n1,20120131\n2,2012-02-01\n3,2012-02-03\n"
    source = write(tmp_path, {"person.csv": PERSON, "visit_occurrence.csv": visit})
    with read_export("omop", source, TERMS) as export:
        assert "format" not in export.tables[1].columns["visit_start_date"]


def test_quotes_in_a_vocabulary_of_athena_mean_nothing(tmp_path: Path) -> None:
    concept = 'concept_id\tconcept_name\tdomain_id\n7\t"Lung" disease, 5" wide\tCondition\n'
    source = write(tmp_path, {"person.csv": PERSON, "CONCEPT.csv": concept})
    with read_export("omop", source, TERMS) as export:
        written = Path(export.tables[1].file).read_text("utf-8")
    rows = list(csv.reader(written.splitlines(), delimiter="\t"))
    assert rows[1] == ["7", '"Lung" disease, 5" wide', "Condition"]


def test_a_vocabulary_with_commas_is_read_too(tmp_path: Path) -> None:
    concept = 'concept_id,concept_name,domain_id\n7,"Disease, of the lung",Condition\n'
    source = write(tmp_path, {"person.csv": PERSON, "concept.csv": concept})
    with read_export("omop", source, TERMS) as export:
        written = Path(export.tables[1].file).read_text("utf-8")
    assert "7\tDisease, of the lung\tCondition" in written


def test_a_file_of_windows_names_its_encoding_on_the_card(tmp_path: Path) -> None:
    text = "person_id,gender_concept_id,person_source_value\n1,8507,Müller\n"
    (tmp_path / "person.csv").write_bytes(text.encode("cp1252"))
    with read_export("omop", str(tmp_path), TERMS) as export:
        assert export.tables[0].encoding == "cp1252"


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_of_two_encodings_is_refused_and_none_of_its_words_is_misread(
    tmp_path: Path, is_packed: bool
) -> None:
    head = "person_id,gender_concept_id,person_source_value\n"
    mixed = (head + "1,8507,Müller\n2,8507,Öztürk\n").encode() + b"3,8507,M\xfcller\n"
    name = "person.csv.gz" if is_packed else "person.csv"
    (tmp_path / name).write_bytes(gzip.compress(mixed) if is_packed else mixed)
    with pytest.raises(Refused, match="UTF-8 in most places") as refused, opened(tmp_path):
        pass
    assert "Müller" not in str(refused.value)
    windows = (head + "1,8507,Ã¼ and Ä, Ö, ß, é\n").encode("cp1252")
    (tmp_path / name).write_bytes(gzip.compress(windows) if is_packed else windows)
    with opened(tmp_path) as export:
        assert export.tables[0].encoding == "cp1252"


def opened(folder: Path) -> AbstractContextManager[ReadExport]:
    return read_export("omop", str(folder), TERMS)


@pytest.mark.parametrize(
    ("on_card", "of_file"), [("utf-8", "cp1252"), ("cp1252", "utf-8"), ("utf-16", "utf-8")]
)
def test_a_later_export_in_another_encoding_than_the_cards_is_refused(
    tmp_path: Path, on_card: str, of_file: str
) -> None:
    text = "person_id,gender_concept_id,year_of_birth,x\n" + "1,8507,1950,Öl\n" * 9
    (tmp_path / "person.csv").write_bytes(text.encode(on_card))
    budget = Terms(budget=(Decimal(1), Decimal("1e-6")))
    with read_export("omop", str(tmp_path), budget) as export:
        card = ready_made_card("cdm", export, budget)
    (tmp_path / "person.csv").write_bytes(text.encode(of_file))
    with (
        sfumato.open(make_vault(tmp_path)) as vault,
        read_export("omop", str(tmp_path), budget) as export,
        pytest.raises(Refused),
    ):
        vault.add("cdm", export.files(card)[0], card)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("person", "death"):
            with archive.open(f"{name}.csv", "w") as file:
                for _ in range(520):
                    file.write(bytes(1 << 20))
    refused = pytest.raises(Refused, match="more than a gigabyte")
    with refused, read_export("omop", str(tmp_path / "export.zip"), TERMS):
        pass


def test_a_zip_file_is_an_export_too(tmp_path: Path) -> None:
    folder = write_omop(tmp_path / "export", 5)
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, Path("cdm", path.relative_to(folder)))
    with read_export("omop", str(tmp_path / "export.zip"), TERMS) as export:
        assert len(export.tables) == 9


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"visit_occurrence.csv": "person_id\n1\n"}, "no file person.csv"),
        ({"person.csv": PERSON, "a/PERSON.csv": PERSON}, "twice"),
        ({"person.csv": "id,gender_concept_id\n1,8507\n"}, "no column person_id"),
        ({"person.csv": PERSON, "concept.csv": "a,b\n1,2\n"}, "concept_name"),
        ({"person.csv": PERSON, "death.csv.zst": "x"}, "compressed"),
    ],
)
def test_what_is_no_export_is_refused(files: dict[str, str], says: str, tmp_path: Path) -> None:
    source = write(tmp_path, files)
    with pytest.raises(Refused, match=says) as refused, read_export("omop", source, TERMS):
        pass
    assert refused.value.code == "source-unreadable"


def test_only_the_tables_that_are_wanted_are_taken(tmp_path: Path) -> None:
    folder = str(write_omop(tmp_path / "export", 5))
    with read_export("omop", folder, Terms(only=("death", "Concept"))) as export:
        assert [table.name for table in export.tables] == ["person", "death", "concept"]
    with (
        pytest.raises(Refused, match="no table 'deaths'"),
        read_export("omop", folder, Terms(only=("deaths",))),
    ):
        pass
