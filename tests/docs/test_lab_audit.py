"""The examples of docs/how-to/lab-audit.md run, and say what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "lab-audit.md").read_text("utf-8")


def test_the_example_finds_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(block, {})  # noqa: S102  # our own page
    said = capsys.readouterr().out
    assert said.startswith("The claim of epsilon 1 is broken")
    assert "the lowest set bit of the output" in said


def test_every_call_that_the_page_names_is_there() -> None:
    import sfumato.lab.audit as there

    named = set(re.findall(r"^\| `(\w+)\(", TEXT, re.M))
    assert named == {name for name in there.__all__ if name.startswith("audit")}
