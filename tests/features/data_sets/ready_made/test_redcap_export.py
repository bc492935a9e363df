"""How a REDCap export is read: the dictionary decides types, keys, ranges and what is not taken."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sfumato.client.ready_made import ReadExport, Terms, read_export
from sfumato.dp.refusal import Refused
from support.exports.redcap_export import write_redcap

TERMS = Terms(years=(2015, 2023))
TITLES = (
    "field_name,form_name,field_type,select_choices_or_calculations,"
    "text_validation_type_or_show_slider_number,text_validation_min,text_validation_max,identifier"
)


def write(folder: Path, fields: str, records: str, events: str = "") -> str:
    (folder / "dictionary.csv").write_text(f"{TITLES}\nid,main,text,,,,,\n{fields}\n", "utf-8")
    (folder / "records.csv").write_text(records, "utf-8")
    if events:
        (folder / "events.csv").write_text(events, "utf-8")
    return str(folder)


def columns(source: str, terms: Terms = TERMS, table: int = 0) -> Mapping[str, Any]:
    with read_export("redcap", source, terms) as export:
        return export.tables[table].columns


def rows(export: ReadExport, table: int) -> list[list[str]]:
    with open(export.tables[table].file, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


def cells(source: str, terms: Terms = TERMS, table: int = 0) -> list[list[str]]:
    with read_export("redcap", source, terms) as export:
        return rows(export, table)


def test_choices_are_numbers_with_their_labels_beside(tmp_path: Path) -> None:
    fields = 'sex,main,radio,"1, Male | 2, <b>Female</b> | 9, Other",,,,'
    source = write(tmp_path, fields, "id,sex\na,2\nb,Male\nc,7\nd,\n")
    found = columns(source)
    assert found["sex"] == {"type": "integer", "keys": [1, 2, 9], "lower": 1, "upper": 9}
    assert found["sex_label"] == {"type": "text", "keys": ["Male", "Female", "Other"]}
    expected = [["a", "2", "Female"], ["b", "1", "Male"], ["c", "", ""], ["d", "", ""]]
    assert cells(source)[1:] == expected


def test_codes_that_are_no_numbers_are_texts(tmp_path: Path) -> None:
    fields = 'site,main,dropdown,"BE, Bern | 01, Other | 02, Other",,,,'
    found = columns(write(tmp_path, fields, "id,site\na,01\n"))
    assert found["site"] == {"type": "text", "keys": ["BE", "01", "02"]}
    assert found["site_label"]["keys"] == ["Bern", "Other (01)", "Other (02)"]


def test_a_checkbox_is_a_column_for_each_choice(tmp_path: Path) -> None:
    fields = 'race,main,checkbox,"1, White | -88, Other | A, Asian",,,,'
    records = "id,race___1,race____88,race___a\na,1,0,Checked\n"
    source = write(tmp_path, fields, records)
    assert list(columns(source)) == ["race___1", "race____88", "race___a"]
    assert cells(source)[1] == ["a", "1", "0", "1"]


def test_numbers_have_the_range_of_the_dictionary_or_none(tmp_path: Path) -> None:
    fields = "\n".join(
        (
            "whole,main,text,,integer,0,120,",
            "point,main,text,,number_1dp,30.5,250,",
            "fine,main,text,,number,0.125,2,",
            'comma,main,text,,number_2dp_comma_decimal,"0,5",9,',
            "half,main,text,,integer,18,,",
            "other,main,text,,number,[whole],9,",
            "bmi,main,calc,[a]/[b],,,,",
            "pain,main,slider,none | worst,,,,",
        )
    )
    records = 'id,whole,point,fine,comma,half,other,bmi,pain\na,UNK,31.5,1,"1,25",20,NASK,22.1,7\n'
    source = write(tmp_path, fields, records)
    found = columns(source)
    assert found["whole"] == {"type": "integer", "lower": 0, "upper": 120}
    assert found["point"]["lower"] == Decimal("30.5")
    assert found["point"]["step"] == Decimal("0.1")
    assert found["fine"]["step"] == Decimal("0.001")
    assert found["comma"]["lower"] == Decimal("0.5")
    assert found["pain"] == {"type": "integer", "lower": 0, "upper": 100}
    assert all("lower" not in found[one] for one in ("half", "other", "bmi"))
    assert cells(source)[1] == ["a", "", "31.5", "1", "1.25", "20", "", "22.1", "7"]
    with read_export("redcap", source, TERMS) as export:
        assert any("half, other, bmi" in line for line in export.assumed)


def test_days_are_read_as_the_dictionary_or_the_raw_export_writes_them(tmp_path: Path) -> None:
    fields = "\n".join(
        (
            "d,main,text,,date_dmy,2016-05-01,today,",
            "m,main,text,,date_mdy,,,",
            "t,main,text,,datetime_seconds_dmy,,,",
        )
    )
    records = "id,d,m,t\na,2020-02-03,2020-02-03,2020-02-03 10:20:30\nb,03/02/2020,02-03-2020,\n"
    source = write(tmp_path, fields, f"{records}c,30.2.2020,UNK,3.2.2020 10:20\n")
    found = columns(source)
    assert (found["d"]["lower"], found["d"]["upper"]) == (date(2016, 5, 1), date(2023, 12, 31))
    assert found["m"]["lower"] == date(2015, 1, 1)
    assert found["t"]["type"] == "timestamp"
    assert cells(source)[1:] == [
        ["a", "2020-02-03", "2020-02-03", "2020-02-03 10:20:30"],
        ["b", "2020-02-03", "2020-02-03", ""],
        ["c", "30.2.2020", "", "2020-02-03 10:20"],  # no day: the vault counts it as unreadable
    ]


def test_identifiers_and_free_text_are_not_taken(tmp_path: Path) -> None:
    fields = "\n".join(
        (
            "name,main,text,,,,,y",
            "sex,main,yesno,,,,,Y",
            "why,main,notes,,,,,",
            "town,main,text,,,,,",
            "zip,main,text,,zipcode,,,",
            "scan,main,file,,,,,",
            "ok,main,yesno,,,,,",
        )
    )
    source = write(tmp_path, fields, "id,name,sex,why,town,zip,scan,ok,extra\na,x,1,x,x,1,x,1,x\n")
    assert list(columns(source)) == ["ok"]
    with read_export("redcap", source, TERMS) as export:
        left_out = " ".join(export.left_out)
    assert all(name in left_out for name in ("name", "sex", "why", "town", "zip", "scan", "extra"))


def test_a_code_for_missing_is_no_key(tmp_path: Path) -> None:
    fields = 'grade,main,radio,"1, Mild | 2, Severe | -99, Not known",,,,'
    source = write(tmp_path, fields, "id,grade\na,-99\nb,2\n")
    assert columns(source)["grade"]["lower"] == -99
    without = Terms(years=(2015, 2023), missing=("-99",))
    found = columns(source, without)
    assert found["grade"] == {"type": "integer", "keys": [1, 2], "lower": 1, "upper": 2}
    assert cells(source, without)[1:] == [["a", "", ""], ["b", "2", "Severe"]]


def test_a_form_is_a_table_with_the_rows_that_have_data(tmp_path: Path) -> None:
    fields = "\n".join(
        ("age,main,text,,integer,0,120,", "sbp,visit,text,,integer,60,260,",
         'box,visit,checkbox,"1, A",,,,', "term,ae,yesno,,,,,")
    )  # fmt: skip
    about = "redcap_event_name,redcap_repeat_instrument,redcap_repeat_instance"
    records = "\n".join(
        (
            f"id,{about},age,main_complete,sbp,box___1,visit_complete,term,ae_complete",
            "a,base,,,40,2,120,0,2,,",
            "a,later,,,,,,0,0,,",  # a form in which nothing is filled in
            "a,later,ae,1,,,,,,1,2",
            "a,later,ae,2,,,,,,0,2",
            "b,later,,,,,,1,2,,",  # has no row of the first form
            ",later,,,,,99,1,2,,",  # names nobody
        )
    )
    source = write(
        tmp_path, fields, f"{records}\n", "arm_num,unique_event_name,form\n1,base,main\n"
    )
    with read_export("redcap", source, TERMS) as export:
        assert [table.name for table in export.tables] == ["", "visit", "ae"]
        assert export.tables[1].columns["redcap_event_name"]["keys"] == ["base"]
        assert rows(export, 0)[1:] == [["a", "40", "2"], ["b", "", ""]]
        assert rows(export, 1)[1:] == [
            ["a", "base", "", "120", "0", "2"],
            ["b", "later", "", "", "1", "2"],
        ]
        assert rows(export, 2)[1:] == [
            ["a", "later", "1", "1", "2"],
            ["a", "later", "2", "0", "2"],
        ]
        assert export.from_rows == ()


def test_the_first_row_of_the_first_form_counts_and_the_owner_is_told(tmp_path: Path) -> None:
    source = write(tmp_path, "age,main,text,,integer,0,120,", "id,age\na,40\na,41\nb,5\n")
    with read_export("redcap", source, TERMS) as export:
        assert rows(export, 0)[1:] == [["a", "40"], ["b", "5"]]
        assert "several times" in export.from_rows[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("dictionary.csv", "no data dictionary"),
        ("records.csv", "found: none"),
        ("more", "found: more.csv, records.csv"),
    ],
)
def test_two_files_are_needed(change: str, says: str, tmp_path: Path) -> None:
    source = write(tmp_path, "ok,main,yesno,,,,,", "id,ok\na,1\n")
    if change == "more":
        (tmp_path / "more.csv").write_text("id,ok\nb,1\n")
    else:
        (tmp_path / change).unlink()
    with pytest.raises(Refused, match=says), read_export("redcap", source, TERMS):
        pass


def test_a_dictionary_of_the_web_page_is_read_as_well(tmp_path: Path) -> None:
    folder = str(write_redcap(tmp_path / "export", 10))
    with read_export("redcap", folder, TERMS) as export:
        names = [table.name for table in export.tables]
        assert names == ["", "visit", "adverse_events", "followup"]
        assert export.tables[1].columns["weight"]["step"] == Decimal("0.1")


@pytest.mark.parametrize("damage", ["cut", "text"])
def test_a_damaged_file_is_named_and_none_of_its_text(damage: str, tmp_path: Path) -> None:
    source = write(tmp_path, "ok,main,yesno,,,,,", "id,ok\na,1\n")
    (tmp_path / "records.csv").unlink()
    text = "id,ok\n" + "secret-name,1\n" * 9000
    packed = gzip.compress(text.encode()) if damage == "cut" else text.encode("utf-16")[:-1]
    name = "records.csv.gz" if damage == "cut" else "records.csv"
    (tmp_path / name).write_bytes(packed[: len(packed) - (9 if damage == "cut" else 0)])
    with pytest.raises(Refused) as refused, read_export("redcap", source, TERMS):
        pass
    assert name in refused.value.cause
    assert "secret" not in str(refused.value)
    assert refused.value.__context__ is None
