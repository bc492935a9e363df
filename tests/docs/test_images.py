"""docs/how-to/images.md: each base image has the same packages, however it is built."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sfumato.sandbox.image_registry import check_allowed, read_reference

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "images.md"
TEXT = PAGE.read_text("utf-8")


@pytest.mark.parametrize("language", ["Python", "R"])
def test_both_ways_to_build_an_image_install_the_same_packages(language: str) -> None:
    section = TEXT.split(f"## A base image for {language}\n")[1].split("\n## ")[0]
    (recipe,) = re.findall(r"```dockerfile\n(.*?)```", section, re.S)
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.S)
    (installed,) = re.findall(r"--no-install-recommends (.*?) *\\\n", recipe)
    (included,) = re.findall(r"--include=(\S+)", commands)
    assert installed.split() == included.split(",")
    for text in (recipe, commands):
        assert "useradd --create-home analyst" in text
    assert "USER analyst" in recipe
    assert "--config.user analyst" in commands


def test_the_list_of_registries_allows_the_image_of_the_page() -> None:
    (listed,) = re.findall(r"```json\n(.*?)```", TEXT, re.S)
    (name,) = re.findall(r"--pull (\S+)@sha256", TEXT)
    allowed = json.loads(listed)["registries"]
    for one in (name, "docker.io/python", "docker.io/library/python"):
        check_allowed(read_reference(f"{one}@sha256:{64 * '0'}"), allowed)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
