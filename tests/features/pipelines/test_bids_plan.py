"""Plans of programs over people's folders: tried on a schema twin's, whose files are empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.display import BlocksPlan
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.pipelines.schema import PipelinePlan
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault

CARD = """
unit = "participant_id"
people = "cohort"
budget = { epsilon = 10, delta = 0 }
[ask]
who = ["researchers"]
[bids]
people = 300
files = ["anat/{sub}_T1w.nii.gz", "func/{sub}_events.tsv"]
[columns.age]
type = "integer"
lower = 10
upper = 90
missing = 0
[tables.moods]
max_rows = 3
[tables.moods.columns.score]
type = "integer"
lower = 1
upper = 9
missing = 0
"""
PEOPLE = 24
APP = """
import csv, glob, json, os, sys
source, target, level = sys.argv[1:]
assert json.load(open(source + "/participants.json"))["age"]["Maximum"] == 90
def rows(name):
    with open(source + "/" + name) as file:
        return list(csv.DictReader(file, delimiter="\\t"))
people = {row["participant_id"]: int(row["age"]) for row in rows("participants.tsv")}
moods = [int(row["score"]) for row in rows("phenotype/moods.tsv")]
folders = {os.path.basename(one) for one in glob.glob(source + "/sub-*")}
assert folders == set(people) and all(1 <= score <= 9 for score in moods)
if level == "participant":
    (name,) = people
    files = [f"anat/{name}_T1w.json", f"anat/{name}_T1w.nii.gz", f"func/{name}_events.tsv"]
    assert all(os.path.exists(f"{source}/{name}/{one}") for one in files)
    with open(target + "/" + name + ".txt", "w") as file:
        file.write(str(people[name]) + " " + str(len(moods)))
else:
    said = [open(target + "/" + name + ".txt").read().split() for name in people]
    ages = sum(int(age) for age, _ in said) == sum(people.values())
    scores = sum(int(count) for _, count in said) == len(moods)
    sizes = sum(os.path.getsize(one) for one in glob.glob(source + "/sub-*/*/*.nii.gz"))
    with open(target + "/group.txt", "w") as file:
        found = len(said) * ages * scores
        file.write(f"{len(people)} {found} " + (str(sizes) if sizes else "none"))
"""
OUTPUTS = [
    {"name": name, "lower": -1, "upper": 99, "step": 1, "path": "group.txt", "at": [place]}
    for place, name in enumerate(("people", "found", "bytes"))
]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    place = tmp_path_factory.mktemp("plans")
    folder = place / "study"
    (folder / "phenotype").mkdir(parents=True)
    (folder / "participants.tsv").write_text("participant_id\tage\nsub-real\t77\n")
    (folder / "phenotype" / "moods.tsv").write_text("participant_id\tscore\nsub-real\t5\n")
    made = make_vault(place)
    with sfumato.open(made) as opened:
        opened.add("cohort", folder, card(CARD))
        opened.enrol("ria", "researchers")
    with sfumato.open(made) as opened:
        yield opened


def planned(
    vault: OpenVault, kind: str = "bids", source: str = APP, **terms: Any
) -> dict[str, Any]:
    shape = {"source": source, "kind": kind, "name": "app", "outputs": OUTPUTS}
    digest = vault.call("submit-pipeline", {"data_set": "cohort", **shape})["digest"]
    body = {"data_set": "cohort", "pipeline": digest, "epsilon": 1, "people": PEOPLE, "cpu_s": 2}
    found: dict[str, Any] = vault.call("plan-pipeline", {**body, **terms})
    return found


@pytest.fixture(scope="module")
def found(vault: OpenVault) -> dict[str, Any]:
    """Return the plan of a program that is run for each person and in blocks."""
    return planned(vault)


def refused(act: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as found:
        act()
    return found.value


@needs_bubbles
def test_a_program_over_folders_is_tried_on_the_twins_folders_for_each_person_and_in_blocks(
    vault: OpenVault, found: dict[str, Any]
) -> None:
    rows = {row["blocks"]: row for row in found["at"]}
    for row in rows.values():  # whatever somebody's own run has left is in their block, and whole
        assert row["bias"]["found"] == row["bias"]["people"]
        assert -PEOPLE - 1 < row["bias"]["people"] <= -PEOPLE / 2  # a block has a part of everybody
    assert set(rows) == {10, 20}  # never more blocks than people
    engine = vault.house.engine
    assert isinstance(engine, DuckDBEngine)
    assert engine.worker_pid() is None  # no row was read
    assert not any(a.spent.epsilon for a in vault.house.ledger.store.accounts())


@needs_bubbles
def test_a_plan_says_of_which_numbers_it_can_tell_nothing(found: dict[str, Any]) -> None:
    assert found["silent"] == ["bytes"]  # of images, and those of made-up people are empty
    assert "empty" in found["says"]
    assert "bytes" in found["says"]
    assert all(row["no_number"] == {"people": 0, "found": 0, "bytes": 8} for row in found["at"])
    assert (found["never"], found["proposed"]) == (["bytes"], None)
    assert "never gave a number for bytes" in found["warnings"][0]


@needs_bubbles
def test_a_plan_shows_somebodys_own_run_too(found: dict[str, Any]) -> None:
    own, together = found["trials"][:2]
    assert (own["of"], own["ended"], own["printed"]) == ("somebody's own run", "exit status 0", "")
    assert [one["says"] for one in together["read"]] == [
        str(PEOPLE), str(PEOPLE), "no number: 'none' in group.txt is not a number: the program "
        "computed none, for example for a group without people",
    ]  # fmt: skip


@needs_bubbles
def test_each_trial_lists_the_files_of_its_output_folder(found: dict[str, Any]) -> None:
    own, together = found["trials"][:2]
    assert {one["says"] for one in own["files"]} == {"taken for the group's run"}
    assert together["files"][0]["path"] == "group.txt"
    assert together["files"][0]["is_taken"]
    others = {one["says"] for one in together["files"][1:]}  # what each person left
    assert others == {"not taken: no output declares it"}
    lines = repr(BlocksPlan(found)).splitlines()
    assert "  Files in the output folder:" in lines
    assert msgspec.convert(found, PipelinePlan).trials[1].files[0].is_taken


@needs_bubbles
def test_a_program_of_one_level_is_tried_without_anybodys_own_run(vault: OpenVault) -> None:
    found = planned(vault, "program")  # it looks for what nobody has left, so it fails
    assert found["silent"] == ["people", "found", "bytes"]
    assert "FileNotFoundError" in found["trials"][0]["printed"]


@pytest.mark.parametrize(
    ("by", "terms"),
    [
        ("ria", {"people": 201}),
        ("ria", {"people": 150, "cpu_s": 1}),
        ("ria", {"people": 61, "cpu_s": 2}),
        ("ria", {"people": None}),
        ("owner", {"people": 201}),
        ("owner", {"people": 200, "cpu_s": 3}),
    ],
    ids=["folders", "a second each", "two each", "nobody knows", "the owner's", "three each"],
)
def test_a_plan_over_folders_holds_nobody_up_for_long(
    vault: OpenVault, by: str, terms: Any
) -> None:
    someone = OpenVault(vault.house, by)
    text = f"{APP}# by {by}"
    assert refused(lambda: planned(someone, source=text, **terms)).code == "bad-pipeline"


def test_a_plan_over_folders_makes_up_no_more_people_than_the_card_lets_in(tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    (study / "participants.tsv").write_text("participant_id\tage\nsub-real\t77\n")
    with sfumato.open(make_vault(tmp_path)) as vault:
        shape = CARD.replace("people = 300", "people = 20").partition("[tables")[0]
        vault.add("cohort", study, card(shape))
        assert "20 synthetic people" in str(refused(lambda: planned(vault)))
