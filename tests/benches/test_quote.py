"""The README's figures are those of the page of figures, and stand nowhere else in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import page as figures
from bench import quote
from bench.__main__ import BENCHES, LONG
from bench.page import page_of, table

README = quote.README.read_text("utf-8")
PAGE = figures.PAGE.read_text("utf-8")
RUNS: list[dict[str, object]] = [
    {"name": "one", "peer": "sfumato", "seconds": 0.5, "ours": None},
    {"name": "one", "peer": "other", "seconds": 1234.5},
    {"name": "one", "peer": "fallen", "seconds": ""},
]
ONE = quote.Quote(
    "a thing", "some", ("one", "sfumato"), "{seconds} s", quote.Beside(("one",), "{peer} {seconds}")
)


def page(rows: list[dict[str, object]]) -> str:
    how = "Measured with `python -m x` on 2026-01-02 (any, load average before the run 0.1; more)."
    return page_of({"some": f"{how}\n\n{table(rows)}"})


def test_the_readmes_figures_are_what_the_page_of_figures_says() -> None:
    assert quote.replaced(README, quote.section(PAGE)) == README, "make figures"


def test_no_time_and_no_ratio_stands_elsewhere_in_the_readme() -> None:
    rest = quote.replaced(README, quote.HEADING)
    assert re.findall(r"\d[\d.,]*\s*(?:ms|s|seconds|µs|x|times|MB|GB)\b", rest) == []


def test_a_line_is_said_in_the_cells_of_its_row_and_of_the_rows_beside_it() -> None:
    assert quote.line_of(ONE, page(RUNS)) == {
        "what": "a thing",
        "figure": "0.5 s",
        "beside it": "other 1,230",
        "measured by": "`python -m x` on 2026-01-02, load average 0.1",
    }


def test_a_column_that_a_bench_has_no_more_loses_its_quote() -> None:
    assert quote.line_of(replace(ONE, said="{hours} h"), page(RUNS)) is None


def test_what_was_not_measured_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("# x\n\n## Figures\n\nold 5 s\n\n## Last\n")
    (tmp_path / "figures.md").write_text(page(RUNS[1:]))
    monkeypatch.setattr(quote, "README", tmp_path / "README.md")
    monkeypatch.setattr(quote, "PAGE", tmp_path / "figures.md")
    monkeypatch.setattr(quote, "QUOTES", (ONE,))
    quote.main()
    assert "a thing (some)" in capsys.readouterr().err
    made = (tmp_path / "README.md").read_text()
    assert "old" not in made
    assert "a thing" not in made
    assert made.endswith("\n\n## Last\n")


def test_every_quote_is_of_a_section_that_a_bench_writes() -> None:
    peers = {"beside other libraries", "surveys beside other libraries"}
    assert {one.section for one in quote.QUOTES} <= {*BENCHES, *LONG, *peers}
