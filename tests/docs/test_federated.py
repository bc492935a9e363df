"""The Python of docs/how-to/federated.md runs; what it links is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "federated.md"
TEXT = PAGE.read_text("utf-8")


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        exec(code, names)  # noqa: S102  # the page's own code
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "torch.Size([5]) <VirtualWorker id='bob'> tensor([2, 3, 4, 5, 6])"
    assert said[1] == "('1', '2')"
    assert said[2] == "tensor(True)"
    assert said[3] == "torch.Size([2]) tensor([1.0000, 2.5000])"
    assert said[4] == "tensor([1.5000, 5.0000])"
    assert said[5] == "remote-private"
    assert said[6].startswith("{'east': 7.9")


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_a_page_that_it_names_is_there(link: str) -> None:
    assert (PAGE.parent / link).exists()
