"""The Python of docs/how-to/sites.md runs; what it links is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sites.md"
TEXT = PAGE.read_text("utf-8")


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(code, {})  # noqa: S102  # the page's own code
    columns, spent, *rounds, model = capsys.readouterr().out.splitlines()
    assert columns == "('n', 'age') ['east', 'north', 'south', 'west']"
    assert spent == "{'east': 1.0, 'north': 1.0, 'south': 1.0, 'west': 1.0}"
    assert [line[:2] for line in rounds] == ["1 ", "2 ", "3 "]
    assert model.startswith("central-dp [")


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
