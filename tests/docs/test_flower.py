"""The Python of docs/how-to/flower.md runs without Flower; what it links and shows is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sfumato.features.federated import flower

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "flower.md"
TEXT = PAGE.read_text("utf-8")


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        exec(code, names)  # noqa: S102  # the page's own code
    assert capsys.readouterr().out.splitlines() == [
        "{'epsilon': '0', 'delta': '0', 'epsilon_cap': '4', 'delta_cap': '1/100000'}"
    ]


def test_the_apps_of_the_page_can_be_read_and_name_what_there_is() -> None:
    apps = re.findall(r"\n\n```\n(app = .*?)```", TEXT, re.S)
    assert len(apps) == 2
    for app in apps:
        compile(app, "the page", "exec")
    assert {"SecureAverage", "schedule", "secure_mod"} <= set(flower.__all__)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
