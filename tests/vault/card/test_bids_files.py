"""What a card publishes of a BIDS folder: its readers, and the files that follow from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfumato.dp.refusal import Refused
from sfumato.vault.card.bids import person_path, read_bids
from sfumato.vault.card.bids_files import data_set_files
from sfumato.vault.card.card_json import card_json
from sfumato.vault.card.data_card import Card, read_card

COLUMNS: dict[str, Any] = {
    "age": {"type": "integer", "lower": 0, "upper": 100},
    "sex": {"type": "text", "keys": ["m", "f"]},
    "hand": {"type": "integer", "keys": [1, 2]},
    "site": {"type": "text"},
    "ill": {"type": "boolean"},
    "name": {"hidden": True},
}
TABLES = {"moods": {"columns": {"score": {"type": "integer"}}}}


def card_with(**bids: object) -> Card:
    return read_card(
        "study",
        {
            "unit": "participant_id",
            "budget": {"epsilon": 1},
            "bids": bids,
            "columns": COLUMNS,
            "tables": TABLES,
        },
    )


def meanings(fields: object) -> Any:
    found = data_set_files(card_with(sidecars={"participants.json": fields}))
    return json.loads(found["participants.json"])


def test_a_card_without_files_still_gives_what_bids_requires() -> None:
    found = data_set_files(card_with())
    assert set(found) == {
        "README", "dataset_description.json", "participants.json", "phenotype/moods.json",
    }  # fmt: skip
    assert json.loads(found["dataset_description.json"]) == {
        "Name": "study", "BIDSVersion": "1.10.0", "DatasetType": "raw",
    }  # fmt: skip
    assert "bids_files" not in card_json(card_with())


def test_a_cards_own_readme_takes_the_place_of_ours() -> None:
    found = data_set_files(card_with(texts={"README.md": "# Ours\n", "CHANGES": "1.0\n"}))
    assert (found["README.md"], found["CHANGES"]) == ("# Ours\n", "1.0\n")
    assert "README" not in found


def test_levels_are_the_keys_of_the_card() -> None:
    levels = {"Levels": {"1": "left", "2.0": "right", "3": "both"}}
    found = meanings({"hand": levels, "sex": {"Levels": {"f": {"TermURL": "u"}, "x": "?"}}})
    assert found["hand"]["Levels"] == {"1": "left", "2": "right"}
    assert found["sex"]["Levels"] == {"m": "declared", "f": {"TermURL": "u"}}


def test_a_column_without_keys_has_the_levels_of_the_sidecar() -> None:
    found = meanings({"site": {"Levels": {"a": "Aachen"}}, "ill": {"Levels": {"0": "no"}}})
    assert found["site"]["Levels"] == {"a": "Aachen"}
    assert found["ill"]["Levels"] == {"0": "no"}


def test_the_bounds_of_the_card_are_the_bounds() -> None:
    found = meanings({"age": {"Minimum": 18, "Maximum": 31, "Units": "years"}})["age"]
    assert (found["Minimum"], found["Maximum"], found["Units"]) == (0, 100, "years")


def test_everybody_who_sees_the_card_sees_its_files() -> None:
    made = card_with(
        texts={"README": "hello\n"}, sidecars={"task-a_bold.json": {"RepetitionTime": 2}}
    )
    assert card_json(made)["bids_files"] == {
        "README": "hello\n", "task-a_bold.json": {"RepetitionTime": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    "bids",
    [
        {"texts": {"NOTES": "x"}},
        {"texts": {"README": 7}},
        {"texts": {"README": "\x1b[2J"}},
        {"texts": {"README": "x" * 131_073}},
        {"texts": {"README": "x", "README.md": "y"}},
        {"texts": {"README": "x" * 130_000, "CHANGES": "x" * 130_000, "LICENSE": "x" * 9_000}},
        {"sidecars": {"sub-01_bold.json": {}}},
        {"sidecars": {"sub-01/anat/T1w.json": {}}},
        {"sidecars": {"../a.json": {}}},
        {"sidecars": {"dataset_description.json": {}}},
        {"sidecars": {"twin.json": {}}},
        {"sidecars": {"T1w.json": {}, "t1w.json": {}}},
        {"sidecars": {"T1w.json": []}},
        {"sidecars": {"T1w.json": '{"a": NaN}'}},
        {"sidecars": {"participants.json": {"name": {}}}},
        {"sidecars": {"participants.json": {"nobody": {}}}},
        {"sidecars": {"phenotype/other.json": {}}},
        {"sidecars": {"derivatives/a/sub-01.json": {}}},
        {"sidecar": {}},
        {"files": ["derivatives/fmriprep/T1w.nii"]},
        {"files": ["derivatives/{sub}/T1w.nii"]},
        {"files": ["derivatives/../{sub}/T1w.nii"]},
        {"files": ["derivatives/fmriprep/{sub}/../T1w.nii"]},
        {"files": ["sourcedata/{sub}/T1w.nii"]},
    ],
)
def test_anything_else_is_refused(bids: dict[str, object]) -> None:
    with pytest.raises(Refused) as refused:
        card_with(**bids)
    assert refused.value.code == "bad-card"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("anat/{sub}_T1w.nii.gz", "sub-1/anat/sub-1_T1w.nii.gz"),
        ("derivatives/fmriprep/{sub}.html", "derivatives/fmriprep/sub-1.html"),
        ("derivatives/mriqc/{sub}_T1w.html", "derivatives/mriqc/sub-1_T1w.html"),
        ("derivatives/fs/{sub}/surf/lh.pial", "derivatives/fs/sub-1/surf/lh.pial"),
        (
            "derivatives/a/sourcedata/fs/{sub}/mri/{sub}_T1.mgz",
            "derivatives/a/sourcedata/fs/sub-1/mri/sub-1_T1.mgz",
        ),
    ],
)
def test_a_pattern_says_where_a_persons_file_is(pattern: str, path: str) -> None:
    assert read_bids({"files": [pattern]}, "participant_id")[0] == (pattern,)
    assert person_path(pattern, "sub-1") == path


def test_a_derivative_whose_files_are_on_the_card_is_described() -> None:
    files = ["derivatives/fmriprep/{sub}.html", "derivatives/fs/{sub}/surf/lh.pial"]
    own = {"derivatives/fs/dataset_description.json": {"Name": "FreeSurfer", "License": "x"}}
    found = data_set_files(card_with(files=files, sidecars=own))
    first, second = (
        json.loads(found[f"derivatives/{name}/dataset_description.json"])
        for name in ("fmriprep", "fs")
    )
    assert first["GeneratedBy"] == [{"Name": "fmriprep"}]
    assert (second["Name"], second["License"], second["DatasetType"]) == (
        "FreeSurfer", "x", "derivative",
    )  # fmt: skip
