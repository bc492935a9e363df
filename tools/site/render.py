"""Markdown to HTML: headings that can be pointed at, tables that scroll, links that hold."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

PICTURES = (".png", ".svg")


class Broken(Exception):
    """A link of a page leads nowhere."""


@dataclass
class Rendered:
    """A page's HTML, its headings of the second level, and the pictures that it shows."""

    html: str = ""
    headings: list[tuple[str, str]] = field(default_factory=list)
    pictures: set[str] = field(default_factory=set)  # paths in the repository


def anchor_of(words: str) -> str:
    """Return the fragment of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")


def render(
    text: str, source: str, target: str, places: dict[str, str], exists: Callable[[str], bool]
) -> Rendered:
    """Return a page; `places` says where each file of the repository stands in the site."""
    found = Rendered()
    tokens = MarkdownIt("commonmark", {"html": False}).enable("table")
    parsed = tokens.parse(text)
    links = _Links(source, target, places, exists, found)
    _name_headings(parsed, found)
    for token in parsed:
        links.mend(token.children or [])
    found.html = _wrap_tables(tokens.renderer.render(parsed, tokens.options, {}))
    return found


def _name_headings(tokens: Sequence[Token], found: Rendered) -> None:
    taken: set[str] = set()
    for token, inside in pairwise(tokens):
        if token.type != "heading_open":
            continue
        words = "".join(child.content for child in inside.children or [])
        anchor, number = anchor_of(words), 1
        while anchor in taken:
            anchor, number = f"{anchor_of(words)}-{number}", number + 1
        taken.add(anchor)
        token.attrSet("id", anchor)
        if token.tag == "h2":
            found.headings.append((anchor, words))


def _wrap_tables(html: str) -> str:
    """Let a wide table scroll by itself, also by keys."""
    opened = '<div class="wide" role="region" aria-label="Table" tabindex="0"><table>'
    html = html.replace("<table>", opened).replace("</table>", "</table></div>")
    # a long line of code scrolls too
    return html.replace("<pre>", '<pre tabindex="0">')


@dataclass
class _Links:
    source: str
    target: str
    places: dict[str, str]
    exists: Callable[[str], bool]
    found: Rendered

    def mend(self, tokens: list[Token]) -> None:
        """Turn links between files into links between pages; what is no page loses its link."""
        dropped = False
        for token in tokens:
            if token.type == "link_open":
                href = self._page(str(token.attrGet("href")))
                dropped = href is None
                if href is None:
                    token.tag = "span"
                    token.attrs = {}
                else:
                    token.attrSet("href", href)
            elif token.type == "link_close" and dropped:
                token.tag, dropped = "span", False
            elif token.type == "image":
                token.attrSet("src", self._picture(str(token.attrGet("src"))))

    def _page(self, href: str) -> str | None:
        """Return where a link leads in the site; None for a file that is no page of it."""
        if re.match(r"(https?:|mailto:)", href):
            return href
        if href.startswith("site:"):
            return href.removeprefix("site:")
        path, _, fragment = href.partition("#")
        if not path:
            return href
        file = self._resolved(path)
        if file in self.places:
            place = posixpath.relpath(self.places[file], posixpath.dirname(self.target) or ".")
            return place + (f"#{fragment}" if fragment else "")
        if file.endswith(PICTURES):
            return self._picture(path)
        if not self.exists(file):
            raise Broken(f"{self.source}: {href}")
        return None

    def _picture(self, path: str) -> str:
        file = self._resolved(path)
        if not self.exists(file):
            raise Broken(f"{self.source}: {path}")
        self.found.pictures.add(file)
        return posixpath.relpath(picture_place(file), posixpath.dirname(self.target) or ".")

    def _resolved(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.source), path))


def picture_place(file: str) -> str:
    """Return where a picture of the repository stands in the site."""
    return file.removeprefix("docs/")


def code(text: str, kind: str = "") -> str:
    """Return a piece of code as HTML."""
    return f'<pre tabindex="0"><code class="language-{kind}">{escape(text)}</code></pre>'
