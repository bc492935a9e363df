"""Every command that a refusal, a page or the source tells people to run is one that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
import pytest

from sfumato.cli.main import cli

ROOT: Final = Path(__file__).parents[2]
NAMED: Final = re.compile(r"`sfumato ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)")
PAGES: Final = (
    "*.md",
    "docs/*.md",
    "docs/tutorials/*.md",
    "docs/how-to/*.md",
    "docs/reference/**/*.md",
    "docs/explanation/*.md",
    "src/**/*.py",
)


def named() -> dict[str, str]:
    """Return the words after `sfumato` wherever they stand, and one file where they do."""
    paths = [path for page in PAGES for path in ROOT.glob(page) if path.name != "CHANGELOG.md"]
    return {
        words: str(path.relative_to(ROOT))
        for path in sorted(paths)
        for words in NAMED.findall(path.read_text("utf-8"))
    }


def is_a_command(words: str) -> bool:
    """Say whether the words are a command, and further ones of its, or what it is given."""
    command: click.Command | None = cli
    for word in words.split():
        if not isinstance(command, click.Group):
            return True  # what follows is given to it
        command = command.get_command(click.Context(command), word)
        if command is None:
            return False
    return True


def test_a_command_that_is_named_is_there() -> None:
    found = named()
    assert len(found) > 50
    assert {words: file for words, file in found.items() if not is_a_command(words)} == {}


@pytest.mark.parametrize("words", ["airlock trim", "nothing", "owner"])
def test_one_that_is_not_would_be_seen(words: str) -> None:
    assert not is_a_command(words)
