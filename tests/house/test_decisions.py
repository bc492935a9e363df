"""Decisions are one page each, in one form; the diaries that they rest on are in the notebook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "decisions").glob("0*.md"))
DIARIES = {path.name for path in (DOCS / "notebook").glob("0*.md")}
PARTS = ["Question", "Decision", "Reasons", "Rejected", "Held by", "What would change our mind"]
OF_DIARIES = "Notebook"  # the last part of a page that rests on some


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_is_one_page_with_all_its_parts(page: Path) -> None:
    text = page.read_text("utf-8")
    lines = text.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120
    parts = re.findall(r"^\*\*([^*]+)\.\*\*", text, re.M)
    known = [part for part in parts if part in (*PARTS, OF_DIARIES)]
    assert known in (PARTS, [*PARTS, OF_DIARIES])
    assert re.search(r"`tests/[\w/]+\.py`", text)


def test_there_are_few_of_them_and_their_numbers_have_no_gap() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))
    assert len(PAGES) <= 30


def test_every_diary_is_named_by_a_decision() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"\(\.\./notebook/([^)#]+)\)", page.read_text("utf-8"))
    }
    assert named == DIARIES
