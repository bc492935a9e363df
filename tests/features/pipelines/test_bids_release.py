"""Studies: a BIDS folder at the door. People are run alone, and blocks are folders of theirs.

Epsilon is so large that noise is nothing to speak of.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.owner import add
from sfumato.dp.refusal import Refused
from sfumato.sandbox.ports import SandboxLimits
from sfumato.sandbox.sandbox_process import Ran, SandboxProcess
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, run

CARD = """
unit = "participant_id"
people = "cohort"
budget = { epsilon = 1000, delta = 0 }
nulls = ["n/a"]
%s
[bids]
people = %d
person_mb = 1
files = ["anat/{sub}_T1w.nii.gz", "func/{sub}_events.tsv"]
[ask]
who = ["researchers"]
[columns.age]
type = "integer"
lower = 0
upper = 100
"""
PEOPLE = 6
APP = """
import glob, gzip, json, os, sys
source, target, level = sys.argv[1:]
assert json.load(open(source + "/dataset_description.json"))["BIDSVersion"]
assert "age" in json.load(open(source + "/participants.json"))
lines = open(source + "/participants.tsv").read().splitlines()
names = [line.split("\\t")[0] for line in lines[1:]]
folders = sorted(os.path.basename(one) for one in glob.glob(source + "/sub-*"))
assert folders == sorted(names)
if level == "participant":
    (name,) = names
    image = source + "/" + name + "/anat/" + name + "_T1w.nii.gz"
    assert sorted(os.listdir(source + "/" + name)) == ["anat", "func"]
    assert json.load(open(image.replace(".nii.gz", ".json")))["Made"]
    os.makedirs(target + "/" + name)
    with open(target + "/" + name + "/size.txt", "w") as file:
        file.write(str(len(gzip.decompress(open(image, "rb").read()))))
else:
    sizes = [int(open(one).read()) for one in glob.glob(target + "/sub-*/size.txt")]
    here = [name for name in names if os.path.exists(target + "/" + name + "/size.txt")]
    with open(target + "/group.txt", "w") as file:
        file.write(" ".join(map(str, (len(names), len(sizes), sum(sizes), len(here)))))
"""
OUTPUTS = [
    {"name": name, "lower": 0, "upper": 20 * step, "step": step, "path": "group.txt", "at": [place]}
    for place, (name, step) in enumerate({"people": 1, "found": 1, "bytes": 10, "named": 1}.items())
]
TERMS = {"epsilon": 900, "blocks": 2, "cpu_s": 3}


def write_study(folder: Path, sizes: list[int]) -> Path:
    """Write a folder of so many people, each with an image of that size."""
    folder.mkdir()
    lines = ["participant_id\tage", *(f"sub-{p:02d}\t{20 + p}" for p in range(len(sizes)))]
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    for place, size in enumerate(sizes):
        name = f"sub-{place:02d}"
        for part in ("anat", "func", "dwi"):
            (folder / name / part).mkdir(parents=True)
        (folder / name / "anat" / f"{name}_T1w.nii.gz").write_bytes(gzip.compress(bytes(size)))
        (folder / name / "anat" / f"{name}_T1w.json").write_text('{"Made": "here"}')
        (folder / name / "func" / f"{name}_events.tsv").write_text("onset\n1\n")
        (folder / name / "dwi" / f"{name}_dwi.nii.gz").write_bytes(b"not on the card")
    return folder


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    source = write_study(tmp_path / "study", [10 * place for place in range(PEOPLE)])
    with sfumato.open(make_vault(tmp_path)) as made:
        made.add("cohort", source, card(CARD % ("", 8)))
        in_no_hurry(made)
        yield made


def in_no_hurry(vault: OpenVault) -> None:
    vault.house.desk.pipelines.door.sandbox._sleep = lambda _: None  # type: ignore[attr-defined]  # of SandboxPool


def submitted(
    vault: OpenVault,
    source: str,
    outputs: list[dict[str, Any]] = OUTPUTS,
    kind: str = "bids",
) -> str:
    shape = {"source": source, "kind": kind, "name": "app", "outputs": outputs}
    made: Any = vault.call("submit-pipeline", {"data_set": "cohort", **shape})
    return str(made["digest"])


def ran(vault: OpenVault, digest: str, **terms: object) -> list[float]:
    body = {"data_set": "cohort", "pipeline": digest, **TERMS, **terms}
    answer: Any = vault.call("run-pipeline", body)
    return [float(one) for one in answer["rows"][0]]


def slots_of(vault: OpenVault) -> list[float]:
    """Return the list in which every slot that is waited out is put down from now on."""
    slots: list[float] = []
    sandbox: Any = vault.house.desk.pipelines.door.sandbox
    sandbox._wait_out = lambda _began, slot: slots.append(slot)
    return slots


def kept(vault: OpenVault) -> dict[str, bytes]:
    """Return what is kept of people's own runs, by its name."""
    places = (vault.house.folder / "tables").glob("*.kept/*/*")
    return {str(place): place.read_bytes() for place in places}


@needs_bubbles
def test_an_app_is_run_for_each_person_with_their_files_and_then_for_the_group(
    vault: OpenVault,
) -> None:
    total = sum(10 * place for place in range(PEOPLE))
    people, found, size, named = ran(vault, submitted(vault, APP))
    assert (people, found, named) == pytest.approx((PEOPLE / 2,) * 3, abs=0.6)  # a step of noise
    assert size == pytest.approx(total / 2, abs=5.1)
    assert list((vault.house.folder / "runs").iterdir()) == []


@needs_bubbles
def test_what_was_laid_out_goes_before_the_slot_is_waited_out(vault: OpenVault) -> None:
    runs, seen = vault.house.folder / "runs", list[set[str]]()
    sandbox: Any = vault.house.desk.pipelines.door.sandbox
    sandbox._wait_out = lambda _began, _slot: seen.append(
        {path.name for path in runs.rglob("*") if path.is_file() and path.suffix != ".lock"}
    )
    ran(vault, submitted(vault, APP))
    turns = {f"turn-{turn}" for turn in range(8)}
    assert seen[0] == turns  # for people's own runs
    assert len([name for name in seen[1] if name.endswith(".said")]) == PEOPLE
    assert seen[2:] == [{"0.tsv", "1.tsv"}, set()]  # for the group's, and behind them


LISTS = """
import glob, os, sys
source, target, level = sys.argv[1:]
assert level == "group"
images = glob.glob(source + "/sub-*/anat/*_T1w.nii.gz")
others = glob.glob(source + "/sub-*/dwi") + glob.glob(target + "/*")
with open(target + "/group.txt", "w") as file:
    file.write(str(len(images) - 10 * len(others)))
"""


@needs_bubbles
def test_a_program_of_one_level_finds_the_files_that_the_card_names_and_no_others(
    vault: OpenVault,
) -> None:
    digest = submitted(vault, LISTS, ONE, "program")
    assert ran(vault, digest) == pytest.approx([PEOPLE / 2], abs=0.6)
    assert kept(vault) == {}


BESIDE = """
[tables.moods]
max_rows = 3
[tables.moods.columns.score]
type = "integer"
lower = 0
upper = 100
[tables.moods.columns.note]
type = "text"
"""
READS_BESIDE = """
import csv, json, os, sys
source, target, level = sys.argv[1:]
def rows(name):
    with open(source + "/" + name) as file:
        return list(csv.DictReader(file, delimiter="\\t"))
moods, people = rows("phenotype/moods.tsv"), rows("participants.tsv")
people = {row["participant_id"] for row in people}
assert json.load(open(source + "/phenotype/moods.json"))["score"]["Maximum"] == 100
assert all(set(row) == {"participant_id", "score"} for row in moods)
assert {row["participant_id"] for row in moods} <= people
if level == "participant":
    with open(target + "/" + people.pop() + ".txt", "w") as file:
        file.write(str(sum(int(row["score"]) for row in moods)))
else:
    said = [int(open(target + "/" + name + ".txt").read()) for name in people]
    with open(target + "/group.txt", "w") as file:
        file.write(str(sum(int(row["score"]) for row in moods)) + " " + str(sum(said)))
"""
SUMS = [
    {"name": name, "lower": 0, "upper": 400, "step": 1, "path": "group.txt", "at": [place]}
    for place, name in enumerate(("here", "said"))
]


@needs_bubbles
def test_a_table_beside_participants_has_the_rows_of_whoever_is_in_the_folder(
    vault: OpenVault, tmp_path: Path
) -> None:
    study = write_study(tmp_path / "moods", [1] * PEOPLE)
    (study / "phenotype").mkdir()
    rows = [f"sub-{place:02d}\t{10 * place + n}\tn" for place in range(PEOPLE) for n in range(2)]
    table = "\n".join(("participant_id\tscore\tnote", *rows))
    (study / "phenotype" / "moods.tsv").write_text(table + "\n")
    vault.add("cohort", study, card(CARD % ('version = "2"', 8) + BESIDE))
    shape = {"source": READS_BESIDE, "kind": "bids", "name": "app", "outputs": SUMS}
    columns = ["age", "moods.score"]
    made: Any = vault.call("submit-pipeline", {"data_set": "cohort", "columns": columns, **shape})
    assert made["columns"] == columns
    total = sum(10 * place + n for place in range(PEOPLE) for n in range(2))
    expected = [total / 2] * 2  # of the group's own folder, and of what people's own runs have said
    assert ran(vault, str(made["digest"])) == pytest.approx(expected, abs=16)  # 18 scales of noise


SAYS_WHEN = """
import glob, sys, os
source, target, level = sys.argv[1:]
if level == "participant":
    with open(target + "/" + os.urandom(8).hex(), "w") as file:
        file.write("1")
else:
    with open(target + "/group.txt", "w") as file:
        file.write(str(len(glob.glob(target + "/*")) - 1))
"""
ONE = [{"name": "n", "lower": 0, "upper": 20, "step": 1, "path": "group.txt", "at": [0]}]


def runs_of(monkeypatch: pytest.MonkeyPatch) -> list[SandboxLimits]:
    """Return the list in which every run in a bubble is put down from now on."""
    runs: list[SandboxLimits] = []
    really = SandboxProcess.run

    def counted(made: SandboxProcess, program: int, rows: int, limits: SandboxLimits) -> Ran:
        runs.append(limits)
        return really(made, program, rows, limits)

    monkeypatch.setattr(SandboxProcess, "run", counted)
    return runs


@needs_bubbles
def test_what_a_persons_run_has_left_is_kept_and_not_run_again(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, slots = submitted(vault, SAYS_WHEN, ONE), slots_of(vault)
    runs = runs_of(monkeypatch)
    ran(vault, digest, epsilon=300)
    first = kept(vault)
    assert (len(first), len(runs)) == (PEOPLE, 8 + 2)  # nobody's turn is run as well, or others
    ran(vault, digest, epsilon=200)  # could tell by what the kernel counts; so is one that is kept
    assert len(runs) == 2 * (8 + 2)
    assert slots[:4] == slots[4:]  # it takes as long, whatever was kept
    ran(vault, digest, epsilon=200, blocks=3)  # other blocks, the same people
    assert kept(vault) == first  # what is random in them would be another
    ran(vault, digest, epsilon=200, cpu_s=2)  # limits decide who is late, so these are other runs
    assert len(kept(vault)) == 2 * PEOPLE


FAILS = """
import glob, os, sys
source, target, level = sys.argv[1:]
name = open(source + "/participants.tsv").read().split()[-2]
age = int(open(source + "/participants.tsv").read().split()[-1])
if level == "participant":
    if age == 20: sys.exit("no")
    if age == 21: os._exit(1)
    if age == 22:
        while True: pass
    if age == 23: open(target + "/big", "wb").write(bytes(10**6))
    open(target + "/" + name, "w").write("1")
    open(target + "/bad\\nname", "w").write("1")
else:
    with open(target + "/group.txt", "w") as file:
        file.write(str(len(glob.glob(target + "/*")) - 1))
"""


@needs_bubbles
def test_whoevers_run_fails_is_missing_and_moves_nobody_else(vault: OpenVault) -> None:
    assert ran(vault, submitted(vault, FAILS, ONE), cpu_s=1) == pytest.approx([2 / 2], abs=0.6)
    assert len(kept(vault)) == PEOPLE - 2  # who was late, or said too much, is run again


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


def test_more_people_or_larger_files_than_the_card_has_are_refused_to_the_owner(
    vault: OpenVault, tmp_path: Path
) -> None:
    many = write_study(tmp_path / "many", [1] * 9)
    again = card(CARD % ('version = "2"', 8))
    assert code_of(lambda: vault.add("cohort", many, again)) == "source-too-large"
    large = write_study(tmp_path / "large", [1])
    image = large / "sub-00" / "anat" / "sub-00_T1w.nii.gz"
    image.write_bytes(os.urandom((1 << 20) + 1))
    assert code_of(lambda: vault.add("cohort", large, again)) == "source-too-large"
    left = {place.name.partition(".")[0] for place in (vault.house.folder / "tables").iterdir()}
    assert len(left) == 1


def test_a_folder_needs_a_card_that_says_how_many_people(vault: OpenVault, tmp_path: Path) -> None:
    study = write_study(tmp_path / "other", [1])
    shape = card((CARD % ('version = "2"', 8)).replace("people = 8\nperson_mb = 1\n", ""))
    assert code_of(lambda: vault.add("cohort", study, shape)) == "bad-card"


@needs_bubbles
def test_a_program_waits_where_it_would_see_files_that_it_was_not_approved_with(
    tmp_path: Path,
) -> None:
    study, shape = write_study(tmp_path / "study", [1, 2]), CARD % ('version = "%s"', 8)
    alone = shape.replace("people = 8\nperson_mb = 1\n", "")
    fewer = shape.replace(', "func/{sub}_events.tsv"', "")
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("cohort", study / "participants.tsv", card(alone % "1"))
        for place, wider in enumerate((fewer, shape), 2):
            digest = submitted(vault, LISTS, kind="program")
            vault.add("cohort", study, card(wider % place))
            assert code_of(partial(ran, vault, digest)) == "pipeline-waits"


def test_a_link_out_of_the_folder_is_not_followed(vault: OpenVault, tmp_path: Path) -> None:
    study = write_study(tmp_path / "links", [1])
    (tmp_path / "elsewhere").write_bytes(b"elsewhere")
    image = study / "sub-00" / "anat" / "sub-00_T1w.nii.gz"
    image.unlink()
    image.symlink_to(tmp_path / "elsewhere")
    vault.add("cohort", study, card(CARD % ('version = "2"', 8)))
    files = (vault.house.folder / "tables").glob("*.folders/*")
    found = [file.read_bytes() for file in files]
    assert not any(b"elsewhere" in text for text in found)
    assert any(b"onset" in text for text in found)


def test_a_link_to_what_is_others_is_not_followed_and_one_to_kept_contents_is(
    vault: OpenVault, tmp_path: Path
) -> None:
    study = write_study(tmp_path / "links", [1, 2])
    (study / "sub-00" / "func" / "sub-00_events.tsv").write_text("of the first")
    (study / ".git" / "annex").mkdir(parents=True)
    (study / ".git" / "annex" / "key").write_text("contents")
    for name, leads_to in {
        "sub-01/func/sub-01_events.tsv": study / "sub-00" / "func" / "sub-00_events.tsv",
        "sub-01/anat/sub-01_T1w.json": study / "participants.tsv",
        "sub-01/anat/sub-01_T1w.nii.gz": study / ".git" / "annex" / "key",
    }.items():
        (study / name).unlink()
        (study / name).symlink_to(leads_to)
    vault.add("cohort", study, card(CARD % ('version = "2"', 8)))
    found = vault.house.catalogue.find("cohort")
    assert found is not None
    files = [file.read_bytes() for file in Path(found.table).with_suffix(".folders").iterdir()]
    assert sum(b"of the first" in text for text in files) == 1
    assert not any(b"participant_id" in text for text in files)
    assert sum(b"contents" in text for text in files) == 1


def test_files_go_with_the_version_whose_rows_go(vault: OpenVault) -> None:
    house = vault.house
    found = house.catalogue.find("cohort")
    assert found is not None
    assert len(list((house.folder / "tables").glob("*.folders/*"))) == PEOPLE
    house.engine.forget(found.table)
    left = [path.suffix for path in (house.folder / "tables").iterdir()]
    assert left == [".report"]  # the owner's: the service drops it


def test_a_folder_with_a_bad_card_is_not_sent_to_a_service(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", [1])

    class Nobody:
        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            raise AssertionError(verb)

        def send(self, path: str | os.PathLike[str]) -> str:
            raise AssertionError(path)

        def send_folder(self, path: str | os.PathLike[str], card: Mapping[str, object]) -> str:
            raise AssertionError(path)

    assert code_of(lambda: add(Nobody(), "x", {"unit": 3}, {"": study})) == "bad-card"


def test_a_folder_is_published_by_the_command_line(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", [1, 2])
    (tmp_path / "card.toml").write_text(CARD % ("", 8))
    vault = make_vault(tmp_path)
    done = run(vault, "add", "cohort", str(study), "--card", str(tmp_path / "card.toml"), "--json")
    assert json.loads(done.stdout)["added"] == "cohort"
    assert len(list((vault / "tables").glob("*.folders/*"))) == 2


@needs_bubbles
def test_a_disk_without_room_for_all_that_people_may_leave_is_refused_unpaid(
    vault: OpenVault,
) -> None:
    digest = submitted(vault, APP)
    engine: Any = vault.house.desk.pipelines.door.engine
    needed = 8 * (3 * 524_288 + 2 * 2**20)  # by the card's people and megabytes, whoever is there
    engine.free_disk_bytes = lambda _table: needed - 1
    with pytest.raises(Refused) as refused:
        ran(vault, digest)
    assert refused.value.code == "sandbox-missing"
    assert "MB of disk" in refused.value.cause
    assert {account.spent.epsilon for account in vault.house.ledger.store.accounts()} <= {0}
    engine.free_disk_bytes = lambda _table: needed
    assert ran(vault, digest)[0] == pytest.approx(PEOPLE / 2, abs=0.6)


@needs_bubbles
def test_peoples_own_runs_are_repeated_if_the_card_has_other_files_of_the_data_set(
    vault: OpenVault,
) -> None:
    digest = submitted(vault, APP)
    ran(vault, digest, epsilon=400)
    before = kept(vault)
    shape = card(CARD % ('version = "2"', 8))
    bids = {**shape["bids"], "texts": {"README": "Read this.\n"}}
    vault.call("amend", {"data_set": "cohort", "card": {"version": "2", "bids": bids}})
    ran(vault, digest, epsilon=400)
    assert len(kept(vault)) == 2 * len(before)  # those of the earlier card, and new ones
