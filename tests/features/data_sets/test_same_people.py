"""A confirmation that people are different holds while their rows and files stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from support.small_vaults import make_vault

PEOPLE = 24


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    made = sfumato.open(make_vault(tmp_path))
    yield made
    made.close()


def folder(place: Path, first_age: int) -> Path:
    """Write a BIDS folder; all folders number their people alike."""
    place.mkdir()
    lines = ["participant_id\tage"]
    for number in range(1, PEOPLE + 1):
        name = f"sub-{number:02d}"
        lines.append(f"{name}\t{first_age + number}")
        anat = place / name / "anat"
        anat.mkdir(parents=True)
        (anat / f"{name}_T1w.nii").write_text(f"{first_age} {number}")
    (place / "participants.tsv").write_text("\n".join(lines) + "\n")
    return place


def shape(people: str, version: int = 1) -> dict[str, Any]:  # Any: a data card
    return {
        "unit": "participant_id",
        "people": people,
        "version": str(version),
        "budget": {"epsilon": 1},
        "bids": {"people": 40, "files": ["anat/{sub}_T1w.nii"]},
        "columns": {"age": {"type": "integer", "lower": 0, "upper": 99}},
    }


def refused(vault: OpenVault, name: str, source: Path, card: dict[str, Any]) -> Refused:
    with pytest.raises(Refused) as found:
        vault.add(name, source, card)
    assert found.value.code == "same-people"
    return found.value


@pytest.fixture
def both(vault: OpenVault, tmp_path: Path) -> tuple[Path, Path]:
    """Add two data sets of different people with the same labels, as Ann confirms."""
    one, two = folder(tmp_path / "one", 20), folder(tmp_path / "two", 50)
    vault.add("one", one, shape("ones"))
    refused(vault, "two", two, shape("twos"))
    vault.add("two", two, shape("twos"), different_people="Ann")
    return one, two


def test_new_versions_of_the_same_rows_need_no_second_confirmation(
    vault: OpenVault, both: tuple[Path, Path]
) -> None:
    one, two = both
    vault.add("two", two, shape("twos", 2))
    vault.add("one", one, shape("ones", 2))
    wider = shape("twos", 3)
    wider["columns"]["age"]["upper"] = 120
    assert vault.add("two", two, wider).version == "3"


@pytest.mark.parametrize("what", ["a row", "a person", "a file", "the other's rows"])
def test_changed_people_need_a_second_confirmation(
    vault: OpenVault, both: tuple[Path, Path], what: str
) -> None:
    one, two = both
    table = two / "participants.tsv"
    if what == "a row":
        table.write_text(table.read_text().replace("sub-01\t51", "sub-01\t52"))
    if what == "a person":
        table.write_text(table.read_text() + "sub-99\t30\n")
    if what == "a file":
        (two / "sub-07" / "anat" / "sub-07_T1w.nii").write_text("50 8")
    source = one if what == "the other's rows" else two
    refused(vault, "two", source, shape("twos", 2))


def test_changed_people_of_the_other_data_set_need_a_second_confirmation(
    vault: OpenVault, both: tuple[Path, Path]
) -> None:
    one, two = both
    table = one / "participants.tsv"
    table.write_text(table.read_text().replace("sub-01\t21", "sub-01\t22"))
    refused(vault, "one", one, shape("ones", 2))
    vault.add("one", one, shape("ones", 2), different_people="Ann")
    vault.add("two", two, shape("twos", 2))  # that confirmation was about both


def test_the_rows_of_the_others_are_no_public_table_of_a_later_version(
    vault: OpenVault, both: tuple[Path, Path]
) -> None:
    one, two = both
    ids = {"type": "text", "keys": [f"sub-{n:02d}" for n in range(1, PEOPLE + 1)]}
    table = {"public": True, "key": "participant_id", "columns": {"participant_id": ids}}
    with pytest.raises(Refused) as found:
        vault.add(
            "two",
            two,
            {**shape("twos", 2), "tables": {"others": table}},
            tables={"others": one / "participants.tsv"},
        )
    assert found.value.code == "same-people"


def test_a_third_data_set_needs_its_own_confirmation(
    vault: OpenVault, both: tuple[Path, Path], tmp_path: Path
) -> None:
    third = folder(tmp_path / "third", 70)
    refused(vault, "third", third, shape("thirds"))
    vault.add("third", third, shape("thirds"), different_people="Ann")
    vault.add("two", both[1], shape("twos", 2))


def test_a_confirmation_is_not_carried_to_another_name(
    vault: OpenVault, both: tuple[Path, Path]
) -> None:
    refused(vault, "again", both[1], shape("twos"))


def test_a_sketch_of_an_older_vault_confirms_nothing(
    vault: OpenVault, both: tuple[Path, Path], tmp_path: Path
) -> None:
    for path in tmp_path.rglob("people/*.json"):
        body = json.loads(path.read_text())
        del body["whole"]
        path.write_text(json.dumps(body))
    refused(vault, "two", both[1], shape("twos", 2))


def test_the_refusal_names_the_data_set_and_whose_name_to_give(
    vault: OpenVault, both: tuple[Path, Path], tmp_path: Path
) -> None:
    found = refused(vault, "third", folder(tmp_path / "third", 70), shape("thirds"))
    assert "people 'ones', who already have a budget (data set 'one')" in found.cause
    assert "--different-people NAME (the colleague's name" in found.next_step
