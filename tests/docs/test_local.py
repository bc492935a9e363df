"""The example of docs/reference/local.md runs, and its table of kinds has every kind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sfumato.dp.local.randomiser_registry import BALLOTS, KINDS, NUMBERS

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "local.md").read_text("utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(block, {})  # noqa: S102  # our own page
    said = capsys.readouterr().out
    assert said.startswith("{'kind': 'k-ary', 'size': 5")
    assert len(said.splitlines()) == 5


def test_every_kind_has_its_line() -> None:
    named = set(re.findall(r"^\| `([a-z-]+)` \| `", TEXT, re.M))
    assert named == {*KINDS, *NUMBERS, *BALLOTS, "growing"}
