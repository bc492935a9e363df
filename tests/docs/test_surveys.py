"""The examples of docs/how-to/surveys.md run, and its table names every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sfumato.features.surveys.model import read_survey
from support.small_vaults import SFUMATO, run
from support.survey_fixtures import design

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "surveys.md").read_text("utf-8")


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(block, {})  # noqa: S102  # our own page
    said = capsys.readouterr().out
    assert "bike will be off by" in said
    assert said.count("comes back") == 7


def test_the_shells_simulations_run(tmp_path: Path) -> None:
    lines = re.findall(r"^sfumato (survey simulate[^#\n]*)", TEXT, re.M)
    assert len(lines) == 2
    for line in lines:
        done = run(tmp_path, *line.split())
        assert "The estimate from the reports is" in done.stdout, (SFUMATO, done.stderr)


def test_every_command_that_the_page_names_is_there(tmp_path: Path) -> None:
    there = run(tmp_path, "survey", "--help").stdout
    for word in set(
        re.findall(r"survey ([a-z]+)", " ".join(re.findall(r"```sh\n(.*?)```", TEXT, re.S)))
    ):
        assert f"  {word} " in there, word


def test_the_table_names_every_field() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", TEXT, re.M))))
    fields = set(read_survey(design()).shape()) - {"format"}
    assert fields <= named
