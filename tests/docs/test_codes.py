"""The list of refusals is that of the table of codes, in the order of the alphabet."""

from __future__ import annotations

import re
from pathlib import Path

from sfumato.dp.refusal import CODES

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "codes"
LINES = re.findall(
    r"^\| \[([a-z-]+)\]\(([a-z-]+)\.md\) \| (.*) \|$",
    (FOLDER / "index.md").read_text("utf-8"),
    re.M,
)


def test_the_list_has_every_code_once_in_alphabetical_order() -> None:
    assert [code for code, _, _ in LINES] == sorted(CODES)
    assert all(code == page for code, page, _ in LINES)


def test_a_line_says_what_the_table_and_the_page_say() -> None:
    for code, _, says in LINES:
        assert says == CODES[code], code
        page = (FOLDER / f"{code}.md").read_text("utf-8")
        assert page.startswith(f"# {code}\n\n**{says}**\n"), code
