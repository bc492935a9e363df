"""The owner's dataset_description.json: every field of it, in the look-alike and in each block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run, write_csv

DESCRIPTION: dict[str, Any] = {
    "Name": "Heights of Ångström's town",
    "BIDSVersion": "1.6.0",
    "HEDVersion": ["8.2.0", "sc:1.0.0"],
    "DatasetLinks": {"deriv": "../derivatives"},
    "DatasetType": "raw",
    "License": "CC0",
    "Authors": ["Anna Å.", "Bo"],
    "Acknowledgements": "",
    "Funding": [],
    "EthicsApprovals": ["47/2011"],
    "DatasetDOI": "doi:10.0.0.1/ds",
    "GeneratedBy": [{"Name": "dcm2bids", "Version": "3.1"}],
    "SourceDatasets": [{"URL": "ftp://there", "Version": None}],
    "Ours": {"deep": [1, 2.5, True, None]},
}
CARD = """
unit = "participant_id"
people = "cohort"
size = 8
budget = { epsilon = 1000, delta = 0 }
[bids]
people = 8
files = ["func/{sub}_events.tsv"]
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
READS = """
import json, os, sys
source, target, level = sys.argv[1:]
whole = all(os.path.isfile(source + "/" + one) for one in ("README", "participants.json"))
with open(source + "/dataset_description.json", encoding="utf-8") as file:
    found = json.load(file)
wanted = json.loads('''WANTED''')
print("missing:", sorted(set(wanted) - set(found)))
with open(target + "/group.txt", "w") as file:
    file.write(str(80 if found == wanted and whole else 20))
"""
OUTPUTS = [{"name": "n", "lower": 0, "upper": 100, "step": 1, "path": "group.txt", "at": [0]}]


def folder_of(place: Path, description: object) -> Path:
    """Write a BIDS folder of eight people."""
    place.mkdir()
    lines = ["participant_id\tage", *(f"sub-{number}\t{20 + number}" for number in range(8))]
    (place / "participants.tsv").write_text("\n".join(lines) + "\n")
    if description is not None:
        text = description if isinstance(description, str) else json.dumps(description)
        (place / "dataset_description.json").write_text(text, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    place = tmp_path_factory.mktemp("described")
    with sfumato.open(make_vault(place)) as made:
        made.add("cohort", folder_of(place / "study", DESCRIPTION), card(CARD))
        hurry(made)
        yield made


def handed_in(vault: OpenVault, name: str, kind: str, wanted: object) -> dict[str, object]:
    source = READS.replace("WANTED", json.dumps(wanted).replace("\\", "\\\\"))
    shape = {"source": source, "kind": kind, "name": "group", "outputs": OUTPUTS}
    made: Any = vault.call("submit-pipeline", {"data_set": name, **shape})
    return {"data_set": name, "pipeline": made["digest"], "epsilon": 900, "cpu_s": 1}


@needs_bubbles
def test_every_field_is_in_a_blocks_folder_and_in_a_trials(vault: OpenVault) -> None:
    asked = handed_in(vault, "cohort", "program", DESCRIPTION)
    plan: Any = vault.call("plan-pipeline", {**asked, "people": 8})
    assert (plan["trials"][0]["printed"], plan["trials"][0]["read"][0]["says"]) == (
        "missing: []\n", "80",
    )  # fmt: skip
    answer: Any = vault.call("run-pipeline", {**asked, "blocks": 2})
    assert answer["rows"][0][0] == pytest.approx(80, abs=1)


def test_every_field_is_in_the_look_alike_which_says_what_it_is(
    vault: OpenVault, tmp_path: Path
) -> None:
    made = vault["cohort"].twin(rows=4, seed="s").save(tmp_path / "look")
    found = json.loads((made / "dataset_description.json").read_text("utf-8"))
    same = {key: value for key, value in found.items() if key not in ("Name", "GeneratedBy")}
    expected = {k: v for k, v in DESCRIPTION.items() if k not in ("Name", "GeneratedBy")}
    assert same == expected
    assert found["Name"].startswith(f"{DESCRIPTION['Name']} (cohort.schema-twin: ")
    assert found["GeneratedBy"][0] == DESCRIPTION["GeneratedBy"][0]
    assert found["GeneratedBy"][1]["Name"] == "sfumato"


def test_the_card_shows_it_as_it_is_public(vault: OpenVault) -> None:
    assert vault["cohort"].card["dataset_description"] == DESCRIPTION


@needs_bubbles
@pytest.mark.parametrize("kind", ["program", "bids"])
def test_a_table_whose_card_describes_itself_has_it_in_its_blocks_too(
    tmp_path: Path, kind: str
) -> None:
    own = {"Name": "of a table", "License": "PDDL", "Version": 1.5}
    said = 'description = { Name = "of a table", License = "PDDL", Version = 1.5 }'
    text = CARD.replace("people = 8\nfiles", f"{said}\nfiles")
    source = write_csv(tmp_path / "t.csv", ("participant_id", "age"), [("p1", 30), ("p2", 40)])
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("table", source, card(text))
        hurry(made)
        wanted = {"BIDSVersion": "1.10.0", "DatasetType": "raw", **own}
        asked = handed_in(made, "table", kind, wanted)
        answer: Any = made.call("run-pipeline", {**asked, "blocks": 2})
    assert answer["rows"][0][0] == pytest.approx(80, abs=1)


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"Name": NaN}', "7", '{"Name": "' + "x" * 32_768 + '"}', "[" * 40_000],
    ids=["a list", "cut", "not JSON", "a number", "too large", "deep"],
)
def test_a_description_that_is_none_is_refused_to_the_owner(tmp_path: Path, text: str) -> None:
    with sfumato.open(make_vault(tmp_path)) as made, pytest.raises(Refused) as refused:
        made.add("cohort", folder_of(tmp_path / "study", text), card(CARD))
    assert refused.value.code == "bad-card"
    assert "dataset_description.json" in str(refused.value)


def test_the_owner_is_told_what_became_public(tmp_path: Path) -> None:
    made, study = make_vault(tmp_path), folder_of(tmp_path / "study", {"Name": "x", "Authors": []})
    text = tmp_path / "c.card.toml"
    text.write_text(CARD)
    told = run(made, "add", "cohort", str(study), "--card", str(text))
    assert (
        "dataset_description.json is public, as part of the card. It contains Name, Authors."
    ) in told.stdout


def test_a_folder_without_one_and_a_card_that_has_its_own(tmp_path: Path) -> None:
    own = CARD.replace("people = 8\nfiles", 'people = 8\ndescription = { Name = "mine" }\nfiles')
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("bare", folder_of(tmp_path / "bare", None), card(CARD))
        made.add("own", folder_of(tmp_path / "own", DESCRIPTION), card(own))
        assert "dataset_description" not in made["bare"].card.shape
        assert made["own"].card["dataset_description"] == {"Name": "mine"}
