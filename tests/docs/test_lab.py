"""The exercises of docs/tutorials/lab.md run and answer as the page says; its links hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "lab.md"
TEXT = PAGE.read_text("utf-8")


def test_the_exercises_answer_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        exec(code, names)  # noqa: S102  # the page's own code
    said = capsys.readouterr().out.splitlines()
    assert abs(float(said[0]) - 671.75) < 10_000
    assert said[1].startswith(
        "Of 4 people, the removal of person 3 changes the query most: by 180."
    )
    assert said[2] == "4"
    table = [line.split()[0] for line in said[5:8]]
    assert table == ["0.1", "1", "10"]
    assert "The mean error is 0.3 or less from epsilon 0.2" in said[8]
    said = said[9:]
    assert said[0].startswith("They live in ")
    assert said[1].startswith("Not yet. That row does not fit what you know: compare ")
    assert said[2].startswith("Not yet. 197 of 1,000 people are unique by age + zip. ")
    assert said[-1].startswith("Right. You were right ")
    assert "at epsilon 1, nobody can be right more often than 73.1%" in said[-1]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()


def test_the_zoo_has_as_many_as_it_says() -> None:
    from sfumato.lab.broken.zoo import ZOO

    assert len(ZOO) > 50
