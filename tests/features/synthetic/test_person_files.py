"""A synthetic person's tables have rows, and the twin says which values and files are invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sfumato.features.synthetic.person_files import ROWS, person_files, person_files_json
from sfumato.features.synthetic.schema_twin import (
    columns_without_missing_share,
    default_missing_share,
    schema_tables,
)
from sfumato.features.synthetic.service import _default_rows
from sfumato.vault.card.data_card import Card, read_card
from support.small_vaults import card as card_shape
from support.small_vaults import open_with, write_csv

EVENTS = "func/{sub}_task-rest_run-1_events.tsv"
IMAGE = "anat/{sub}_T1w.nii.gz"
SIDECARS = {
    "task-rest_events.json": {
        "trial_type": {"Levels": {"go": "press", "stop": "wait"}},
        "RT": {"Units": "s"},
        "note": {"Description": "a text"},
        "StimulusPresentation": {"SoftwareName": "x"},
        "TaskName": "rest",
    },
    "task-nback_events.json": {"load": {"Levels": {"1": "one"}}},
    "participants.json": {"sex": {"Levels": {"F": "female", "M": "male"}}},
}


def study(files: list[str], **more: Any) -> Card:  # Any: parts of a data card
    columns = {"sex": {"type": "text"}, "age": {"type": "integer", "lower": 1, "upper": 99}}
    bids = {"files": files, "people": 40, "sidecars": SIDECARS}
    shape = {"unit": "participant_id", "budget": {"epsilon": 1}, "bids": bids, "columns": columns}
    return read_card("study", {**shape, **more})


def table(card: Card, path: str) -> list[list[str]]:
    text = dict(person_files(card, "schema-twin", "sub-x"))[path]
    return [line.split("\t") for line in text.splitlines()]


def test_events_have_the_columns_of_bids_and_of_the_cards_sidecar() -> None:
    head, *rows = table(study([EVENTS]), "sub-x/func/sub-x_task-rest_run-1_events.tsv")
    assert head == ["onset", "duration", "trial_type", "RT", "note"]
    assert len(rows) == ROWS
    onset, duration, kind, time, note = zip(*rows, strict=True)
    assert [float(o) for o in onset] == sorted(map(float, onset))
    assert all(float(d) > 0 for d in duration)
    assert {"n/a"} < set(kind) <= {"go", "stop", "n/a"}
    assert {"n/a"} < set(time)
    assert set(note) == {"n/a"}


def test_the_same_person_has_the_same_events_and_others_have_others() -> None:
    card = study([EVENTS])
    made = [dict(person_files(card, "schema-twin", name)) for name in ("sub-a", "sub-a", "sub-b")]
    assert made[0] == made[1]
    assert list(made[0].values()) != list(made[2].values())


def test_a_sidecar_of_a_derivative_describes_the_files_of_that_derivative_alone() -> None:
    said = {"derivatives/prep/desc-x_timeseries.json": {"csf": {"Units": "mm"}}}
    own, other = (f"derivatives/{n}/{{sub}}/func/{{sub}}_desc-x_timeseries.tsv" for n in "po")
    files = [own.replace("/p/", "/prep/"), other.replace("/o/", "/other/")]
    card = study(files, bids={"files": files, "people": 9, "sidecars": said})
    assert person_files_json(card) == {"invented_files": files[:1], "empty_files": files[1:]}
    assert table(card, "derivatives/prep/sub-x/func/sub-x_desc-x_timeseries.tsv")[0] == ["csf"]


def test_lists_of_scans_and_sessions_name_the_files_of_the_card() -> None:
    files = [
        "ses-1/anat/{sub}_ses-1_T1w.nii",
        "ses-2/anat/{sub}_ses-2_T1w.nii",
        "ses-1/{sub}_ses-1_scans.tsv",
        "{sub}_sessions.tsv",
        "ses-3/{sub}_ses-3_scans.tsv",
    ]
    card = study(files)
    assert table(card, "sub-x/ses-1/sub-x_ses-1_scans.tsv") == [
        ["filename"], ["anat/sub-x_ses-1_T1w.nii"],
    ]  # fmt: skip
    sessions = table(card, "sub-x/sub-x_sessions.tsv")
    assert sessions == [["session_id"], ["ses-1"], ["ses-2"], ["ses-3"]]
    assert person_files_json(card)["empty_files"] == [files[0], files[1], files[4]]


def test_files_that_the_card_does_not_describe_are_empty_and_named() -> None:
    card = study([IMAGE, EVENTS, "func/{sub}_task-rest_physio.tsv.gz"])
    found = dict(person_files(card, "schema-twin", "sub-x"))
    assert found["sub-x/anat/sub-x_T1w.nii.gz"] == ""
    assert person_files_json(card) == {
        "invented_files": [EVENTS],
        "empty_files": [IMAGE, "func/{sub}_task-rest_physio.tsv.gz"],
    }


@pytest.mark.parametrize(
    ("more", "share"),
    [({"unit": "who", "nulls": ["", "-9"]}, 0.05), ({"unit": "who"}, 0), ({}, 0.05)],
)
def test_values_are_missing_where_the_card_says_nothing(more: dict[str, Any], share: float) -> None:
    card = study([EVENTS]) if not more else read_card(
        "plain", {"budget": {"epsilon": 1}, "columns": {"age": {"type": "integer"}}, **more}
    )  # fmt: skip
    (made, *_) = schema_tables(card, 2000, "s")
    gone = sum(row[made.columns.index("age")] is None for row in made.rows) / len(made.rows)
    assert float(default_missing_share(card)) == share
    assert gone == pytest.approx(share, abs=0.02)
    assert "age" in columns_without_missing_share(card)


def test_missing_of_0_means_none_and_is_said() -> None:
    columns = {"age": {"type": "integer", "missing": 0}, "sex": {"type": "text"}}
    card = study([EVENTS], columns=columns)
    (made, *_) = schema_tables(card, 500, "s")
    assert all(row[made.columns.index("age")] is not None for row in made.rows)
    assert columns_without_missing_share(card) == ("sex",)


def test_few_rows_lack_a_value_too_and_texts_have_the_levels_of_the_sidecar() -> None:
    for seed in map(str, range(20)):
        (made, *_) = schema_tables(study([EVENTS]), 12, seed)
        values = {row[made.columns.index("sex")] for row in made.rows}
        assert {None} < values <= {None, "F", "M"}


def test_a_folders_twin_has_the_cards_number_of_people() -> None:
    many = {"files": [EVENTS], "people": 2000}
    assert _default_rows(study([EVENTS])) == 40
    assert _default_rows(study([EVENTS], bids=many)) == 1000
    assert _default_rows(study([EVENTS], size=30)) == 30


def test_the_twin_names_what_the_card_does_not_say(tmp_path: Path) -> None:
    text = 'unit = "who"\nbudget = { epsilon = 1 }\n[columns.age]\ntype = "integer"\n'
    source = write_csv(tmp_path / "p.csv", ("who", "age"), [("a", 30)])
    with open_with(tmp_path, "plain", source, text) as opened:
        made = opened["plain"].twin(rows=20)
    assert card_shape(text)["unit"] == "who"
    assert "how many values are missing in age: 0 % are missing here" in repr(made)
