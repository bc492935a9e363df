"""The randomised reports as a file: page by page, so that no edge holds a whole one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfumato.features.surveys.respondent_pages import MAX_PAGES, csv_parts


@pytest.mark.parametrize(
    ("pages", "is_cut"),
    [(1, False), (2, False), (MAX_PAGES, False), (MAX_PAGES + 1, True), (MAX_PAGES + 5, True)],
)
def test_a_file_goes_out_page_by_page_and_says_so_where_it_is_cut(pages: int, is_cut: bool) -> None:
    """Whoever asks for many large files at once holds one page of each in the edge's memory."""

    async def parts() -> tuple[list[str], list[str]]:
        asked, came = [], []

        async def more(after: str) -> dict[str, Any]:
            asked.append(after)
            number = int(after) + 1  # the last page may be full: then an empty one follows it
            listed = [{"mark": f"m{number}", "said": "0.0.1"}] if number < pages else []
            return {"reports": listed, "next": str(number) if listed else None}

        async for part in csv_parts(await more("-1"), more):
            came.append(part)
            assert len(asked) <= len(came)  # nothing is asked for before it is wanted
        return asked, came

    asked, came = asyncio.run(parts())
    kept = min(pages, MAX_PAGES)
    rows = [f"m{number},0.0.1\r\n" for number in range(kept)]
    assert [part for part in came if part][: kept + 1] == ["mark,said\r\n", *rows]
    assert came[-1].startswith("cut,there are more") == is_cut
    assert len(asked) <= MAX_PAGES + 1
