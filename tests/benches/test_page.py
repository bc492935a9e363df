"""The page of figures: a section is written anew, and the others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import page


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "figures.md")


def _show(name: str, value: float, on_page: bool = True) -> None:
    page.show(name, f"python -m bench {name}", lambda: [{"step": "it", "ratio": value}], on_page)


def test_a_section_is_replaced_and_the_others_are_kept() -> None:
    _show("noise", 1.0)
    _show("engine", 2.0)
    _show("noise", 3.0)
    found = page.sections(page.PAGE.read_text("utf-8"))
    assert list(found) == ["engine", "noise"]
    assert found["noise"].endswith("| step | ratio |\n| --- | --- |\n| it | 3 |")
    assert found["noise"].startswith("This section compares how fast exact noise is drawn")
    assert "\n\nMeasured with `python -m bench noise` on 20" in found["noise"]
    assert "| it | 2 |" in found["engine"]


def test_a_bench_that_is_not_for_the_page_leaves_none(capsys: pytest.CaptureFixture[str]) -> None:
    _show("noise", 1.0, on_page=False)
    assert not page.PAGE.exists()
    assert "| it | 1 |" in capsys.readouterr().out


def test_a_page_is_read_as_it_was_written() -> None:
    parts = {"a b": "`x`, y.\n\n| a |\n| --- |\n| 1 |", "c": "d"}
    assert page.sections(page.page_of(parts)) == parts
