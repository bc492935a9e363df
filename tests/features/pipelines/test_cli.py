"""The commands of a pipeline, with a program of the kind that runs over BIDS folders, unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sfumato
from sfumato.features.pipelines import cli as pipelines_cli
from sfumato.sandbox.program_environment import OwnEnvironment
from support.sandbox_blocks import needs_bubbles
from support.small_vaults import card, make_vault, run, run_hurried, write_csv

CARD = """
unit = "participant_id"
people = "cohort"
budget = { epsilon = 1000, delta = 0 }
nulls = ["n/a"]
[ask]
who = ["researchers"]
[columns.age]
type = "integer"
lower = 0
upper = 100
[columns.Height]
type = "number"
lower = 50
upper = 250
step = 0.1
"""
PROGRAM = """
import csv, os, sys
source, target, level = sys.argv[1:]
with open(os.path.join(source, "participants.tsv")) as file:
    people = list(csv.DictReader(file, delimiter="\\t"))
def mean(name):
    found = [float(one[name]) for one in people if one[name] != "n/a"]
    return sum(found) / len(found) if found else float("nan")
os.makedirs(os.path.join(target, "derivatives", level))
with open(os.path.join(target, "derivatives", level, "results.tsv"), "w") as file:
    file.write("\\t".join(str(mean(name)) for name in ("age", "Height")) + "\\n")
sys.exit(7)
"""
RESULTS = "derivatives/group/results.tsv"
OUTPUTS = ("--output", f"age:0:100:1@{RESULTS}#0,0", "--output", f"height:100:220:1@{RESULTS}#0,1")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    rows = [(f"sub-{place:02d}", 30, "n/a" if place == 3 else 170) for place in range(40)]
    source = write_csv(tmp_path / "t.csv", ("participant_id", "age", "Height"), rows)
    made = make_vault(tmp_path)
    with sfumato.open(made) as opened:
        opened.add("cohort", source, card(CARD))
        opened.enrol("ria", "researchers")
    (tmp_path / "pipeline.py").write_text(PROGRAM)
    (tmp_path / "whitelist.txt").write_text(f"# what may leave\n{RESULTS}  # two means\n")
    return made


def test_a_plan_takes_the_limits_of_a_block_and_one_number_of_blocks(vault: Path) -> None:
    made = run(vault, "pipeline", "submit", "cohort", str(vault.parent / "pipeline.py"), *OUTPUTS,
               "--json")  # fmt: skip
    digest = json.loads(made.stdout)["digest"]
    for said, option in (("memory_mb", "--memory"), ("disk_mb", "--disk"), ("2 to 20", "--blocks")):
        given = ("--epsilon", "1", "--people", "20", option, "99999")
        refused = run(vault, "pipeline", "plan", "cohort", digest, *given)
        assert refused.returncode == 3
        assert said in refused.stderr


LEVELS = """
import csv, glob, os, sys
source, target, level = sys.argv[1:]
with open(os.path.join(source, "participants.tsv")) as file:
    people = list(csv.DictReader(file, delimiter="\\t"))
folders = sorted(os.path.basename(one) for one in glob.glob(source + "/sub-*"))
assert folders == sorted(one["participant_id"] for one in people)
if level == "participant":
    assert len(people) == 1
    if people[0]["Height"] == "n/a":
        sys.exit("no height")
    with open(f"{target}/{folders[0]}.txt", "w") as file:
        file.write(people[0]["Height"])
else:
    found = [float(open(one).read()) for one in glob.glob(target + "/sub-*.txt")]
    with open(f"{target}/group.txt", "w") as file:
        file.write(f"{len(people)} {len(found)} {sum(found) / len(found)}")
"""


@needs_bubbles
def test_a_program_of_two_levels_is_run_for_each_person_alone_and_then_for_all(vault: Path) -> None:
    (vault.parent / "levels.py").write_text(LEVELS)
    ranges = ("people:0:44", "found:0:44", "height:160:200")
    outputs = (f"{one}:1@group.txt#{place}" for place, one in enumerate(ranges))
    given = [word for one in outputs for word in ("--output", one)]
    made = run(
        vault, "pipeline", "submit", "cohort", str(vault.parent / "levels.py"), "--participants",
        *given, "--json",
    )  # fmt: skip
    digest = json.loads(made.stdout)["digest"]
    terms = (digest, "--epsilon", "900", "--blocks", "2", "--cpu", "3")
    answer = json.loads(run_hurried(vault, "pipeline", "run", "cohort", *terms, "--json").stdout)
    assert answer["rows"] == [pytest.approx([20, 19.5, 170], abs=0.6)]


def test_a_function_has_no_levels(vault: Path) -> None:
    given = (str(vault.parent / "pipeline.py"), "--function", "mean", *OUTPUTS)
    done = run(vault, "pipeline", "submit", "cohort", *given, "--participants")
    assert done.returncode == 2


@needs_bubbles
def test_a_bids_program_runs_with_no_edit_once_the_owner_has_approved_it(vault: Path) -> None:
    folder = vault.parent
    given = (str(folder / "pipeline.py"), "--whitelist", str(folder / "whitelist.txt"), *OUTPUTS)
    made = run(vault, "pipeline", "submit", "cohort", *given, "--user", "ria", "--json")
    digest = json.loads(made.stdout)["digest"]
    terms = ("cohort", digest, "--epsilon", "900", "--blocks", "4", "--cpu", "1")
    refused = run(vault, "pipeline", "run", *terms, "--user", "ria", "--json")
    assert json.loads(refused.stdout)["refused"]["code"] == "pipeline-waits"
    listed = run(vault, "pipeline", "list", "cohort", "--source")
    assert f"{digest[:12]}  pipeline.py on cohort, by ria: waiting\n" in listed.stdout
    assert "  reads age, Height; gives age in [0, 100], height in [100, 220]\n" in listed.stdout
    assert "results.tsv" in listed.stdout
    assert (
        run(vault, "pipeline", "approve", "cohort", digest, "--most-epsilon", "900").returncode == 0
    )
    priced = run(vault, "pipeline", "run", *terms, "--dry-run", "--user", "ria")
    assert "Nothing is spent." in priced.stdout
    ran = run_hurried(vault, "pipeline", "run", *terms, "--user", "ria", "--json")
    answer = json.loads(ran.stdout)
    assert answer["rows"] == [pytest.approx([30, 170], abs=1.1)]
    declined = run(vault, "pipeline", "decline", "cohort", digest)
    assert declined.stdout == f"Declined pipeline.py ({digest[:12]}). It cannot run.\n"


def test_an_output_that_is_not_on_the_whitelist_is_refused(vault: Path) -> None:
    (vault.parent / "whitelist.txt").write_text(f"#{RESULTS}\nother.tsv\n")
    files = str(vault.parent / "pipeline.py"), "--whitelist", str(vault.parent / "whitelist.txt")
    made = run(vault, "pipeline", "submit", "cohort", *files, *OUTPUTS, "--json")
    assert json.loads(made.stdout)["refused"]["code"] == "bad-pipeline"


def test_what_programs_bring_along_is_added_listed_and_removed(vault: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text(f"X = {str(tmp_path)!r}")
    given = ("pipeline", "environment", "add", "--folder", str(tmp_path / "mine"))
    made = json.loads(run(vault, *given, "--note", "of a test", "--json").stdout)
    try:
        listed = run(vault, "pipeline", "environment", "list")
        assert f"{made['name']}, 1 MB of memory per processor: of a test" in listed.stdout
        shown = json.loads(run(vault, "pipeline", "list", "cohort", "--json").stdout)
        digest = made["name"].removeprefix("folder-")
        seen = {"name": made["name"], "kind": "folder", "digest": digest, "source": ""}
        assert seen in shown["environments"]
        assert str(tmp_path) not in json.dumps(shown)
        assert made["name"] in run(vault, "pipeline", "list", "cohort").stdout
    finally:
        removed = run(vault, "pipeline", "environment", "remove", made["name"])
    assert removed.stdout == f"Removed {made['name']}.\n"
    again = run(vault, "pipeline", "environment", "remove", made["name"], "--json")
    assert json.loads(again.stdout)["refused"]["code"] == "bad-environment"


def test_the_list_shows_what_a_waiting_program_brings_along() -> None:
    name = "image-" + 64 * "a"
    waits = {
        "source": "pass", "environment": f"{64 * 'b'}+{name}",
    }  # fmt: skip
    image = OwnEnvironment(("/run", "a\nb"), ("A=\x1b[0m",), name=name, megabytes=1, contents="c")
    assert pipelines_cli._brought_lines(waits, {name: image}) == [
        f'  with {name}, runs ["/run", "a\\nb"], settings ["A=\\u001b[0m"]'
    ]
    assert pipelines_cli._brought_lines(waits, {}) == [f"  with {name}"]
    assert pipelines_cli._brought_lines({**waits, "environment": "b"}, {}) == []


def test_a_program_is_tried_without_a_vault(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "people.tsv").write_text("participant_id\tage\tHeight\nsub-1\t40\t170\n")
    told = ["try", str(tmp_path / "program.py"), "--data", str(tmp_path / "people.tsv"), *OUTPUTS]
    ended = run(tmp_path, "pipeline", *told)
    assert ended.returncode == 1
    assert "Ended: exit status 7. It took " in ended.stdout
    assert "age: 40\n" in ended.stdout
    assert ended.stdout.endswith(
        "The trial failed: it ended with exit status 7, and printed nothing about why.\n"
    )
    (tmp_path / "program.py").write_text(PROGRAM.replace("sys.exit(7)", ""))
    ended = run(tmp_path, "pipeline", *told)
    assert (ended.returncode, ended.stdout[:20]) == (0, "It printed nothing.\n")
    assert ended.stdout.endswith("The trial gave all results.\n")
