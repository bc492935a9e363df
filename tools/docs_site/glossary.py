"""The glossary in the site: each term has an address, and an entry of its own in the search."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

PAGE: Final = "reference/glossary.md"
_ROW: Final = re.compile(r"^\| (?!term |---)(?P<term>[^|]+?) \| (?P<says>[^|]+?) \|", re.M)


def with_addresses(markdown: str) -> str:
    """Return the page with an id on each term, so that a link can name it."""
    return _ROW.sub(
        lambda row: row[0].replace(
            row["term"], f'<b id="{_address(row["term"])}">{row["term"]}</b>', 1
        ),
        markdown,
    )


def add_to_search(site: Path, markdown: str) -> None:
    """Add an entry for each term to the search index of the built site.

    Args:
        site: The folder of the site.
        markdown: The text of the glossary.
    """
    file = site / "search" / "search_index.json"
    index = json.loads(file.read_text("utf-8"))
    location = PAGE.replace(".md", ".html")
    index["docs"] += [
        {
            "location": f"{location}#{_address(row['term'])}",
            "title": row["term"],
            "text": "<p>" + re.sub(r"`([^`]+)`", r"<code>\1</code>", row["says"]) + "</p>",
            "boost": 3,
        }
        for row in _ROW.finditer(markdown)
    ]
    file.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")


def _address(term: str) -> str:
    return "term-" + "-".join(re.findall(r"[^\W_]+", term.lower()))
