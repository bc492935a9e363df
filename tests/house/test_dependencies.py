"""What sfumato stands on is written down, line by line, and stays little."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGE = (ROOT / "docs" / "decisions" / "dependencies.md").read_text("utf-8")


def names(wanted: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~ ]", line)[0] for line in wanted}


def section(title: str) -> dict[str, list[str]]:
    """Return name -> the other cells of its line, from the table under that title."""
    text = PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("| ")]  # fmt: skip
    return {row[0]: row[1:] for row in rows[2:]}


def test_everything_that_an_install_brings_has_its_line() -> None:
    assert set(section("What `pip install sfumato` brings")) == names(
        PROJECT["project"]["dependencies"]
    )


def test_everything_that_an_extra_brings_has_its_line_and_names_its_extras() -> None:
    said = {name: set(cells[0].split(", ")) for name, cells in section("What extras bring").items()}
    brought: dict[str, set[str]] = {}
    for extra, wanted in PROJECT["project"]["optional-dependencies"].items():
        for name in names(wanted):
            brought.setdefault(name, set()).add(extra)
    assert said == brought


def test_everything_that_building_and_testing_needs_has_its_line() -> None:
    groups = PROJECT["dependency-groups"].values()
    wanted = names([line for group in groups for line in group if isinstance(line, str)])
    assert set(section("What building and testing needs")) == wanted


def test_every_line_says_why_and_what_would_make_us_leave() -> None:
    for title in ("What `pip install sfumato` brings", "What extras bring"):
        assert all(all(len(cell) > 2 for cell in cells) for cells in section(title).values())


def test_a_user_installs_at_most_28_direct_dependencies() -> None:
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = names(PROJECT["project"]["dependencies"]).union(*map(names, extras))
    assert len(wanted) <= 28


def test_the_licence_is_the_one_that_the_package_names() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    words = (ROOT / "LICENSE").read_text("utf-8").split()
    assert words[:5] == ["Apache", "License", "Version", "2.0,", "January"]
