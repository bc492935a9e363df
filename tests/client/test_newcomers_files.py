"""Files of somebody who has never seen a card: what is proposed for them, and what is refused.

Each was proposed or added before without a word, and was wrong: a visit was taken for a person, a
point between thousands for a decimal one, the line of names for a row.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

import sfumato
from sfumato.app.command_line import CommandLine
from sfumato.app.vault import OpenVault
from sfumato.cli.main import run
from sfumato.dp.refusal import Refused
from support.small_vaults import make_vault

BUDGET: Final = {"epsilon": 900}
PAID: Final = {"type": "number", "lower": 0, "upper": 20000}


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("newcomer"))) as opened:
        yield opened


def written(tmp_path: Path, text: str) -> Path:
    place = tmp_path / "rows.csv"
    place.write_text(text)
    return place


def proposed(vault: OpenVault, tmp_path: Path, text: str) -> Mapping[str, Any]:
    found: Any = vault.proposed("rows", written(tmp_path, text))  # Any: JSON of the wire
    card: Mapping[str, Any] = found["card"]
    return card


HEADERS: Final = {
    "visit_occurrence_id,person_id,visit_concept_id,age": "person_id",
    "Fallnr,PatNr,Alter": "PatNr",
    "Patient,Gewicht": "Patient",
    "PatientID,weight": "PatientID",
    "record_id,redcap_event_name,sex": "record_id",
    "participant_id,age": "participant_id",
    "subject,session_id,score": "subject",
    "id,age": "id",
    "visit_id,ward_id,age": "",
    "Lohn,Geburt": "",
    "patient_id,person_id,age": "",
    "person_id,gender_concept_id,person_source_value": "person_id",
    "patient_age,weight": "",
}


@pytest.mark.parametrize("header", HEADERS)
def test_a_unit_is_proposed_only_where_one_column_alone_names_the_person(
    vault: OpenVault, tmp_path: Path, header: str
) -> None:
    names, unit = header.split(","), HEADERS[header]
    rows = "".join(",".join(str(n + i) for i in range(len(names))) + "\n" for n in range(9))
    card = proposed(vault, tmp_path, f"{header}\n{rows}")
    assert card["unit"] == unit
    assert card["max_rows"] == 1
    if unit:
        assert card["columns"][unit] == {"hidden": True}


def test_a_card_without_its_unit_is_refused_and_says_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row would have been the unit of visits, and nobody could have changed it again."""
    monkeypatch.chdir(tmp_path)
    where = ["--vault", str(make_vault(tmp_path))]
    written(tmp_path, "visit_id;ward_id;n\n" + "1;2;3\n" * 9)
    assert run([*where, "add", "rows", "rows.csv"], CommandLine()) == 0
    card = Path("rows.card.toml")
    card.write_text(card.read_text().replace("# budget", "budget"))
    assert run([*where, "add", "rows", "rows.csv", "--card", str(card)], CommandLine()) == 3
    assert 'write the column that names the person, or "row"' in capsys.readouterr().err
    card.write_text(card.read_text().replace('unit = ""', 'unit = "visit_id"'))
    assert run([*where, "add", "rows", "rows.csv", "--card", str(card)], CommandLine()) == 0


NAMELESS: Final = {
    "id,value,date,Value \n" + "1,2,2024-01-01,3\n" * 9: "'value'",
    ",age\n" + "0,30\n" * 9: "no name",
    "Export of the clinic;;\nby: us;;\nid;age;x\n" + "1;2;3\n" * 9: "no name",
    "": "no column names",
}


@pytest.mark.parametrize("text", NAMELESS)
def test_no_card_is_proposed_for_columns_without_a_name_of_their_own(
    vault: OpenVault, tmp_path: Path, text: str
) -> None:
    """The card could not be read: TOML has no table twice."""
    with pytest.raises(Refused, match=NAMELESS[text]) as refused:
        proposed(vault, tmp_path, text)
    assert refused.value.code == "source-unreadable"


def test_an_empty_column_at_the_end_of_every_line_is_left_out(
    vault: OpenVault, tmp_path: Path
) -> None:
    card = proposed(vault, tmp_path, "id;age;\n" + "1;30;\n" * 9)
    assert list(card["columns"]) == ["id", "age"]


SPELLED: Final = {
    "1.234 850 12.500": {"type": "number", "decimal": "."},
    "1.234 850 12.5": {"type": "number"},
    "0.123 1.250": {"type": "number"},
    "70,5 k.A. 71,2": {"type": "number", "decimal": ","},
    "26.1 n.a. #NV": {"type": "number"},
    "29\u202f647,50 901,20": {"type": "number", "decimal": ",", "thousands": " "},
    "148'365 46'686": {"type": "integer", "thousands": "'"},
    "12,500 850": {"type": "text"},
}


@pytest.mark.parametrize("cells", SPELLED)
def test_numbers_are_proposed_as_they_are_spelled(
    vault: OpenVault, tmp_path: Path, cells: str
) -> None:
    text = "id;x\n" + "".join(f"{n};{cell}\n" for n, cell in enumerate(cells.split(" ")))
    assert proposed(vault, tmp_path, text)["columns"]["x"] == SPELLED[cells]


def test_points_stand_between_thousands_where_others_have_decimal_commas(
    vault: OpenVault, tmp_path: Path
) -> None:
    card = proposed(vault, tmp_path, "id;x;y\n" + "1;1.234;70,5\n2;850;61,5\n" * 9)
    assert card["columns"]["x"] == {"type": "number", "decimal": ",", "thousands": "."}


def test_a_card_says_of_points_that_they_may_be_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "id;x\n" + "1;1.234\n" * 9)
    where = ["--vault", str(make_vault(tmp_path))]
    assert run([*where, "add", "rows", "rows.csv"], CommandLine()) == 0
    text = Path("rows.card.toml").read_text()
    assert 'decimal = ".        # 1.234'.replace('".', '"."') in text
    assert tomllib.loads(text)["columns"]["x"]["decimal"] == "."


def test_a_comma_before_three_digits_is_hinted_at_in_both_ways(
    vault: OpenVault, tmp_path: Path
) -> None:
    shape = {"unit": "row", "budget": BUDGET, "columns": {"x": PAID}}
    with pytest.raises(Refused, match="only you know which") as refused:
        vault.add("commas", written(tmp_path, "n;x\n" + "1;12,500\n2;850\n" * 9), shape)
    assert 'decimal = "," or with thousands = ","' in refused.value.next_step


def test_a_line_of_names_is_no_row_where_the_card_names_the_columns(
    vault: OpenVault, tmp_path: Path
) -> None:
    shape = {
        "unit": "row",
        "budget": BUDGET,
        "header": ["n", "first", "second"],
        "columns": {"second": PAID},
    }
    for line in ("id,value,value\n", "n,x,y\n"):
        with pytest.raises(Refused, match="seems to name them too") as refused:
            vault.add("twice", written(tmp_path, line + "1,2,3\n2,5,6\n" * 9), shape)
        assert refused.value.code == "source-unreadable"
    odd = "unknown,>100,3\n" + "1,2,3\n" * 9  # a row, though a number of it cannot be read
    vault.add("odd", written(tmp_path, odd), shape)
    assert vault["odd"].count().ask(epsilon=400).rows[0][0] == pytest.approx(10, abs=0.5)


@pytest.mark.parametrize("key", ["-", "NA"])
def test_a_key_that_means_no_value_is_refused(vault: OpenVault, tmp_path: Path, key: str) -> None:
    """It was answered with 0 ± 0, however many rows had it."""
    column = {"type": "text", "keys": ["pos", key]}
    shape = {"unit": "row", "budget": BUDGET, "nulls": ["", key], "columns": {"x": column}}
    source = written(tmp_path, "n;x\n" + f"1;pos\n2;{key}\n" * 9)
    with pytest.raises(Refused, match="under nulls and as a key") as refused:
        vault.add("keys", source, shape)
    assert refused.value.code == "bad-card"


def test_every_unreadable_column_is_named_with_what_accepts_it(
    vault: OpenVault, tmp_path: Path
) -> None:
    columns = dict.fromkeys(("x", "y"), PAID)
    source = written(tmp_path, "n;x;y\n" + "1;a;b\n2;c;d\n" * 9)
    with pytest.raises(Refused) as refused:
        vault.add("both", source, {"unit": "row", "budget": BUDGET, "columns": columns})
    assert "--accept-unreadable 'x' --accept-unreadable 'y'" in refused.value.next_step
    vault.add(
        "both",
        source,
        {"unit": "row", "budget": BUDGET, "columns": columns},
        accept_unreadable=["x", "y"],
    )


def test_a_frame_of_texts_is_told_to_hold_values(vault: OpenVault) -> None:
    """It was told to name a format on the card, and then that a frame's card has none."""
    frame = pd.DataFrame({"x": ["70,5", "61,5"] * 9, "day": ["29.02.2024"] * 18})
    for column, shape in (("x", PAID), ("day", {"type": "date"})):
        with pytest.raises(Refused, match="A frame") as refused:
            vault.add("frame", frame, {"unit": "row", "budget": BUDGET, "columns": {column: shape}})
        assert refused.value.code == "cells-unreadable"
        assert "decimal =" not in refused.value.next_step
        assert refused.value.__context__ is None


def test_truths_of_a_frame_with_gaps_are_read(vault: OpenVault) -> None:
    """Pandas makes 1.0 and 0.0 of truths among which one is missing."""
    frame = pd.DataFrame({"x": [1.0, 0.0, 1.0, None] * 9})
    vault.add(
        "truths", frame, {"unit": "row", "budget": BUDGET, "columns": {"x": {"type": "boolean"}}}
    )
    answer = vault["truths"].where(x=True).count().ask(epsilon=400)
    assert answer.rows[0][0] == pytest.approx(18, abs=0.5)


def test_whole_numbers_without_a_delta_are_told_how_they_are_all_shown(
    vault: OpenVault, tmp_path: Path
) -> None:
    column = {"type": "integer", "lower": 1, "upper": 2}
    shape = {"unit": "row", "budget": BUDGET, "columns": {"sex at birth": column}}
    vault.add("whole", written(tmp_path, "n;sex at birth\n" + "1;1\n2;2\n" * 9), shape)
    data = vault["whole"]
    with pytest.raises(Refused) as refused:
        data.price('SELECT "sex at birth", COUNT(*) FROM whole GROUP BY "sex at birth"', epsilon=1)
    assert 'GROUP BY FLOOR("sex at birth") shows all 2 groups' in refused.value.next_step
    instead = 'SELECT FLOOR("sex at birth") AS s, COUNT(*) FROM whole GROUP BY s'
    assert len(data.ask(instead, epsilon=1).rows) == 2
    with pytest.raises(Refused) as refused:
        data.price("SELECT COUNT(sexatbirth) FROM whole", epsilon=1)
    assert 'In SQL: "sex at birth"' in refused.value.next_step


MARKED: Final = {
    "1.234 850 12.500": ({}, True),
    "1.234 850 12.5": ({}, False),
    "1,234 850 12,500": ({"decimal": ","}, True),
    "1.234 850 12.500 ": ({"decimal": ",", "thousands": "."}, False),
    "850 900": ({}, False),
}


@pytest.mark.parametrize("cells", MARKED)
def test_the_report_says_where_every_decimal_mark_may_be_one_of_thousands(
    vault: OpenVault, tmp_path: Path, cells: str
) -> None:
    """A mean of 3,900 was answered with 360, and nothing said why."""
    spelled, is_said = MARKED[cells]
    text = "n;x\n" + "".join(f"1;{cell}\n" for cell in cells.split() * 9)
    name = f"marked{list(MARKED).index(cells)}"
    shape = {"unit": "row", "budget": BUDGET, "columns": {"x": {**PAID, **spelled}}}
    added = vault.add(name, written(tmp_path, text), shape, different_people="the board")
    assert added.report is not None
    assert ("every decimal point has three digits" in str(added.report)) == is_said
    assert ("every decimal point has three digits" in str(vault.add_report(name))) == is_said


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_16_without_its_mark_is_no_text_with_a_nul_beside_every_letter(
    vault: OpenVault, tmp_path: Path, order: str
) -> None:
    source = tmp_path / "wide.csv"
    source.write_bytes(("id;size\n" + "1;170\n2;180\n" * 9).encode(f"utf-16-{order}"))
    found: Any = vault.proposed("wide", source)  # Any: JSON of the wire
    assert found["card"]["encoding"] == "utf-16"
    assert list(found["card"]["columns"]) == ["id", "size"]
    shape = {"unit": "row", "budget": BUDGET, "encoding": "utf-16", "columns": {"size": PAID}}
    vault.add(f"wide-{order}", source, shape, different_people="the board")
    answer = vault[f"wide-{order}"].count("size").ask(epsilon=400)
    assert answer.rows[0][0] == pytest.approx(18, abs=0.5)


@pytest.mark.parametrize("unit", [None, ""])
def test_a_new_card_says_whom_it_protects(
    vault: OpenVault, tmp_path: Path, unit: str | None
) -> None:
    said = {} if unit is None else {"unit": unit}
    with pytest.raises(Refused, match=r"[Uu]nit") as refused:
        vault.add(
            "whose", written(tmp_path, "who,x\n" + "1,2\n1,3\n" * 9), {**said, "budget": BUDGET}
        )
    assert refused.value.code == "bad-card"
    assert "whose" not in vault
