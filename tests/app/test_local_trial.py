"""A program is tried on its author's machine: all is shown, and what would fail is named."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sfumato.app import local_trial
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.cli import block_lines, trial_lines
from sfumato.sandbox.environment_store import Environments
from sfumato.sandbox.study import _write_study
from support.container_images import PYTHON, layout, python_layer, shell_layer
from support.sandbox_blocks import needs_bubbles

pytestmark = needs_bubbles
ROWS = "participant_id\theight\nsub-1\t170\nsub-2\t180\n"
OUTPUTS = [{"name": "m", "lower": "100", "upper": "200", "path": "answer.txt"}]
LIMITS = {"cpu_s": 1, "memory_mb": 256, "disk_mb": 16}
MEAN = """
import os, sys
rows = [line.split("\\t") for line in open(sys.argv[1] + "/participants.tsv")][1:]
mean = sum(float(row[1]) for row in rows) / len(rows)
os.makedirs(sys.argv[2], exist_ok=True)
print("the mean is", mean)
with open(sys.argv[2] + "/answer.txt", "w") as file:
    file.write(str(mean))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    place = tmp_path_factory.mktemp("image")
    digest = layout(place, [shell_layer(), python_layer()], settings=PYTHON, packed=False)
    yield "image", str(place), digest
    Environments().remove(f"image-{digest.removeprefix('sha256:')}")


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "people.tsv").write_text(ROWS)
    return str(tmp_path / "people.tsv")


def test_a_program_that_runs_shows_what_it_did(table: str) -> None:
    found = local_trial.try_program(MEAN, table, OUTPUTS, limits=LIMITS)
    assert (found["ended"], found["would_fail"]) == ("exit status 0", "")
    assert found["printed"] == "the mean is 175.0\n"
    assert found["read"] == [{"output": "m", "is_number": True, "says": "175"}]


def test_a_trial_says_how_long_it_took_and_not_only_what_it_computed(table: str) -> None:
    limits = {**LIMITS, "cpu_s": 5}
    waits = "import time\nuntil = time.monotonic() + 1.5\nwhile time.monotonic() < until: pass\n"
    found: Any = local_trial.try_program(waits + MEAN, table, OUTPUTS, limits=limits)
    assert found["would_fail"] == ""
    assert found["wall_s"] >= 1.5  # at least what it waited, however busy the machine is
    said = trial_lines(found)[2]
    took = f"It took {found['wall_s']:.2f} s, and used {found['cpu_s']:.2f} s of processor time, "
    assert took in said


FAILS: dict[str, tuple[str, str]] = {
    "module": ("import torch", "needs the Python module torch"),
    "command": ("#!/bin/bash\nfslmaths in out\n", "starts the command fslmaths"),
    "interpreter": ("#!/usr/bin/Rscript\ncat(1)\n", "starts the command /usr/bin/Rscript"),
    "socket": ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "opens a socket"),
    "processes": ("open('/proc/self/stat')", "reads /proc/self, and a block has a /proc only"),
    "path": ("open('/data/people.csv')", "reads /data/people.csv, which is not there"),
    "read-only": ("open('/opt/result', 'w')", "/opt/result, which is read-only"),
    "disk": ("open('/tmp/f', 'wb').write(bytes(40 << 20))", "larger than a block's disk"),
    "memory": ("b = bytearray(400 << 20)\nimport signal\nsignal.pause()", "more memory"),
    "time": ("while True: pass", "more processor time"),
    "waits": ("import signal\nsignal.pause()", "waited longer"),
    "status": ("import sys\nsys.exit('no such column: bmi')", "no such column: bmi"),
    "nothing": ("print(1)", "there is no result answer.txt"),
    "text": (MEAN.replace("str(mean)", "'unknown'"), "m: no number"),
}

READ = """
import csv, json, os, sys
source, target, level = sys.argv[1:]
rows = list(csv.DictReader(open(source + "/participants.tsv"), delimiter="\\t"))
"""
WRITE = "open(target + '/answer.txt', 'w').write({})"
# as strangers wrote them: files of Python without an image
ALONE = {
    "column": (READ + "rows[0]['Height']", "'Height', which is no column of participants.tsv: its "
               "columns are participant_id, height"),
    "pandas": ("import pandas\npandas.DataFrame({'a': [1]})[['BMI']]", "asks for 'BMI'"),
    "relative": (READ + "open('results/answer.txt', 'w')", "results/answer.txt, a path that"),
    "folder": (READ + "open(target + '/group/answer.txt', 'w')", "make a folder for results"),
    "absent": (READ + "open(source + '/sub-9/sub-9.json')", "the data have no file sub-9/sub-9"),
    "elsewhere": (READ + "open('answer.txt', 'w').write('170')", "the folder of the second arg"),
    "made": (READ + "os.mkdir(target)", "/work/out, which is there already"),
    "words": (READ + WRITE.format("'mean=170.2'"), "write the number alone"),
    "comma": (READ + WRITE.format("'170,2'"), "decimal point instead of the comma"),
    "nan": (READ + WRITE.format("str(float('nan'))"), "'nan' in answer.txt is not a number"),
    "numpy": ("import json, numpy\njson.dumps(numpy.int64(3))", "convert it first"),
    "mute": ("import sys\nsys.exit(1)", "exit status 1, and printed nothing about why"),
    "window": ("import sys\nsys.exit('_tkinter.TclError: no display name and no $DISPLAY "
               "environment variable')", "opens a window"),
    "input": ("input('Which folder? ')", "asks for input"),
    "options": ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--bids', "
                "required=True)\np.parse_args()", "other arguments than INPUT OUTPUT group"),
    "network": ("import urllib.request\nurllib.request.urlopen('https://example.org')",
                "needs the network"),
    "shell": ("#!/bin/sh\necho 170 > $2/answer.txt\n", "#!/bin/sh, and without an image every"),
    "forks": ("import os\nwhile True: os.fork()", "starts another process"),
    "commands": ("import subprocess\nsubprocess.run(['ls'])", "starts another process"),
    "cpu": ("open('/proc/cpuinfo')", "/proc/cpuinfo, and only an image in a batch has a /proc"),
}  # fmt: skip
FAILS |= {
    "lock": ("import fcntl\nfcntl.flock(open('/tmp/x', 'w'), fcntl.LOCK_EX)", "it locks a file"),
    "database": ("import sys\nsys.exit('Error: access permission denied')", "it locks a file"),
    "epoll": ("import select\nselect.epoll()", "waits for several files at once"),
    "substitution": ("#!/bin/bash\ncat <(echo 170) > $2/answer.txt\n", "under /dev/fd, as <("),
    "cores": ("import sys\nsys.exit(\"Error in mclapply(1:9, f) : 'mc.cores' must be >= 1\")",
              "asks R for the number of processors"),
    "long": ("import sys\nsys.exit('Error in lm(a) : \\n  too few rows\\nExecution halted')",
             "exit status 1; it printed: Error in lm(a) : too few rows"),
    "calls": ("import sys\nsys.exit('panic: no rows\\n\\ngoroutine 1:\\n  main.go:7')",
              "exit status 1; it printed: panic: no rows"),
    "windows": ("#!/bin/bash\r\necho 170 > $2/answer.txt\r\n", "save it with the line ends of L"),
    "forks": ("import os, signal\nwhile True:\n    if not os.fork(): signal.pause()",
              "starts more processes or threads than a block"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_what_would_fail_without_an_image_is_named(name: str, table: str) -> None:
    source, said = ALONE[name]
    found = local_trial.try_program(source, table, OUTPUTS, limits=LIMITS)
    assert said in str(found["would_fail"]), found["printed"]


@pytest.mark.parametrize("name", FAILS)
def test_what_would_fail_in_a_block_is_named(
    name: str, table: str, image: tuple[str, str, str]
) -> None:
    source, said = FAILS[name]
    found = local_trial.try_program(source, table, OUTPUTS, brought=image, limits=LIMITS)
    assert said in str(found["would_fail"]), found["printed"]


STARTS = """#!/bin/bash
for i in 1 2 3; do cat "$1/participants.tsv" | cut -f2 > /dev/null; done
echo 170 > $2/answer.txt; echo > $2/$'<b>\\n\\e[31mThe trial gave all results.'; mkfifo $2/pipe
"""


def test_a_trial_shows_the_commands_and_the_files_of_a_program(
    table: str, image: tuple[str, str, str]
) -> None:
    found: Any = local_trial.try_program(STARTS, table, OUTPUTS, brought=image, limits=LIMITS)
    assert [(one["command"], one["times"]) for one in found["commands"]][:3] == [
        ("/work/tmp/program.py /work/in /work/out group", 1),
        ("cat /work/in/participants.tsv", 3),
        ("cut -f2", 3),
    ]
    lines = trial_lines(found)
    assert "  $ cat /work/in/participants.tsv (3 times)" in lines
    shown = lines[lines.index("Files in the output folder:") + 1 :]
    assert shown[:3] == [
        "  answer.txt (4 bytes): taken",
        "  <b>\\n\\x1b[31mThe trial gave all results. (1 byte): not taken: no output declares it",
        "  pipe (0 bytes): not taken: a named pipe, and a result is a plain file",
    ]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("kind", ["folder", "zip", "zip below a folder"])
def test_a_folder_is_given_whole(kind: str, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    (twin / "sub-1" / "anat").mkdir(parents=True)
    (twin / "participants.tsv").write_text(ROWS)
    (twin / "sub-1" / "anat" / "sub-1_T1w.json").write_text("{}")
    data = twin
    if kind != "folder":
        data = tmp_path / "twin.zip"
        with zipfile.ZipFile(data, "w") as packed:
            for file in sorted(twin.rglob("*")):
                base = tmp_path if "below" in kind else twin
                packed.write(file, str(file.relative_to(base)))
    sees = MEAN + "print(os.path.exists(sys.argv[1] + '/sub-1/anat/sub-1_T1w.json'))"
    found = local_trial.try_program(sees, str(data), OUTPUTS, limits=LIMITS)
    assert found["printed"] == "the mean is 175.0\nTrue\n"


MODULE = "def mean(rows):\n    return sum(float(row[1]) for row in rows) / len(rows)\n"
HELPER = "#!/bin/sh\ncat lib/unit.txt\n"
SEVERAL = """#!/usr/bin/env python3
import os, sys
from lib import means
rows = [line.split("\\t") for line in open(sys.argv[1] + "/participants.tsv")][1:]
print(os.getcwd(), os.path.relpath(__file__), open("lib/unit.txt").read(), flush=True)
if os.path.exists("/bin/sh"):
    os.system("./lib/unit.sh")
with open(sys.argv[2] + "/answer.txt", "w") as file:
    file.write(str(means.mean(rows)))
"""


@pytest.mark.parametrize("kind", ["libraries", "image"])
def test_a_program_of_several_files_runs_in_its_own_folder(
    kind: str, table: str, image: tuple[str, str, str]
) -> None:
    files = {"lib/means.py": MODULE, "lib/unit.txt": "cm", "lib/unit.sh": HELPER}
    modules = [{"path": path, "text": text} for path, text in files.items()]
    text = {"source": SEVERAL, "main": "run.py", "modules": modules}
    brought = image if kind == "image" else ()
    found = local_trial.try_program(text, table, OUTPUTS, brought=brought, limits=LIMITS)
    assert found["would_fail"] == "", found["printed"]
    unit = "cm" if kind == "image" else ""  # an image has a shell
    assert found["printed"] == f"/work/tmp/program run.py cm\n{unit}"
    assert found["read"] == [{"output": "m", "is_number": True, "says": "175"}]
    broken = {**text, "source": SEVERAL.replace("rows))", "[]))")}
    found = local_trial.try_program(broken, table, OUTPUTS, brought=brought, limits=LIMITS)
    assert 'File "/work/tmp/program/run.py", line 9' in str(found["printed"])
    assert "sandbox" not in str(found["printed"])


@pytest.mark.parametrize("name", ["people.csv", "twin.zip"])
def test_a_single_table_is_given_as_participants(name: str, tmp_path: Path) -> None:
    text = ROWS.replace("\t", ",")
    (tmp_path / "people.csv").write_text(text)
    with zipfile.ZipFile(tmp_path / "twin.zip", "w") as packed:
        packed.writestr("town.schema-twin/town.schema-twin.csv", text)
        packed.writestr("town.schema-twin/TWIN.json", "{}")
    found = local_trial.try_program(MEAN, str(tmp_path / name), OUTPUTS, limits=LIMITS)
    assert found["printed"] == "the mean is 175.0\n"


def test_other_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "annexed").mkdir()
    (tmp_path / "annexed" / "participants.tsv").symlink_to("nowhere")
    with zipfile.ZipFile(tmp_path / "out.zip", "w") as packed:
        packed.writestr("../participants.tsv", ROWS)
    for name in ("rows.parquet", "empty", "annexed", "out.zip"):
        with pytest.raises(Refused) as refused:
            local_trial.try_program(MEAN, str(tmp_path / name), OUTPUTS, limits=LIMITS)
        assert refused.value.code == "bad-pipeline"
    assert not os.path.exists(tmp_path.parent / "participants.tsv")


def test_a_zip_of_one_persons_folder_keeps_that_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as packed:
        packed.writestr("sub-1/anat/sub-1_T1w.json", "{}")
    lists = "import os, sys\nprint(sorted(os.listdir(sys.argv[1])))"
    found = local_trial.try_program(lists, str(tmp_path / "one.zip"), OUTPUTS, limits=LIMITS)
    assert found["printed"] == "['sub-1']\n"


TWO_LEVELS = """
import csv, json, os, sys
source, target, level = sys.argv[1:]
rows = list(csv.DictReader(open(source + "/participants.tsv"), delimiter="\\t"))
moods = list(csv.DictReader(open(source + "/phenotype/mood.tsv"), delimiter="\\t"))
folders = sorted(name for name in os.listdir(source) if name.startswith("sub-"))
print(level, folders, len(rows), len(moods), sorted(os.listdir(source + "/derivatives/first")))
if level == "participant":
    (name,) = folders
    os.makedirs(os.path.join(target, name))
    more = json.load(open(f"{source}/{name}/beh/{name}_beh.json"))["more"]
    with open(os.path.join(target, name, "measure.json"), "w") as file:
        json.dump({"height": float(rows[0]["height"]) + more}, file)
else:
    found = [os.path.join(target, name, "measure.json") for name in folders]
    found = [json.load(open(path))["height"] for path in found if os.path.exists(path)]
    with open(target + "/answer.txt", "w") as file:
        file.write(str(sum(found) / len(found)))
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Return a BIDS folder of three people, with a further table and an earlier program's files."""
    names, root = ("sub-1", "sub-10", "sub-2"), tmp_path / "study"
    files = {
        "participants.tsv": "participant_id\theight\nsub-1\t150\nsub-10\t160\nsub-2\t170\n",
        "phenotype/mood.tsv": "participant_id\tmood\n" + "".join(f"{one}\t3\n" for one in names),
        "dataset_description.json": "{}",
        **{f"{one}/beh/{one}_beh.json": '{"more": 1}' for one in names},
        **{f"derivatives/first/{one}.html": "" for one in names},
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_an_app_of_two_levels_runs_for_each_person_alone_and_then_for_the_group(
    study: Path,
) -> None:
    text = {"source": TWO_LEVELS, "kind": "bids"}
    found = local_trial.try_program(text, str(study), OUTPUTS, limits=LIMITS)
    assert found["would_fail"] == "", found
    assert found["read"] == [{"output": "m", "is_number": True, "says": "161"}]
    assert found["alone"] == {"runs": 3, "failed": {}}
    everybody = "['sub-1', 'sub-10', 'sub-2'] 3 3 ['sub-1.html', 'sub-10.html', 'sub-2.html']"
    assert found["printed"] == f"group {everybody}\n"
    without = local_trial.try_program(TWO_LEVELS, str(study), OUTPUTS, limits=LIMITS)
    assert "ZeroDivisionError" in str(without["would_fail"])


def test_a_person_alone_sees_nobody_else(study: Path) -> None:
    tells = (
        TWO_LEVELS.replace("print(level", "sys.exit('it sees %s %s %s %s' % (")
        .replace("% (, ", "% (")
        .replace('/derivatives/first")))', '/derivatives/first"))))')
    )
    text = {"source": tells, "kind": "bids"}
    found: Any = local_trial.try_program(text, str(study), OUTPUTS, limits=LIMITS)
    failed = found["alone"]["failed"]
    assert list(failed) == ["sub-1", "sub-10", "sub-2"]
    for name, cause in failed.items():
        assert cause.endswith(f"it sees ['{name}'] 1 1 ['{name}.html']"), cause
    assert "the own run of sub-1 failed" in str(found["would_fail"])


def test_one_persons_failure_keeps_nobody_from_the_group(study: Path) -> None:
    (study / "sub-10/beh/sub-10_beh.json").write_text("no number")
    text = {"source": TWO_LEVELS, "kind": "bids"}
    found: Any = local_trial.try_program(text, str(study), OUTPUTS, limits=LIMITS)
    assert (found["would_fail"], list(found["alone"]["failed"])) == ("", ["sub-10"])
    assert "JSONDecodeError" in found["alone"]["failed"]["sub-10"]
    assert found["read"] == [{"output": "m", "is_number": True, "says": "161"}]


def test_two_levels_of_a_table_run_as_in_a_block_of_it(
    table: str, image: tuple[str, str, str]
) -> None:
    source = READ + (
        "if level == 'participant':\n"
        "    print(os.listdir(source))\n"
        "    open(f\"{target}/{rows[0]['participant_id']}.txt\", 'w').write(rows[0]['height'])\n"
        "else:\n"
        "    found = [open(f'{target}/{name}').read() for name in os.listdir(target)]\n"
        "    " + WRITE.format("str(sum(map(float, found)) / len(found))")
    )
    text = {"source": source, "kind": "bids"}
    found = local_trial.try_program(text, table, OUTPUTS, limits=LIMITS)
    assert found["read"] == [{"output": "m", "is_number": True, "says": "175"}], found
    assert str(found["printed"]).count("dataset_description.json") == 2
    with pytest.raises(Refused) as refused:
        local_trial.try_program(text, table, OUTPUTS, brought=image, limits=LIMITS)
    assert "single table" in str(refused.value)


@pytest.mark.parametrize("kind", ["libraries", "image"])
def test_a_single_table_has_the_description_that_a_block_has(
    kind: str, table: str, image: tuple[str, str, str], tmp_path: Path
) -> None:
    source = (
        "import os, sys\nprint(sorted(os.listdir(sys.argv[1])))\n"
        "print(open(sys.argv[1] + '/dataset_description.json', 'rb').read())\n"
    )
    brought = image if kind == "image" else ()
    found = local_trial.try_program(source, table, OUTPUTS, brought=brought, limits=LIMITS)
    _write_study({}, str(tmp_path / "block"), ROWS.encode())  # as in a block of a table
    expected = (tmp_path / "block" / "dataset_description.json").read_bytes()
    names = ["dataset_description.json", "participants.tsv"]
    assert found["printed"] == f"{names}\n{expected!r}\n"


def test_a_program_is_tried_on_each_block_and_the_first_failure_is_shown_whole(
    tmp_path: Path,
) -> None:
    rows = "".join(f"sub-{n}\t{150 + n}\n" for n in range(6))
    (tmp_path / "t.tsv").write_text("participant_id\theight\n" + rows)
    data = {"place": str(tmp_path / "t.tsv"), "blocks": 5}
    found: Any = local_trial.try_program(MEAN, data, OUTPUTS, limits=LIMITS)
    people = [one["people"] for one in found["blocks"]]
    assert (len(people), sum(people)) == (5, 6)
    empty = people.count(0)
    assert empty > 0  # by the public key, which is always the same
    for one in found["blocks"]:
        assert bool(one["would_fail"]) == (one["people"] == 0)
    first = people.index(0)
    assert found["failed"]["block"] == first + 1
    assert "ZeroDivisionError" in found["failed"]["printed"]
    assert found["would_fail"].startswith(
        f"{empty} of 5 blocks failed, {empty} of them with nobody in it"
    )
    lines = block_lines(found)
    assert lines[first].startswith(f"Block {first + 1} of 5, nobody in it: exit status 1, ")
    assert "division by zero" in lines[first]
    whole: Any = local_trial.try_program(MEAN, {**data, "blocks": 1}, OUTPUTS, limits=LIMITS)
    assert (whole["failed"], whole["would_fail"]) == (None, "")
    assert "1 of 1, 6 people: exit status 0, " in block_lines(whole)[0]
    assert block_lines(whole)[0].endswith("m: 152.5")


def test_people_run_alone_before_each_block_of_a_study(study: Path) -> None:
    text = {"source": TWO_LEVELS, "kind": "bids"}
    whole: Any = local_trial.try_program(text, str(study), OUTPUTS, limits=LIMITS)
    data = {"place": str(study), "blocks": 1}
    found: Any = local_trial.try_program(text, data, OUTPUTS, limits=LIMITS)
    assert found["blocks"][0]["read"] == whole["read"]


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("json", "it needs the module json, which belongs to Python itself"),
        ("json.decoder", "install all of it in the image (Debian: python3, not python3-minimal)"),
        ("jsonlines", "bring it in a lock or an image"),
        ("winreg", "bring it in a lock or an image"),
    ],
)
def test_a_missing_module_of_python_itself_is_no_matter_of_a_lock(
    table: str, module: str, says: str
) -> None:
    fails = f"raise ModuleNotFoundError(\"No module named '{module}'\")"
    found: Any = local_trial.try_program(fails, table, OUTPUTS, limits=LIMITS)
    assert says in found["would_fail"]
