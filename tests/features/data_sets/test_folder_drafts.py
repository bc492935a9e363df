"""A folder's own files on the card: drafted for its owner, in the look-alike and in each block."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.vault.card.bids_files import data_set_files as files_of
from sfumato.vault.card.data_card import read_card
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run
from support.whole_bids_folders import (
    DERIVED,
    IMAGE,
    LEVELS,
    REPORT,
    annexed,
    awkward,
    people,
    write_json,
    write_people,
)

PEOPLE = people(24)
READS = """
import hashlib, os, sys
source, target, level = sys.argv[1:]
found, folders = [], {}
for top, _, names in os.walk(source):
    for name in names:
        path = os.path.relpath(os.path.join(top, name), source)
        with open(os.path.join(top, name), "rb") as file:
            text = file.read()
        if "sub-" in path:
            person = next(p for p in path.replace(".", "/").split("/") if p.startswith("sub-"))
            folders.setdefault(person, {})[path.replace(person, "{sub}")] = text
        elif not path.endswith(".tsv") and path != "dataset_description.json":
            found.append((path, hashlib.sha256(text).hexdigest()))
people = [line.split("\\t")[0] for line in open(source + "/participants.tsv")][1:]
same = hashlib.sha256(repr(sorted(found)).encode()).hexdigest() == "DIGEST"
own = set(folders) == set(people) and all(set(one) == PATHS for one in folders.values())
texts = [set(one.values()) for one in folders.values()]  # each file says whose it is
right = same and own and all(len(one) == 1 for one in texts)
right = right and len(set.union(set(), *texts)) == len(people)
if level == "participant":
    with open(target + "/" + people[0] + ".txt", "w") as file:
        file.write("yes" if right and len(people) == 1 else "no")
else:
    said = [open(target + "/" + one + ".txt").read() for one in people]
    with open(target + "/group.txt", "w") as file:
        file.write(str(80 if right and set(said) == {"yes"} else 20))
"""
OUTPUTS = [{"name": "n", "lower": 0, "upper": 100, "step": 1, "path": "group.txt", "at": [0]}]


def completed(proposed: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a proposed card as its owner completes it."""
    shape: dict[str, Any] = dict(proposed["card"])
    shape["bids"] = {**shape["bids"], "people": 30}
    shape["columns"] = {**shape["columns"], "sex": {"type": "text", "keys": ["m", "f"]}}
    return {**shape, "budget": {"epsilon": 1000}, "version": "1", **more}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return awkward(tmp_path_factory.mktemp("owner") / "study", PEOPLE)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory, study: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("drafts"))) as made:
        made.add("study", study, completed(made.proposed("study", study)))
        hurry(made)
        yield made


@pytest.fixture(scope="module")
def draft(vault: OpenVault, study: Path) -> dict[str, Any]:
    found: dict[str, Any] = vault.proposed("study", study)
    return found


def data_set_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return a look-alike's files that are about the whole data set, but for its stamps."""
    stamps = ("TWIN.json", ".bidsignore", "dataset_description.json")
    return {
        path: text
        for path, text in files.items()
        if "sub-" not in path and not path.endswith(".tsv") and path not in stamps
    }


def looks_alike(vault: OpenVault) -> dict[str, str]:
    return dict(vault["study"].twin(rows=6, seed="s").files)


def test_the_draft_has_every_field_that_names_nobody(draft: dict[str, Any]) -> None:
    bids = draft["card"]["bids"]
    assert bids["files"] == [IMAGE, REPORT, DERIVED]
    assert bids["description"] == {
        "Name": "Ångström's town",
        "BIDSVersion": "1.10.0",
        "Authors": ["Anna Å.", "Bo"],
        "Keywords": ["rest", "T1w"],
        "GeneratedBy": [{"Name": "dcm2bids", "Version": None}],
        "Ours": {"deep": [1, 2.5, True, None]},
    }
    assert bids["texts"] == {"README": 'Größe "in" \\ """Metern"""\nPart 4 of 9\n'}
    assert bids["sidecars"] == {
        "T1w.json": {"MagneticFieldStrength": 3},
        "derivatives/fmriprep/dataset_description.json": {"Name": "fMRI"},
        "participants.json": {
            "participant_id": {"Description": "the participant"},
            "age": {"LongName": "Age", "Units": "years"},
            "sex": {
                "Description": "sex",
                "Levels": {level: LEVELS[level] for level in "mf"},
                "Derivative": False,
            },
        },
        "task-rest_bold.json": {
            "RepetitionTime": 2.0,
            "EchoTime": 1e-05,
            "Scanner": {"Coil": {"Elements": [1, "two"]}},
        },
    }


def test_the_owner_is_told_what_was_left_out_and_why(draft: dict[str, Any]) -> None:
    notes = {note["where"]: note["why"] for note in draft["notes"]}
    assert notes == {
        "README, line 2": f"it names the participant {PEOPLE[2]!r}",
        "README": "not UTF-8: read as cp1252, so check its letters",
        "README.md": "README is the README of the card",
        "LICENSE": "its content is not here (a link to a missing file)",
        "CHANGES": "larger than 128 kB",
        "dataset_description.json: Acknowledgements": f"it names the participant {PEOPLE[3]!r}",
        "dataset_description.json: Ours: said": "it has the value 'tall ship' of 'comment' in "
        "participants.tsv, which fewer than 5 people have",
        "participants.json: age: Minimum, Maximum": "the card has lower and upper",
        "participants.json: sex: Levels: o": "fewer than 5 people have it",
        "participants.json: nowhere": "no column of the table",
        "T1w.json: PatientID": f"it names the participant {PEOPLE[4]!r}",
    }
    assert "show it to nobody" in draft["label"]


def test_the_look_alike_has_what_the_card_publishes_and_names_nobody(vault: OpenVault) -> None:
    files = looks_alike(vault)
    own = data_set_files(files)
    assert set(own) == {
        "README", "T1w.json", "participants.json", "task-rest_bold.json",
        "derivatives/fmriprep/dataset_description.json",
    }  # fmt: skip
    assert own["README"] == 'Größe "in" \\ """Metern"""\nPart 4 of 9\n'
    meaning = json.loads(own["participants.json"])
    assert meaning["age"] == {"Description": "integer, as the card declares", "LongName": "Age",
                              "Units": "years"}  # fmt: skip
    assert meaning["sex"]["Levels"] == {level: LEVELS[level] for level in "mf"}
    assert meaning["participant_id"] == {"Description": "the participant"}
    derived = json.loads(own["derivatives/fmriprep/dataset_description.json"])
    assert derived == {
        "Name": "fMRI",
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "fmriprep"}],
    }
    assert files[DERIVED.replace("{sub}", "sub-twin00001")] == ""
    assert files[REPORT.replace("{sub}", "sub-twin00001")] == ""
    everything = "\n".join([*files, *files.values()]).casefold()
    assert not [one for one in PEOPLE if one in everything or one[4:] in everything]
    description = json.loads(files["dataset_description.json"])
    assert {"Name", "BIDSVersion", "Keywords", "Ours"} <= set(description)  # as BIDS requires


@needs_bubbles
def test_each_block_and_each_person_has_the_same_files_and_derivatives_of_its_own_people(
    vault: OpenVault,
) -> None:
    found = sorted(
        (path, hashlib.sha256(text.encode()).hexdigest())
        for path, text in data_set_files(looks_alike(vault)).items()
    )
    digest = hashlib.sha256(repr(found).encode()).hexdigest()
    paths = {f"{{sub}}/{IMAGE}", DERIVED, REPORT}
    source = READS.replace("DIGEST", digest).replace("PATHS", repr(paths))
    shape = {"source": source, "kind": "bids", "name": "group", "outputs": OUTPUTS}
    made: Any = vault.call("submit-pipeline", {"data_set": "study", **shape})
    asked = {"data_set": "study", "pipeline": made["digest"], "epsilon": 900, "cpu_s": 2}
    answer: Any = vault.call("run-pipeline", {**asked, "blocks": 2})
    assert answer["rows"][0][0] == pytest.approx(80, abs=1)


def test_who_comes_or_goes_changes_no_file_of_the_whole_data_set(
    vault: OpenVault, tmp_path: Path, study: Path
) -> None:
    before = looks_alike(vault)
    fewer = awkward(tmp_path / "fewer", PEOPLE[:-1])
    shape = completed(vault.proposed("study", study), version="2")
    with sfumato.open(make_vault(tmp_path)) as other:
        other.add("study", fewer, shape)
        after = looks_alike(other)
    assert data_set_files(before) == data_set_files(after)


def test_a_level_that_is_no_key_is_left_out_and_the_owner_is_told(tmp_path: Path) -> None:
    study = awkward(tmp_path / "study", PEOPLE)
    text = tmp_path / "c.card.toml"
    text.write_text(
        'unit = "participant_id"\nbudget = { epsilon = 1 }\n'
        '[bids]\npeople = 30\ndescription = { Name = "n" }\n'
        '[bids.sidecars."participants.json"]\nsex = { Levels = { m = "male", o = "other" } }\n'
        '[columns.sex]\ntype = "text"\nkeys = ["m", "f"]\n'
    )
    made = make_vault(tmp_path)
    told = run(made, "add", "study", str(study), "--card", str(text)).stdout
    assert "These files are public, as part of the card: participants.json." in told
    assert "Levels that are no keys of the card are left out: participants.json: sex: o." in told
    assert "files of the data set: participants.json" in run(made, "card", "study").stdout
    with sfumato.open(made) as opened:
        found = json.loads(looks_alike(opened)["participants.json"])
    assert found["sex"]["Levels"] == {"m": "male", "f": "declared"}


def test_the_command_line_drafts_the_card_that_the_vault_proposes(
    tmp_path: Path, study: Path, draft: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(make_vault(tmp_path), "add", "study", str(study))
    text = (tmp_path / "study.card.toml").read_text("utf-8")
    bids = tomllib.loads(text)["bids"]
    bids["description"] = json.loads(bids["description"])  # it has a null, which TOML has not
    assert bids == draft["card"]["bids"]
    assert '# keys = ["m", "f"]' in text
    assert "These files become public with the card: dataset_description.json, README" in (
        done.stdout
    )
    assert f"README, line 2: it names the participant '{PEOPLE[2]}'" in done.stdout
    assert not [one for one in PEOPLE if one in text]


TOOL = {"Description": "a scale", "TermURL": "https://example.org/moods"}
READS_MOODS = """
import json, os, sys
source, target, level = sys.argv[1:]
moods = json.load(open(source + "/phenotype/moods.json"))
right = moods["MeasurementToolMetadata"] == TOOL and moods["my mood"]["Units"] == "points"
right = right and os.path.getsize(source + "/README") == 131072
with open(target + "/group.txt", "w") as file:
    file.write(str(80 if right else 20))
"""


@needs_bubbles
def test_a_draft_that_its_owner_completes_is_added_with_its_tables_and_a_long_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "study"
    write_people(study, PEOPLE, derivatives=False)
    (study / "README").write_text("x\n" * 65_536)
    (study / "phenotype").mkdir()
    rows = ["participant_id\tmy mood\tpatient_name", *(f"{one}\t3\tAnn {one}" for one in PEOPLE)]
    (study / "phenotype" / "moods.tsv").write_text("\n".join(rows) + "\n")
    meanings = {"my mood": {"Units": "points"}, "patient_name": {"Description": "hidden"}}
    tool = {"MeasurementToolMetadata": TOOL}
    write_json(study / "phenotype" / "moods.json", {**meanings, **tool})
    made, text = make_vault(tmp_path), tmp_path / "study.card.toml"
    told = run(made, "add", "study", str(study)).stdout
    assert "phenotype/moods.json: patient_name: the draft hides this column" in told
    draft = text.read_text().replace("# budget = { epsilon = 1.0", "budget = { epsilon = 1000")
    text.write_text(draft.replace("# people = 100", "people = 30"))
    assert "Added study" in run(made, "add", "study", str(study), "--card", str(text)).stdout
    with sfumato.open(made) as vault:
        hurry(vault)
        source = READS_MOODS.replace("TOOL", repr(TOOL))
        shape = {"source": source, "kind": "program", "name": "group", "outputs": OUTPUTS}
        digest = vault.call("submit-pipeline", {"data_set": "study", **shape})["digest"]
        asked = {"data_set": "study", "pipeline": digest, "epsilon": 900, "cpu_s": 1}
        answer: Any = vault.call("run-pipeline", {**asked, "blocks": 2})
    assert answer["rows"][0][0] == pytest.approx(80, abs=1)


def test_a_description_with_an_id_is_not_published_without_a_look(tmp_path: Path) -> None:
    study = awkward(tmp_path / "study", PEOPLE)
    shape = card('unit = "participant_id"\nbudget = { epsilon = 1 }\n[bids]\npeople = 30\n')
    with sfumato.open(make_vault(tmp_path)) as vault:
        with pytest.raises(Refused) as refused:
            vault.add("study", study, shape)
        assert refused.value.code == "bad-card"
        assert "contains a participant's id" in str(refused.value)
        assert PEOPLE[3] not in str(refused.value)
        write_json(study / "dataset_description.json", {"Name": "n"})
        vault.add("study", study, shape)


def test_a_table_that_cannot_be_read_is_named_and_stops_nothing(tmp_path: Path) -> None:
    study = awkward(tmp_path / "study", PEOPLE)
    (study / "phenotype").mkdir()
    (study / "phenotype" / "moods.tsv").write_text("sub-pix001\t3\nsub-pix002\t4\n")
    write_json(study / "phenotype" / "moods.json", {"score": {}})
    write_json(study / "dataset_description.json", {"Name": "n"})
    shape = card('unit = "participant_id"\nbudget = { epsilon = 1 }\n[bids]\npeople = 30\n')
    with sfumato.open(make_vault(tmp_path)) as vault:
        found: Any = vault.proposed("study", study)
        vault.add("study", study, shape)
    notes = {note["where"]: note["why"] for note in found["notes"]}
    assert notes["phenotype/moods.tsv"].endswith("Nothing checks it.")
    assert notes["phenotype/moods.json"] == "it describes no table of the card"
    assert "tables" not in found["card"]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    study = awkward(tmp_path / "study", PEOPLE)
    (study / "README").unlink()
    with sfumato.open(make_vault(tmp_path)) as vault:
        found: Any = vault.proposed("study", study)
    assert "texts" not in found["card"]["bids"]
    assert {"where": "README.md", "why": "a link that leads out of the folder"} in found["notes"]


def test_the_owner_is_told_of_files_that_few_people_have(tmp_path: Path) -> None:
    study = awkward(tmp_path / "study", PEOPLE)
    (study / PEOPLE[0] / "anat" / f"{PEOPLE[0]}_T2w.nii").write_text("one person's")
    with sfumato.open(make_vault(tmp_path)) as vault:
        found: Any = vault.proposed("study", study)
    assert not any("T2w" in one for one in found["card"]["bids"]["files"])
    (told,) = (note["why"] for note in found["notes"] if note["where"] == "people's files")
    assert told.startswith("kinds that fewer than half of the people have")
    assert ": anat/{sub}_T2w.nii. If programs need" in told


def test_a_derivative_that_is_a_link_to_another_persons_is_not_taken(tmp_path: Path) -> None:
    study = awkward(tmp_path / "study", PEOPLE)
    mine, others = (study / DERIVED.replace("{sub}", one) for one in PEOPLE[:2])
    mine.unlink()
    mine.symlink_to(others)
    theirs = study / DERIVED.replace("{sub}", PEOPLE[2])
    theirs.unlink()
    annexed(study, "kept", b"of somebody")
    theirs.symlink_to(study / "kept")
    shape = card(
        'unit = "participant_id"\nbudget = { epsilon = 1 }\n[bids]\npeople = 30\n'
        f'description = {{}}\nfiles = ["{DERIVED}"]\n'
    )
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("study", study, shape)
        stored = (vault.house.folder / "tables").glob("*.folders/*")
        texts = [one.read_bytes() for one in stored]
    assert sum(PEOPLE[1].encode() in text for text in texts) == 1
    assert not any(PEOPLE[0].encode() in text for text in texts)
    assert sum(b"of somebody" in text for text in texts) == 1


def test_numbers_of_a_sidecar_are_what_they_were(tmp_path: Path) -> None:
    text = "EchoTime = 1e-05\nRepetitionTime = 2.0\nN = 12345678901234567890\n"
    shape = card(
        'unit = "participant_id"\nbudget = { epsilon = 1 }\n[bids.sidecars."a_bold.json"]\n' + text
    )
    assert isinstance(shape["bids"]["sidecars"]["a_bold.json"]["EchoTime"], Decimal)
    found = files_of(read_card("x", shape))["a_bold.json"]
    assert found == json.dumps(tomllib.loads(text), indent=2) + "\n"
