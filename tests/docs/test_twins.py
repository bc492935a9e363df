"""The examples of docs/how-to/twins.md run, and its card is read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

from sfumato.cli.main import cli
from sfumato.dp.refusal import CODES
from sfumato.vault.card.data_card import read_card
from support.small_vaults import open_with, write_csv

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "twins.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
CARD = """
unit = "who"
budget = { epsilon = 10 }
nulls = ["n/a"]
[columns.ward]
type = "text"
keys = ["n", "s"]
[columns.age]
type = "integer"
lower = 10
upper = 99
"""


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [(f"p{n}", "ns"[n % 2], 20 + n % 50) for n in range(200)]
    source = write_csv(tmp_path / "v.csv", ("who", "ward", "age"), rows)
    with open_with(tmp_path, "visits", source, CARD) as vault:
        for code in (text for kind, text in BLOCKS if kind == "python"):
            exec(code, {"vault": vault})  # noqa: S102  # the page's own code
        assert 2 < vault["visits"].budget["spent"]["epsilon"] <= 2.1 + 1e-9
    assert (tmp_path / "look.schema-twin.zip").stat().st_size > 500


def test_the_card_of_the_page_describes_a_folder() -> None:
    (text,) = [text for kind, text in BLOCKS if kind == "toml"]
    made = read_card("x", {**tomllib.loads(text), "budget": {"epsilon": 1}})
    assert made.bids is not None
    assert len(made.bids) == 2


def test_the_commands_of_the_page_have_only_options_that_there_are() -> None:
    twin = cli.get_command(click.Context(cli), "twin")
    assert twin is not None
    known = {word for option in twin.params for word in option.opts}
    used = re.findall(r"sfumato twin.*", TEXT)
    assert len(used) == 6
    assert {word for line in used for word in re.findall(r" (--?[a-z-]+)", line)} <= known
    assert "twin-not-possible" in CODES
