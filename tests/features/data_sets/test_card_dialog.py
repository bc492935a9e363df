"""An owner at a real terminal: `sfumato add` asks three steps, and leaves nothing behind if not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import sfumato
from support.small_vaults import make_vault, run, run_hurried
from support.typed_terminal import CTRL_C, Typed, at_terminal

HEADER = ("Patienten-Nr", "Alter", "Gewicht (kg)", "Station", 'ja "oder" nein')
COLUMNS = ("1 Patienten-Nr", "4 Station")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with an awkward file: odd names, an encoding of Windows, decimal commas."""
    (tmp_path / "here").mkdir()
    lines = [";".join(('"' + name.replace('"', '""') + '"') for name in HEADER)]
    lines += [f"P{n % 40};{n % 90};{50 + n % 60},{n % 10};Süd\u00a0{n % 3};true" for n in range(60)]
    (tmp_path / "here" / "odd file.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    return tmp_path / "here"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return make_vault(tmp_path)


def typed(vault: Path, place: Path, *answers: str, more: tuple[str, ...] = ()) -> Typed:
    return at_terminal(vault, ["add", "klinik", "odd file.csv", *more], answers, place)


def test_enter_at_every_question_publishes_a_strict_card(vault: Path, place: Path) -> None:
    made = typed(vault, place, *[""] * 7, "done", "", "no")
    assert made.status == 0, made.shown
    assert made.left == []
    assert all(one in made.shown for one in COLUMNS)
    assert "Patienten-Nr is the only column that is named like a person" in made.shown
    assert "“How many people?” is then off by at most 30 in 95" in made.shown.replace("\n  ", " ")
    assert "Added klinik, version 1." in made.shown
    assert [one.name for one in place.iterdir()] == ["odd file.csv"]
    with sfumato.open(vault) as opened:
        card: dict[str, Any] = opened.call("card", {"data_set": "klinik"})
    assert (card["unit"], card["budget"]["epsilon"]) == ("Patienten-Nr", 1.0)


def test_the_answers_become_the_card_that_is_saved(vault: Path, place: Path) -> None:
    made = typed(
        vault, place,
        "?", "9", "1", "stadt", "2", "back", "2", "3", "500", "none", "3", "1e-6",
        "2", "integer", "0", "x", "110", "", "", "30", "200", "0.1", "4", "", "Nord, Süd",
        "done", "2", *[""] * 5, "done", "yes", "yes",
    )  # fmt: skip
    assert made.status == 0, made.shown
    assert made.left == []
    assert "There is no column '9'" in made.shown
    assert "the number of a patient, not of a visit" in made.shown.replace("\n  ", " ")
    assert "It must be a number, such as 110 or 0.5" in made.shown
    assert "Researchers see: Alter: integer, 0 to 110, for example 27, 55, 82" in made.shown
    saved = tomllib.loads((place / "klinik.card.toml").read_text("utf-8"))
    assert (saved["people"], saved["max_rows"], saved["max_groups"]) == ("stadt", 2, 3)
    assert saved["columns"]["Gewicht (kg)"] == {
        "type": "number", "lower": 30, "upper": 200, "step": 0.1,
    }  # fmt: skip
    assert (saved["decimal"], saved["encoding"]) == (",", "cp1252")
    assert saved["columns"]["Station"]["keys"] == ["Nord", "Süd"]
    assert saved["columns"]['ja "oder" nein'] == {"type": "boolean"}
    again = run(vault, "add", "klinik", str(place / "odd file.csv"), "--card",
                str(place / "klinik.card.toml"))  # fmt: skip
    assert "already has, or had, a version '1'" in again.stderr


def test_columns_of_yes_and_no_are_proposed_and_read(vault: Path, place: Path) -> None:
    rows = [f"P{n},{'Ja' if n % 2 else 'nein'},{'JNjn'[n % 4]}" for n in range(40)]
    (place / "odd file.csv").write_text("\n".join(["Patienten-Nr,Raucher,Diabetes", *rows]))
    made = typed(vault, place, *[""] * 7, "3", "", "", "n, nö", "", "", "yes")
    assert made.status == 0, made.shown
    assert "Raucher: boolean, false or true" in made.shown
    assert "Read as true: ja, j. As false: nein, n." in made.shown.replace("\n     ", " ")
    saved = tomllib.loads((place / "klinik.card.toml").read_text("utf-8"))
    assert saved["columns"]["Raucher"] == {
        "type": "boolean", "true": ["ja", "j"], "false": ["nein", "n"],
    }  # fmt: skip
    assert saved["columns"]["Diabetes"]["false"] == ["n", "nö"]
    with sfumato.open(vault) as opened:
        report = opened.add_report("klinik")
    assert [one["unreadable"] for one in report["tables"][0]["columns"]] == ["under 1 %"] * 2


def test_odd_cells_are_named_and_the_owner_says_which_are_missing(vault: Path, place: Path) -> None:
    ages = ["unbekannt"] * 12 + ["999"] + [str(20 + n) for n in range(37)]
    wards = ["unbekannt"] * 3 + ["none"] * 2 + ["Nord"] * 45
    rows = [f"P{n},{age},{ward}" for n, (age, ward) in enumerate(zip(ages, wards, strict=True))]
    (place / "odd file.csv").write_text("\n".join(["Patienten-Nr,Alter,Station", *rows]))
    with sfumato.open(vault) as opened:
        opened.enrol("ada", "nurses")
    made = typed(
        vault, place, *[""] * 7, "nurses, doctors", "maybe", "", "y", "back", "", "n", "no",
        "2", "", "0", "110", "", "done", "", "yes",
    )  # fmt: skip
    assert made.status == 0, made.shown
    assert made.left == []
    flat = made.shown.replace("\n  ", " ")
    assert "There are: nurses." in flat
    for said in (
        "12 cells say “unbekannt”: 12 of Alter. Treat as missing?", "Write yes or no.",
        "3 cells say “unbekannt”: 3 of Station.", "2 cells say “none”: 2 of Station.",
        "1 cell says “999”: 1 of Alter.",
    ):  # fmt: skip
        assert said in flat
    saved = tomllib.loads((place / "klinik.card.toml").read_text("utf-8"))
    assert saved["ask"]["who"] == ["nurses", "doctors"]
    assert saved["columns"]["Alter"]["nulls"] == ["unbekannt"]
    assert saved["columns"]["Station"]["nulls"] == ["unbekannt"]


def test_ctrl_c_leaves_nothing_behind(vault: Path, place: Path) -> None:
    for answers in ([CTRL_C], ["", "", CTRL_C], [*[""] * 7, "done", "yes", CTRL_C]):
        made = typed(vault, place, *answers)
        assert made.status == 3
        assert "Stopped. Nothing was added, and no file was written." in made.shown
        assert [one.name for one in place.iterdir()] == ["odd file.csv"]
    with sfumato.open(vault) as opened:
        assert opened.call("data-sets", {})["data_sets"] == []


def test_a_refused_card_loses_no_answer(vault: Path, place: Path) -> None:
    made = at_terminal(
        vault, ["add", "klinik", "odd file.csv"],
        [*[""] * 7, "2", "date", "", "", "", "done", "yes", "no", "3", "2", "integer", "", "",
         "done", "yes", "no"], place,
    )  # fmt: skip
    assert "Refused (cells-unreadable)" in made.shown
    assert "Added klinik" in made.shown, made.shown
    assert made.status == 0


def test_a_new_version_is_said_and_begins_with_the_earlier_card(vault: Path, place: Path) -> None:
    assert typed(vault, place, "", "stadt", *[""] * 5, "done", "", "no").status == 0
    made = typed(vault, place, *[""] * 9, "done", "", "no")
    assert "There are: researchers." in made.shown
    assert "There is a data set klinik already. This adds a new version" in made.shown
    assert "[stadt] " in made.shown
    assert "Added klinik, version 2." in made.shown


@pytest.mark.parametrize("more", [("--yes",), ("--json",)])
def test_a_script_is_not_asked(vault: Path, place: Path, more: tuple[str, ...]) -> None:
    made = typed(vault, place, more=more)
    assert made.status == 0
    assert "Step 1" not in made.shown
    assert "# budget =" in (place / "klinik.card.toml").read_text("utf-8")


def test_without_a_terminal_a_draft_is_written_as_before(vault: Path, place: Path) -> None:
    made = run_hurried(vault, "add", "klinik", "odd file.csv", folder=place)
    assert made.returncode == 0
    assert "Wrote klinik.card.toml with 5 columns." in made.stdout
    assert "Step 1" not in made.stdout
