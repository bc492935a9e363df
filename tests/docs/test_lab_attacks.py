"""The commands and the Python of docs/tutorials/lab-attacks.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sfumato
from sfumato.lab.attacks import FILES, attack
from support.small_vaults import patients_vault

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "lab-attacks.md"
TEXT = PAGE.read_text("utf-8")
NAMES = re.findall(r"^    sfumato attack (\w+)$", TEXT, re.M)
SMALL = {"ratings": {"people": "2000", "films": "200"}}


@pytest.mark.parametrize("name", NAMES)
def test_a_command_of_the_page_runs(name: str) -> None:
    report = attack(name).report(runs=10, seed=1, **SMALL.get(name, {}))
    assert report.attack == name


def test_the_page_tells_of_these_attacks() -> None:
    assert NAMES == ["loo", "linkage", "ratings", "averaging", "differencing"]
    assert set(NAMES) <= set(FILES)


def test_the_python_of_the_page_says_what_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sfumato.open(patients_vault(tmp_path, "ada"), user="ada") as vault:
        names = {"vault": vault}
        for code in re.findall(r"```python\n(.*?)```", TEXT, re.S):
            exec(code, names)  # noqa: S102  # the page's own code
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Stopped by free repeats: 50 questions were answered")
    assert said[1].startswith("Stopped by the budget: ")
    assert said[2].startswith("Stopped by the budget: 0 questions were answered")


@pytest.mark.parametrize("picture", re.findall(r"\]\((\.\./lab/\S+)\)", TEXT))
def test_a_picture_of_the_page_is_there(picture: str) -> None:
    assert (PAGE.parent / picture).stat().st_size > 1000
