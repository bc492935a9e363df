"""The Python and the commands of docs/how-to/pipelines.md run, and what it links is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import sfumato
from support.sandbox_blocks import hurry, needs_bubbles
from support.small_vaults import card, make_vault, run_hurried, write_csv

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pipelines.md"
TEXT = PAGE.read_text("utf-8")
CARD = """
unit = "participant_id"
people = "heights"
budget = { epsilon = 3, delta = 0 }
[columns.height]
type = "number"
lower = 100
upper = 250
step = 0.1
"""
PROGRAM = """
import csv, os, sys
people = list(csv.DictReader(open(sys.argv[1] + "/participants.tsv"), delimiter="\\t"))
os.makedirs(sys.argv[2] + "/derivatives/group")
with open(sys.argv[2] + "/derivatives/group/results.tsv", "w") as file:
    file.write("1\\t%f" % (sum(float(one["height"]) for one in people) / len(people)))
"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    rows = [(f"sub-{place:02d}", 150 + place / 2) for place in range(60)]
    made = make_vault(tmp_path)
    with sfumato.open(made) as opened:
        source = write_csv(tmp_path / "t.csv", ("participant_id", "height"), rows)
        opened.add("heights", source, card(CARD))
    return made


@needs_bubbles
def test_the_python_of_the_page_runs(vault: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.S))
    (vault.parent / "page.py").write_text(code)
    spec = importlib.util.spec_from_file_location("page", vault.parent / "page.py")
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    with sfumato.open(vault) as opened:
        hurry(opened)
        page.__dict__["vault"] = opened
        spec.loader.exec_module(page)
    assert page.answer.columns == ("mean_height",)
    assert len(page.found.arrays["share"]["values"]) == 4


@needs_bubbles
def test_the_commands_of_the_page_run(vault: Path) -> None:
    (vault.parent / "pipeline.py").write_text(PROGRAM)
    (vault.parent / "whitelist.txt").write_text("derivatives/group/results.tsv\n")
    block = "".join(re.findall(r"```sh\n(.*?)```", TEXT, re.S))
    digest = ""
    for line in block.replace("\\\n", "").replace('"', "").splitlines():
        words = line.replace("DIGEST", digest).split()
        done = run_hurried(vault, *words[1:], folder=vault.parent)
        assert done.returncode == 0, done.stderr
        digest = digest or re.findall(r"[0-9a-f]{64}", done.stdout)[0]


TOWN = """
unit = "participant_id"
people = "town"
size = 400
budget = { epsilon = 5, delta = 0 }
[ask]
who = ["researchers"]
[columns.height]
type = "number"
lower = 140
upper = 210
step = 0.5
[columns.sex]
type = "text"
keys = ["f", "m"]
"""
NAME = re.compile(r"^Submitted .* digest ([0-9a-f]{64}):", re.M)


def masked(text: str, digest: str) -> list[str]:
    """Return the lines of a text without the numbers and the digest, which differ by run."""
    for part in (digest, digest[:12]):
        text = text.replace(part, "DIGEST")
    text = re.sub(r"\b[0-9a-f]{32}\b", "OPERATION", text)
    text = re.sub(r"[+-]?[0-9][0-9.,]*", "N", text)
    return [re.sub(r"[ -]+", " ", line).strip() for line in text.strip().splitlines()]


@needs_bubbles
def test_the_small_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    rows = [(f"p{n}", (165, 178)[n % 2] + n % 9 - 4, "fm"[n % 2]) for n in range(400)]
    made = make_vault(tmp_path)
    with sfumato.open(made) as opened:
        source = write_csv(tmp_path / "t.csv", ("participant_id", "height", "sex"), rows)
        opened.add("town", source, card(TOWN))
        opened.enrol("ria", "researchers")
    (program,) = re.findall(r"```py\n(.*?)```", TEXT, re.S)
    (tmp_path / "means.py").write_text(program)
    shown = "".join(re.findall(r"```console\n(.*?)```", TEXT, re.S))
    written, digest = NAME.findall(shown)[0], ""
    for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", shown, re.M):
        words = shlex.split(command.replace(written[:12], digest[:12]))
        whose = () if {"try", "twin", "approve"} & set(words) else ("--user", "ria")
        done = run_hurried(made, *words[1:], *whose, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        digest = digest or (NAME.findall(done.stdout) or [""])[0]
        assert masked(done.stdout, digest or "none") == masked(expected, written), command


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
