"""The commands of docs/how-to/anonymity.md run as they stand, and its figures are the attack's."""

from __future__ import annotations

import re
import shlex
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

import sfumato
from sfumato.app.command_line import CommandLine
from sfumato.cli.main import run
from sfumato.lab.attacks import attack
from support.small_vaults import make_vault, write_csv

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "anonymity.md"
TEXT = PAGE.read_text("utf-8").replace("\\\n       ", "")
COMMANDS = re.findall(r"^    (sfumato anonymity .+)$", TEXT, re.M)
CARD = """
unit = "row"
people = "townspeople"
version = "1"
[budget]
epsilon = 1
delta = 0
[columns]
age = {type = "integer", lower = 0, upper = 99}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page names."""
    people = [(20 + i % 37, f"003{10 + i % 4}", f"illness {i * i % 5}") for i in range(300)]
    for name, rows in (("people", people), ("look-alike", people[:90]), ("others", people[90:])):
        write_csv(tmp_path / f"{name}.csv", ("age", "zip", "illness"), rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run_one_after_the_other(folder: Path) -> None:
    made = make_vault(folder)
    made.rename(folder / "my-vault")
    with sfumato.open("my-vault") as vault:
        vault.add("people", "people.csv", tomllib.loads(CARD, parse_float=Decimal))
    assert len(COMMANDS) == 6
    for line in COMMANDS:
        words = shlex.split(line)[1:]
        if "..." in words:  # the same as before, and the ledger is told
            place = words.index("...")
            words[place : place + 1] = ["--quasi", "age,zip", "--k", "5"]
            (folder / "handed-out.csv").unlink()
        assert run(words, CommandLine()) == 0, line
    assert (folder / "handed-out.csv").is_file()
    assert (folder / "risk.svg").read_text().startswith("<svg")


def test_the_python_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(code, {})  # noqa: S102  # the page's own code
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("show it to nobody")
    assert said[1] == "['age', 'zip', 'illness'] k-anonymous (not DP) True"
    assert said[2] == "1 2"


def test_the_figures_are_those_of_the_attack() -> None:
    told = re.findall(r"^\| .+ \| (\d+(?:\.\d)?) % \|$", TEXT, re.M)
    found = [100 * one.rate for one in attack("crowd").report(runs=100, seed=1).successes]
    assert [float(one) for one in told] == pytest.approx(found, abs=0.5)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
