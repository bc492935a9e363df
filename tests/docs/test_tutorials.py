"""The front page and the tutorials run from top to bottom, and print what they say they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import entry

DOCS = Path(__file__).parents[2] / "docs"
LIBRARIES = {"opendp": "OpenDP", "tumult": "Tumult Analytics", "smartnoise": "SmartNoise SQL"}
CARD = "visits.card.toml"


def blocks(page: str, kinds: str = r"\w+") -> list[tuple[str, str]]:
    """Return the blocks of a page that have no title: the ones with a title are not ours."""
    return re.findall(rf"^```({kinds})\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.M | re.S)


def run(place: Path, *command: str) -> str:
    """Run a block as a reader would, and return all that it prints."""
    (place / "bin").mkdir(exist_ok=True)
    entry(place / "bin")
    path = f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "HOME": str(place / "home"), "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        command, cwd=place, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_first_answer_of_the_front_page_takes_twenty_lines(tmp_path: Path) -> None:
    (code,) = [text for kind, text in blocks("index.md") if kind == "python"]
    assert len([line for line in code.splitlines() if line]) <= 20
    assert "paid epsilon 1, 2 left" in run(tmp_path, sys.executable, "-c", code)


def test_the_tutorial_from_a_messy_file_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    said = ""
    for kind, text in blocks("tutorials/messy-file.md"):
        if kind == "python":
            run(tmp_path, sys.executable, "-c", text)
            said = (tmp_path / "besuche.csv").read_text("cp1252")
        elif kind == "sh":
            said = plain(run(tmp_path, "bash", "-ec", text))
        elif kind == "toml":
            assert "[columns." in (tmp_path / CARD).read_text()
            (tmp_path / CARD).write_text(text)
        else:
            assert [line for line in text.splitlines() if plain(line) not in plain(said)] == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_our_half_of_ten_tasks_runs(library: str, tmp_path: Path) -> None:
    page = f"tutorials/from-{library}.md"
    ours = "\n".join(text for kind, text in blocks(page) if kind == "python")
    assert "receipt" in ours
    run(tmp_path, sys.executable, "-c", ours)


@pytest.mark.parametrize("library", LIBRARIES)
def test_ten_tasks_have_a_block_of_theirs_and_one_of_ours(library: str) -> None:
    text = (DOCS / f"tutorials/from-{library}.md").read_text("utf-8")
    tasks = re.split(r"^## \d+\. ", text, flags=re.M)[1:]
    assert len(tasks) == 10
    for task in tasks:
        theirs = re.search(rf'^```(python|yaml|sql) title="{LIBRARIES[library]}"$', task, re.M)
        assert theirs or "has no" in task, task
        assert "```python\n" in task, task
