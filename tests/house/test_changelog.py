"""The changelog keeps its form, and its newest version is the package's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text("utf-8")
VERSIONS = re.findall(r"^## \[(.+?)\](.*)$", TEXT, re.MULTILINE)
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_the_newest_version_is_the_one_that_the_package_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [name for name, _ in VERSIONS[:2]] == ["Unreleased", project["version"]]


def test_versions_stand_newest_first_each_with_its_day() -> None:
    numbers = [tuple(map(int, name.split("."))) for name, _ in VERSIONS[1:]]
    assert numbers == sorted(numbers, reverse=True)
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", day) for _, day in VERSIONS[1:])


def test_every_change_stands_under_one_of_six_headings_in_their_order() -> None:
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds]
        assert "\n- " not in section.split("\n### ", 1)[0]
